"""One checkpoint: what is in it, how it differs from another, and what can be done with it."""

from __future__ import annotations

import math
import re

import pytest
from playwright.sync_api import Page, expect

from shardkeep.errors import CheckpointNotCommitted
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.launches import MARKUP, TENSORS, Launch
from tests.browser.refusals import REQUEST_ID, Held, refuse
from tests.browser.served import Served
from tests.browser.tables import row, row_names, table

HEADING = "Step 400 of demo/transformer"


@pytest.fixture
def own(served: Served, request: pytest.FixtureRequest) -> tuple[str, str]:
    """Two committed checkpoints of a run of this test alone, steps 1 and 2."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    with served.connect() as client:
        launch = Launch(client, f"own/{name}", world_size=1)
        first, second = launch.save(1), launch.save(2)
        launch.close()
    return first.id, second.id


def metric(page: Page, name: str) -> list[str]:
    return row(page, "Metrics", name).get_by_role("cell").all_inner_texts()


def test_E191_E192_metrics_that_json_cannot_write_are_shown_and_read_back_as_they_are(
    dashboard: Dashboard, served: Served
) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}", heading=HEADING)
    for name, shown in [("nan", "NaN"), ("up", "Infinity"), ("down", "-Infinity"), ("huge", "1.000e+308")]:
        assert metric(page, name) == [shown, shown], name
    assert metric(page, MARKUP) == ["1.5", "1.5"]
    with served.connect() as client:
        metrics = client.checkpoint(served.filled.latest).metrics
    assert math.isnan(metrics["nan"])
    assert (metrics["up"], metrics["down"]) == (math.inf, -math.inf)


def test_ranks_are_listed_and_filtered(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.aborted}?view=ranks")
    expect(row(page, "Ranks", "0")).to_contain_text("Arrived")
    expect(row(page, "Ranks", "1")).to_contain_text("Did not arrive")
    page.get_by_label("State", exact=True).select_option("absent")
    expect(row(page, "Ranks", "0")).to_have_count(0)
    expect(page).to_have_url(re.compile("rank_state=absent"))


def test_tensors_are_searched_in_the_url_and_their_slices_shown(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}?view=tensors", heading=HEADING)
    names = row_names(page, "Tensors, by name")
    assert set(TENSORS) <= set(names)
    page.get_by_label("Search tensors").fill("EXP_AVG".lower())
    expect(page).to_have_url(re.compile("search=exp_avg"))
    expect(table(page, "Tensors, by name").locator("tbody tr")).to_have_count(len(TENSORS))
    page.reload()
    expect(table(page, "Tensors, by name").locator("tbody tr")).to_have_count(len(TENSORS))
    page.get_by_label("Search tensors").fill(MARKUP)
    expect(row(page, "Tensors, by name", TENSORS[2])).to_contain_text("float32")
    page.get_by_role("button", name=f"Show the slices of {TENSORS[2]}", exact=True).click()
    slices = table(page, f"Slices of {TENSORS[2]}").locator("tbody tr")
    expect(slices).to_have_count(2)


def test_values_show_random_state_and_text_as_text(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}?view=values", heading=HEADING)
    expect(table(page, "State of random generators").locator("tbody tr")).to_have_count(2)
    expect(table(page, "Other values").get_by_text("</script><script>alert(400)</script>")).to_be_visible()
    page.get_by_label("Kind").select_option("random")
    expect(page).to_have_url(re.compile("kind=random"))
    expect(table(page, "Other values")).to_have_count(0)


def test_a_page_of_values_that_is_empty_so_far_is_not_taken_for_none(dashboard: Dashboard, served: Served) -> None:
    dashboard.page.route(
        "**/values?*kind=random*", lambda route: route.fulfill(json={"items": [], "next_cursor": "further"})
    )
    page = dashboard.open(f"/checkpoints/{served.filled.latest}?view=values", heading=HEADING)
    expect(page.get_by_text("None so far: the list goes on with further ranks")).to_be_visible()


def test_E189_a_pickle_is_shown_as_bytes_and_never_unpickled(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}?view=values&search=pickle", heading=HEADING)
    expect(row(page, "Other values", "notes.pickle")).to_be_visible()
    for path in ("", "?view=tensors", "?view=resume"):
        dashboard.open(f"/checkpoints/{served.filled.latest}{path}", heading=HEADING)
    dashboard.open(f"/checkpoints/{served.filled.latest}/differences/{served.filled.second}")
    assert not list(served.process.data_dir.parent.rglob("unpickled"))


def test_two_checkpoints_are_compared(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}", heading=HEADING)
    page.get_by_role("button", name="Compare").click()
    page.get_by_role("dialog").get_by_role("link", name="Compare with step 200").click()
    dashboard.settled(heading="Step 400 against step 200")
    differing = "Tensors that differ, by name"
    expect(table(page, differing).locator("tbody tr")).to_have_count(2 * len(TENSORS))
    assert set(TENSORS) <= set(row_names(page, differing))
    page.get_by_label("Search").fill("exp_avg")
    expect(page).to_have_url(re.compile("search=exp_avg"))
    expect(table(page, differing).locator("tbody tr")).to_have_count(len(TENSORS))


def test_two_that_are_swapped_are_not_shown_the_wrong_way_round_meanwhile(dashboard: Dashboard, served: Served) -> None:
    latest, second = served.filled.latest, served.filled.second
    page = dashboard.open(f"/checkpoints/{latest}/differences/{second}", heading="Step 400 against step 200")
    held = Held(page, f"**/v1/checkpoints/{second}/differences/{latest}*")
    page.get_by_role("link", name="Swap the two").click()
    title = page.get_by_role("heading", level=1)
    expect(title).to_have_text("Difference of two checkpoints")
    expect(page.get_by_label("Search tensors")).to_be_visible()
    expect(page.get_by_text("here only")).to_have_count(0)
    held.release()
    expect(title).to_have_text("Step 200 against step 400")


def test_equal_checkpoints_have_no_difference(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}/differences/{served.filled.latest}")
    expect(page.get_by_text("The two hold the same tensors, bit for bit")).to_be_visible()


def test_it_is_pinned_with_a_reason_and_unpinned(dashboard: Dashboard, served: Served, own: tuple[str, str]) -> None:
    page = dashboard.open(f"/checkpoints/{own[0]}")
    page.get_by_role("button", name="Pin", exact=True).click()
    page.get_by_role("dialog").get_by_label("Reason").fill(MARKUP)
    page.get_by_role("dialog").get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    expect(page.get_by_text(MARKUP, exact=True).first).to_be_visible()
    with served.connect() as client:
        assert client.checkpoint(own[0]).info.pin_reason == MARKUP
    page.get_by_role("button", name="Unpin").click()
    expect(page.get_by_role("button", name="Pin", exact=True)).to_be_visible()
    with served.connect() as client:
        assert not client.checkpoint(own[0]).info.pinned


def test_it_is_tagged_and_the_others_lose_the_tag(dashboard: Dashboard, served: Served, own: tuple[str, str]) -> None:
    with served.connect() as client:
        client.checkpoint(own[0]).tag("chosen")
    page = dashboard.open(f"/checkpoints/{own[1]}")
    page.get_by_role("button", name="Tag", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Tag", exact=True).fill(MARKUP)
    expect(dialog.get_by_role("button", name="Tag", exact=True)).to_be_disabled()
    dialog.get_by_label("Tag", exact=True).fill("chosen")
    dialog.get_by_label("Take the tag from the run's other checkpoints").check()
    dialog.get_by_role("button", name="Tag", exact=True).click()
    expect(page.get_by_role("list", name="Tags")).to_contain_text("chosen")
    with served.connect() as client:
        assert (client.checkpoint(own[0]).tags, client.checkpoint(own[1]).tags) == ([], ["chosen"])
    page.get_by_role("button", name="Take the tag chosen away").click()
    expect(page.get_by_role("list", name="Tags")).to_have_count(0)


def test_it_is_deleted_after_its_impact_was_told_and_its_step_typed_and_restored(
    dashboard: Dashboard, served: Served, own: tuple[str, str]
) -> None:
    page = dashboard.open(f"/checkpoints/{own[1]}")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("It is the latest. Without it step 1 is.")
    confirm = dialog.get_by_role("button", name="Delete", exact=True)
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type 2 to confirm").fill("2")
    confirm.click()
    expect(page.get_by_role("button", name="Restore")).to_be_visible()
    with served.connect() as client, pytest.raises(CheckpointNotCommitted):
        client.checkpoint(own[1]).manifest()
    page.get_by_role("button", name="Restore").click()
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_visible()
    with served.connect() as client:
        client.checkpoint(own[1]).manifest()


def test_a_pinned_one_cannot_be_deleted_and_the_dialog_says_so(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.second}")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text("pinned")
    dialog.get_by_label("Type 200 to confirm").fill("200")
    expect(dialog.get_by_role("button", name="Delete", exact=True)).to_be_disabled()


def test_it_is_not_deleted_while_it_is_not_known_what_that_means(
    dashboard: Dashboard, served: Served, own: tuple[str, str]
) -> None:
    page = dashboard.open(f"/checkpoints/{own[0]}")
    refuse(page, "**/impact")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type 1 to confirm").fill("1")
    confirm = dialog.get_by_role("button", name="Delete", exact=True)
    expect(confirm).to_have_accessible_description("What deleting it means is not known yet.")
    expect(dialog.get_by_role("alert")).to_contain_text(REQUEST_ID)
    expect(confirm).to_be_disabled()
    page.unroute("**/impact")
    dialog.get_by_role("button", name="Try again").click()
    expect(confirm).to_be_enabled()
    with served.connect() as client:
        assert client.checkpoint(own[0]).state == "committed"


def test_a_deletion_that_is_refused_after_its_dialog_was_closed_says_so(
    dashboard: Dashboard, own: tuple[str, str]
) -> None:
    page = dashboard.open(f"/checkpoints/{own[0]}")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type 1 to confirm").fill("1")
    held = Held(page, f"**/v1/checkpoints/{own[0]}", method="DELETE")
    with page.expect_request(lambda request: request.method == "DELETE"):
        dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("button", name="Close")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    held.refuse(code="checkpoint_pinned", title="Checkpoint is pinned", status=409)
    said = page.get_by_role("status").filter(has_text=REQUEST_ID)
    expect(said).to_contain_text(re.compile("Delete step 1 of own/.*Checkpoint is pinned"))


def test_a_change_of_somebody_else_meanwhile_is_not_overwritten(
    dashboard: Dashboard, served: Served, own: tuple[str, str]
) -> None:
    page = dashboard.open(f"/checkpoints/{own[0]}")
    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type 1 to confirm").fill("1")
    with served.connect() as client:
        checkpoint = client.checkpoint(own[0])
        checkpoint.pin("mine")
        checkpoint.unpin()
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("Changed meanwhile, look again")
    with served.connect() as client:
        assert client.checkpoint(own[0]).state == "committed"


def test_why_a_save_was_aborted_is_told(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.aborted}")
    expect(page.get_by_role("heading", name="Why it was aborted")).to_be_visible()
    expect(page.get_by_text(f"rank 1 is gone {MARKUP}", exact=False).first).to_be_visible()


def test_E204_a_damaged_one_says_so_and_by_what(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.damaged}?view=damage")
    expect(page.get_by_text("It is quarantined: resuming passes it over.", exact=False)).to_be_visible()
    expect(page.locator("main dl").first).to_contain_text("Quarantined")
    expect(table(page, "What was found damaged or lost")).to_contain_text(served.filled.damaged_digest[:12])
    dashboard.open("/runs/demo/damaged", heading="demo/damaged")
    expect(row(page, "Checkpoints of the run, newest first", "2")).to_contain_text("Quarantined")


def test_snippets_name_this_checkpoint(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.latest}?view=resume", heading=HEADING)
    expect(page.get_by_role("region", name="training snippet")).to_contain_text(served.filled.latest)


@pytest.mark.parametrize("scope", ["read", "write"])
def test_one_who_may_not_is_told_so(open_dashboard: OpenDashboard, served: Served, scope: str) -> None:
    page = open_dashboard(getattr(served.filled.tokens, scope)).open(f"/checkpoints/{served.filled.latest}")
    expect(page.get_by_role("button", name="Delete", exact=True)).to_be_disabled()
    pin = page.get_by_role("button", name="Pin", exact=True)
    if scope == "read":
        expect(pin).to_be_disabled()
    else:
        expect(pin).to_be_enabled()


def test_the_heading_of_one_that_is_gone_to_has_the_focus_once_it_is_there(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs/demo/transformer", heading="demo/transformer")
    row(page, "Checkpoints of the run, newest first", "400").get_by_role("link", name="400").click()
    dashboard.settled(heading=HEADING)
    expect(page.get_by_role("heading", level=1)).to_be_focused()


def test_what_goes_wrong_later_is_said_above_what_is_known(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"/checkpoints/{served.filled.open}", heading="Step 7 of demo/saving")
    refuse(page, f"**/v1/checkpoints/{served.filled.open}")
    expect(page.get_by_role("alert")).to_contain_text(REQUEST_ID)
    expect(page.get_by_role("heading", name="Step 7 of demo/saving")).to_be_visible()
    expect(page.get_by_role("heading", name="What it is")).to_be_visible()


def test_one_that_is_not_there_is_an_error_with_the_request_id(dashboard: Dashboard) -> None:
    page = dashboard.open(f"/checkpoints/ckp_{'0' * 32}", heading="Checkpoint")
    expect(page.get_by_role("alert")).to_contain_text("unknown_checkpoint")
    expect(page.get_by_role("alert").locator("code").nth(1)).to_have_text(re.compile(r"^[\w.-]{8,64}$"))
