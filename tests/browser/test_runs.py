"""The list of runs: what is shown is in the URL, and what is done is done."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from shardkeep.connection.keeping_client import KeepingClient
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import PHONE, Dashboard
from tests.browser.launches import Launch
from tests.browser.refusals import Held
from tests.browser.served import Served
from tests.browser.tables import expect_rows, row, row_names, table
from tests.browser.traffic import ask_only_when_told
from tests.waiting import wait_until

NOTHING = "\N{EN DASH}"
BY_LAST_COMMIT = ["demo/saving", "demo/damaged", "demo/baseline", "demo/transformer"]
WITHOUT_COMMIT = ["demo/untouched", "spare/nothing"]
"""They come last, by their ids."""


def expect_all(page: Page) -> None:
    """Waits until all runs are listed, the last one that committed first."""
    last = re.compile(f"^({'|'.join(WITHOUT_COMMIT)})$")
    headers = table(page, "Runs").locator("tbody th")
    expect(headers).to_have_text([*BY_LAST_COMMIT, last, last], use_inner_text=True)


def test_each_run_shows_its_last_step_state_and_what_it_keeps(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    assert sorted(row_names(page, "Runs")) == sorted(BY_LAST_COMMIT + WITHOUT_COMMIT)
    for name, state, step, checkpoints in [
        ("demo/transformer", "Idle", "400", "4"),
        ("demo/saving", "Saving", "6", "1"),
        ("demo/untouched", "New", NOTHING, "0"),
    ]:
        cells = row(page, "Runs", name).get_by_role("cell")
        expect(cells.nth(0)).to_have_text(state)
        expect(cells.nth(1)).to_have_text(step)
        expect(cells.nth(3)).to_have_text(checkpoints)


def test_filters_are_in_the_url_and_survive_reload_and_back(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    page.get_by_label("Search").fill("DEMO/")
    expect(page).to_have_url(re.compile("search=DEMO"))
    page.get_by_label("State", exact=True).select_option("saving")
    expect(page).to_have_url(re.compile("state=saving"))
    expect_rows(page, "Runs", ["demo/saving"])
    page.reload()
    expect_rows(page, "Runs", ["demo/saving"])
    expect(page.get_by_label("Search")).to_have_value("DEMO/")
    page.go_back()
    expect_rows(page, "Runs", [*BY_LAST_COMMIT, "demo/untouched"])
    page.go_back()
    expect_all(page)
    expect(page.get_by_label("Search")).to_have_value("")


def test_runs_of_one_project_are_listed(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    page.get_by_label("Project", exact=True).fill("spare")
    page.get_by_label("Project", exact=True).press("Enter")
    expect_rows(page, "Runs", ["spare/nothing"])
    expect(page).to_have_url(re.compile("project=spare"))


def test_a_search_that_is_sent_after_a_pause_undoes_no_filter_that_was_chosen_meanwhile(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    page.get_by_label("Search").press_sequentially("base", delay=10)
    page.get_by_label("State", exact=True).select_option("idle")
    expect(page).to_have_url(re.compile("search=base"))
    expect(page).to_have_url(re.compile("state=idle"))
    expect_rows(page, "Runs", ["demo/baseline"])


def test_rows_of_the_filter_before_are_marked_until_those_of_the_new_one_are_there(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs", heading="Runs")
    held = Held(page, "**/v1/runs?*state=saving*")
    page.get_by_label("State", exact=True).focus()
    page.get_by_label("State", exact=True).select_option("saving")
    expect(page.locator("[aria-busy=true]").get_by_role("table", name="Runs")).to_be_visible()
    expect(page.get_by_label("State", exact=True)).to_be_focused()
    held.release()
    expect_rows(page, "Runs", ["demo/saving"])
    expect(page.locator("[aria-busy=true]")).to_have_count(0)


def test_what_is_saved_meanwhile_is_seen_without_a_reload(dashboard: Dashboard, served: Served) -> None:
    with served.connect() as client:
        launch = Launch(client, "demo/followed", world_size=1)
        launch.save(1)
        page = dashboard.open("/runs?search=followed", heading="Runs")
        last_step = row(page, "Runs", "demo/followed").get_by_role("cell").nth(1)
        expect(last_step).to_have_text("1")
        launch.save(2)
        launch.close()
        expect(last_step).to_have_text("2")
        client.run("demo/followed").delete()


def test_sorting_asks_the_service_and_is_told_to_assistive_technology(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs?project=demo", heading="Runs")
    step = table(page, "Runs").get_by_role("columnheader", name="Last step")
    with page.expect_response(re.compile(r"/v1/runs\?.*sort=last_step")):
        step.get_by_role("button").click()
    expect(step).to_have_attribute("aria-sort", "descending")
    expect(table(page, "Runs").locator("tbody th").first).to_have_text("demo/transformer")
    with page.expect_response(re.compile(r"/v1/runs\?.*order=asc")):
        step.get_by_role("button").click()
    expect(step).to_have_attribute("aria-sort", "ascending")
    page.reload()
    expect(step).to_have_attribute("aria-sort", "ascending")


def test_what_the_url_cannot_mean_is_left_out(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs?sort=nonsense&order=up&state=flying", heading="Runs")
    expect_all(page)


def test_a_cursor_of_another_list_is_refused_with_the_request_id(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs?cursor=not-a-cursor", heading="Runs")
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("invalid_cursor")
    expect(alert.locator("code").nth(1)).to_have_text(re.compile(r"^[\w.-]{8,64}$"))


def test_a_run_is_deleted_once_its_name_was_typed_and_restored_under_another(
    dashboard: Dashboard, served: Served
) -> None:
    with served.connect() as client:
        client.run("demo/doomed").save(1, {"n": 1}).wait(60)
    page = dashboard.open("/runs?search=doomed", heading="Runs")
    page.get_by_role("button", name="Delete run demo/doomed").click()
    dialog = page.get_by_role("dialog", name="Delete run demo/doomed?")
    confirm = dialog.get_by_role("button", name="Delete run")
    expect(confirm).to_be_disabled()
    confirm.click(force=True)
    dialog.get_by_label("Type demo/doomed to confirm").fill("demo/doom")
    expect(confirm).to_have_accessible_description("Type demo/doomed first.")
    with served.connect() as client:
        assert client.run("demo/doomed").info().deleted_at is None
    dialog.get_by_label("Type demo/doomed to confirm").fill("demo/doomed")
    confirm.click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("No run matches the filters")).to_be_visible()

    page.get_by_role("tab", name="Deleted").click()
    page.get_by_role("button", name="Restore run demo/doomed").click()
    restoring = page.get_by_role("dialog")
    restoring.get_by_label("Name").fill("saved")
    restoring.get_by_role("button", name="Restore run").click()
    expect(restoring).to_have_count(0)
    with served.connect() as client:
        latest = client.run("demo/saved").latest()
        assert latest is not None
        assert latest.step == 1


def test_a_deletion_that_is_refused_says_why_with_the_request_id(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs?search=transformer", heading="Runs")
    page.get_by_role("button", name="Delete run demo/transformer").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Type demo/transformer to confirm").fill("demo/transformer")
    with page.expect_response(re.compile("/v1/runs-by-id/")) as answered:
        dialog.get_by_role("button", name="Delete run").click()
    notice = dialog.get_by_role("alert")
    expect(notice).to_contain_text("checkpoint_pinned")
    expect(notice).to_contain_text(answered.value.headers["x-request-id"])


def test_a_table_that_goes_on_to_the_right_shows_it_until_its_end_is_reached(open_dashboard: OpenDashboard) -> None:
    page = open_dashboard(size=PHONE).open("/runs", heading="Runs")
    region = page.get_by_role("region", name="Runs")

    def fading() -> str:
        return str(region.evaluate("one => getComputedStyle(one).getPropertyValue('--more-to-the-right')"))

    wait_until(lambda: fading() == "40px")
    region.evaluate("one => one.scrollTo(one.scrollWidth, 0)")
    wait_until(lambda: fading() == "0px")
    region.evaluate("one => one.scrollTo(0, 0)")
    wait_until(lambda: fading() == "40px")
    page.set_viewport_size({"width": 1600, "height": 800})
    wait_until(lambda: fading() == "0px")


def test_a_run_that_changed_meanwhile_is_not_deleted(dashboard: Dashboard, served: Served) -> None:
    with served.connect() as client:
        run = client.run("demo/contended")
        run.save(1, {"n": 1}).wait(60)
        ask_only_when_told(dashboard.page)
        page = dashboard.open("/runs?search=contended", heading="Runs")
        page.get_by_role("button", name="Delete run demo/contended").click()
        deleted = run.delete()
        KeepingClient(client.service.transport).restore_run(deleted.id, deleted.version)
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Type demo/contended to confirm").fill("demo/contended")
        dialog.get_by_role("button", name="Delete run").click()
        expect(dialog.get_by_role("alert")).to_contain_text("Changed meanwhile, look again")
        assert run.info().deleted_at is None


@pytest.mark.parametrize("scope", ["read", "write"])
def test_one_who_may_not_delete_is_told_so_before_they_try(
    open_dashboard: OpenDashboard, served: Served, scope: str
) -> None:
    page = open_dashboard(getattr(served.filled.tokens, scope)).open("/runs?search=baseline", heading="Runs")
    button = page.get_by_role("button", name="Delete run demo/baseline")
    expect(button).to_be_disabled()
    expect(button).to_have_accessible_description(f"Needs a token with scope delete; this one has {scope}.")
