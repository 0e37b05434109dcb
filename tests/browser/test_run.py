"""One run: its checkpoints, times, attempts, and asking its training for a checkpoint."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import expect

from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.every_page import RUN
from tests.browser.launches import MARKUP, Launch
from tests.browser.served import Served
from tests.browser.tables import expect_rows, row, table
from tests.browser.traffic import requests_of
from tests.browser.training_loop import training

CHECKPOINTS = "Checkpoints of the run, newest first"
HEADING = "demo/transformer"


def test_the_timeline_shows_each_checkpoint_by_shape_and_words(dashboard: Dashboard) -> None:
    page = dashboard.open(RUN, heading=HEADING)
    expect_rows(page, CHECKPOINTS, ["500", "400", "300", "200", "100", "50"])
    for step, state in [("500", "Aborted"), ("400", "Committed"), ("50", "Deleted")]:
        badge = row(page, CHECKPOINTS, step).locator("[data-state]").first
        expect(badge).to_have_text(state)
        expect(badge.locator("svg path")).to_have_count(1)
    expect(row(page, CHECKPOINTS, "200")).to_contain_text("pinned")
    expect(row(page, CHECKPOINTS, "100")).to_contain_text("release-1")
    expect(row(page, CHECKPOINTS, "300")).to_contain_text("off the line")


def test_E191_a_run_whose_metrics_are_nan_and_infinite_is_shown(dashboard: Dashboard) -> None:
    page = dashboard.open(RUN, heading=HEADING)
    expect(row(page, CHECKPOINTS, "400")).to_contain_text("…")
    page.get_by_role("tab", name="Sizes and times").click()
    dashboard.settled(heading=HEADING)
    expect(page.get_by_role("heading", name="Ranks by save")).to_be_visible()


def test_the_list_is_filtered_in_the_url(dashboard: Dashboard) -> None:
    page = dashboard.open(RUN, heading=HEADING)
    page.get_by_label("State", exact=True).select_option("committed")
    expect_rows(page, CHECKPOINTS, ["400", "300", "200", "100"])
    page.get_by_label("On the line only").check()
    expect_rows(page, CHECKPOINTS, ["400", "200", "100"])
    page.get_by_label("From step").fill("150")
    page.get_by_label("To step").fill("250")
    page.get_by_label("To step").press("Enter")
    expect_rows(page, CHECKPOINTS, ["200"])
    page.reload()
    expect_rows(page, CHECKPOINTS, ["200"])
    page.go_back()
    expect_rows(page, CHECKPOINTS, ["400", "200", "100"])
    page.get_by_role("button", name="Show all checkpoints").click()
    page.get_by_label("Tag", exact=True).fill("best")
    page.get_by_label("Tag", exact=True).press("Enter")
    expect_rows(page, CHECKPOINTS, ["400"])
    page.get_by_role("button", name="Show all checkpoints").click()
    page.get_by_label("Pinned only").check()
    expect_rows(page, CHECKPOINTS, ["200"])


def test_attempts_tell_what_each_resumed_from_and_what_is_passed_over(dashboard: Dashboard) -> None:
    page = dashboard.open(RUN, heading=HEADING)
    page.get_by_role("tab", name="Attempts").click()
    expect(page).to_have_url(re.compile("view=attempts"))
    attempts = table(page, "Attempts, newest first").locator("tbody tr")
    expect(attempts).to_have_count(2)
    expect(attempts.nth(0)).to_contain_text("current")
    expect(attempts.nth(0)).to_contain_text("step 200 of attempt 1")
    expect(attempts.nth(1)).to_contain_text("nothing: it began anew")
    expect(attempts.nth(1)).to_contain_text(f"note={MARKUP}")
    expect(page.get_by_text("Newer ones are passed over:")).to_be_visible()
    passed_over = table(page, "Newer checkpoints that are passed over, and why").locator("tbody tr")
    expect(passed_over.first).to_contain_text("500")
    expect(passed_over.first).to_contain_text("Aborted")


def test_what_is_saved_meanwhile_is_what_the_next_attempt_resumes_from(dashboard: Dashboard, served: Served) -> None:
    with served.connect() as client:
        launch = Launch(client, "demo/followed", world_size=1)
        launch.save(1)
        page = dashboard.open("/runs/demo/followed?view=attempts", heading="demo/followed")
        expect(page.get_by_role("link", name="Step 1", exact=True)).to_be_visible()
        launch.save(2)
        launch.close()
        expect(page.get_by_role("link", name="Step 2", exact=True)).to_be_visible()


def test_a_run_that_is_not_there_is_asked_for_once(dashboard: Dashboard) -> None:
    dashboard.page.clock.install()
    asked = requests_of(dashboard.page)
    page = dashboard.open("/runs/demo/nothing", heading="demo/nothing")
    expect(page.get_by_role("alert")).to_contain_text("unknown_run")
    expect(page.get_by_role("button", name="Checkpoint now")).to_have_count(0)  # there is nothing to ask for
    asked.clear()
    page.clock.run_for(60_000)
    page.evaluate("fetch('/v1/token')")
    assert [url for url in asked if "/runs/demo/nothing" in url] == []


def test_the_attempt_of_the_address_is_chosen_in_the_filter_known_or_not(dashboard: Dashboard) -> None:
    attempt = f"att_{'0' * 32}"
    page = dashboard.open(f"{RUN}?attempt={attempt}", heading=HEADING)
    chosen = page.get_by_label("Attempt", exact=True)
    expect(chosen).to_have_value(attempt)
    expect(page.get_by_text("No checkpoint is like that")).to_be_visible()
    chosen.select_option("")
    expect_rows(page, CHECKPOINTS, ["500", "400", "300", "200", "100", "50"])


def test_the_heat_map_tells_which_rank_is_slow_or_missing(dashboard: Dashboard) -> None:
    page = dashboard.open(f"{RUN}?view=times", heading=HEADING)
    expect(page.get_by_role("heading", name="Ranks by save")).to_be_visible()
    ranks = "Ranks that are missing or slow, worst first"
    expect(row(page, ranks, "1")).to_contain_text("1 of 6")
    dashboard.open("/runs/demo/baseline?view=times", heading="demo/baseline")
    expect(page.get_by_text("No rank was missing or slow in these saves.")).to_be_visible()


def test_snippets_say_how_to_resume_on_this_service(dashboard: Dashboard, served: Served) -> None:
    page = dashboard.open(f"{RUN}?view=resume", heading=HEADING)
    expect(page.get_by_role("region", name="training snippet")).to_contain_text("demo/transformer")
    expect(page.get_by_role("region", name="shell commands")).to_contain_text(served.url)


def test_a_checkpoint_is_asked_for_twice_and_saved_once_at_the_next_step(
    dashboard: Dashboard, served: Served, tmp_path: Path
) -> None:
    with training("demo/asked", tmp_path, served.process.environment()) as job:
        page = dashboard.open("/runs/demo/asked", heading="demo/asked")
        button = page.get_by_role("button", name="Checkpoint now")
        button.click()
        status = page.locator("[data-save-request]")
        expect(status).to_have_attribute("data-save-request", "waiting")
        expect(status).to_contain_text("training takes it up at its next step")
        button.click()
        expect(page.get_by_text("A checkpoint has been asked for already; one request is enough.")).to_be_visible()
        job.tell("go")
        expect(status).to_have_attribute("data-save-request", "done")
        expect(status.get_by_role("status")).to_contain_text("is done")
        status.get_by_role("link", name="Show this checkpoint").click()
        dashboard.settled(heading=re.compile(r"^Step \d+ of demo/asked$"))
        with served.connect() as client:
            assert len(list(client.run("demo/asked").checkpoints())) == 1


def test_a_run_that_nothing_trains_cannot_be_asked(dashboard: Dashboard) -> None:
    page = dashboard.open("/runs/demo/untouched", heading="demo/untouched")
    page.get_by_role("button", name="Checkpoint now").click()
    expect(page.get_by_role("alert")).to_contain_text("no_attempt")


def test_one_who_may_only_read_cannot_ask(open_dashboard: OpenDashboard, served: Served) -> None:
    page = open_dashboard(served.filled.tokens.read).open(RUN, heading=HEADING)
    button = page.get_by_role("button", name="Checkpoint now")
    expect(button).to_be_disabled()
    expect(button).to_have_accessible_description("Needs a token with scope write; this one has read.")


def test_E153_saves_that_failed_are_counted_and_the_checkpoint_before_is_kept(
    dashboard: Dashboard, served: Served
) -> None:
    with served.connect() as client:
        launch = Launch(client, "demo/failing", world_size=1)
        launch.save(1, {"loss": 1.0})
        for step in (2, 3):
            client.service.abort(launch.open(step), rank=0, reason="the store cannot be reached")
    page = dashboard.open("/", heading="Overview")
    expect(page.get_by_text("Failed saves")).to_be_visible()
    expect(page.get_by_role("img", name="saves committed and 3 failed, by time")).to_be_visible()
    dashboard.open("/runs/demo/failing", heading="demo/failing")
    expect_rows(page, CHECKPOINTS, ["3", "2", "1"])
    expect(row(page, CHECKPOINTS, "3")).to_contain_text("Aborted")
    expect(row(page, CHECKPOINTS, "1")).to_contain_text("Committed")
    page.get_by_role("tab", name="Attempts").click()
    expect(page.get_by_role("link", name="Step 1", exact=True)).to_be_visible()
