"""Saves in progress, live: what each rank did, and giving one up."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from shardkeep.protocol.messages import ChunkOffer
from tests.browser.dashboard import Dashboard
from tests.browser.launches import Launch
from tests.browser.served import Served
from tests.browser.tables import row, table
from tests.browser.traffic import requests_of

TABLE = "Saves in progress"


def test_a_save_in_progress_shows_its_ranks_and_who_is_absent(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open("/saves", heading="Saves in progress")
    save = table(page, TABLE).locator("tbody tr").filter(has_text="demo/saving")
    expect(save).to_contain_text("0 of 3, 1 absent")
    page.get_by_role("button", name="Show the ranks of step 7 of demo/saving").click()
    expect(page).to_have_url(re.compile(f"save={served.filled.open}"))
    for rank, state in [("0", "Sending"), ("1", "Sending"), ("2", "Absent")]:
        expect(row(page, "Ranks", rank)).to_contain_text(state)
    page.reload()
    expect(row(page, "Ranks", "2")).to_contain_text("Absent")


def test_what_ranks_do_meanwhile_is_seen_without_a_reload(dashboard: Dashboard, served: Served) -> None:
    with served.connect() as client:
        launch = Launch(client, "live/run", world_size=2)
        page = dashboard.open("/saves?project=live", heading="Saves in progress")
        expect(page.get_by_text("Nothing of live is being saved now")).to_be_visible()
        expect(page.get_by_text("shardkeep save-now live/my-run")).to_be_visible()
        checkpoint = launch.open(1)
        save = table(page, TABLE).locator("tbody tr")
        expect(save).to_contain_text("0 of 2, 1 absent")
        offer = ChunkOffer(digest="ab" * 32, size=3 << 20, crc64=1)
        client.service.negotiate(checkpoint, 0, [offer], direct=False)
        expect(save).to_contain_text("3.0", timeout=60_000)
        client.service.abort(checkpoint, rank=0, reason="enough")
        expect(page.get_by_text("Nothing of live is being saved now")).to_be_visible()


def test_a_save_that_ends_while_its_ranks_are_shown_says_how(dashboard: Dashboard, served: Served) -> None:
    dashboard.page.clock.install()
    with served.connect() as client:
        checkpoint = Launch(client, "ending/run", world_size=2).open(1)
        page = dashboard.open(f"/saves?project=ending&save={checkpoint}", heading="Saves in progress")
        expect(page.get_by_role("heading", name="Ranks of step 1 of ending/run")).to_be_visible()
        client.service.abort(checkpoint, rank=0, reason="enough of it")
    over = page.get_by_role("region", name="The save of step 1 of ending/run is over")
    expect(over).to_contain_text("Aborted")
    expect(over).to_contain_text("enough of it")
    asked = requests_of(page)
    with page.expect_request(re.compile("/v1/saves")):
        page.clock.run_for(30_000)
    expect(page.get_by_text("Nothing of ending is being saved now")).to_be_visible()
    assert not any(checkpoint in url for url in asked)
    over.get_by_role("link", name="Show this checkpoint and its ranks").click()
    dashboard.settled(heading="Step 1 of ending/run")
    expect(row(page, "Ranks", "1")).to_contain_text("Did not arrive")


def test_a_save_on_another_page_of_the_list_shows_its_ranks(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/saves?project=spare&save={served.filled.open}", heading="Saves in progress")
    expect(page.get_by_role("heading", name="Ranks of step 7 of demo/saving")).to_be_visible()


def test_a_save_is_given_up_with_a_reason(dashboard: Dashboard, served: Served) -> None:
    with served.connect() as client:
        checkpoint = Launch(client, "given/up", world_size=2).open(1)
    page = dashboard.open("/saves?project=given", heading="Saves in progress")
    page.get_by_role("button", name="Abort the save of step 1 of given/up").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("button", name="Abort the save")).to_be_disabled()
    dialog.get_by_label("Reason, told to every rank").fill("a node is gone")
    dialog.get_by_role("button", name="Abort the save").click()
    expect(page.get_by_text("Nothing of given is being saved now")).to_be_visible()
    with served.connect() as client:
        abort = client.checkpoint(checkpoint).info.abort
    assert abort is not None
    assert "a node is gone" in abort.reason
