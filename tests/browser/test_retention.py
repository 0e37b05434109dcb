"""Retention: edited, tried out with reasons, saved and applied."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from shardkeep.connection.keeping_client import KeepingClient
from shardkeep.protocol.messages import RetentionRules
from tests.browser.conftest import OpenDashboard
from tests.browser.dashboard import Dashboard
from tests.browser.launches import MARKUP, Launch
from tests.browser.refusals import REQUEST_ID, refuse
from tests.browser.served import Served
from tests.browser.tables import table

VERDICTS = "Verdicts, those to be deleted first"


@pytest.fixture
def run(served: Served, request: pytest.FixtureRequest) -> str:
    """The name of a run of `kept` with four checkpoints, of this test alone."""
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_"))[:60].strip("-")
    with served.connect() as client:
        launch = Launch(client, f"kept/{name}", world_size=1)
        for step in (100, 200, 300, 400):
            launch.save(step, {"loss": step / 100})
        launch.close()
    return name


def steps_left(served: Served, run: str) -> list[int]:
    with served.connect() as client:
        return sorted(found.step for found in client.run(f"kept/{run}").checkpoints(state="committed"))


def try_rules(page: Page, keep_last: str) -> None:
    page.get_by_label("Keep the last").fill(keep_last)
    page.get_by_role("button", name="Try these rules").click()
    expect(table(page, VERDICTS)).to_be_visible()


def save_policy(page: Page, place: str, deleted: str) -> None:
    """Saves what is in the form, of which the dialog tells what it would delete: `2 checkpoints`."""
    page.get_by_role("button", name="Save policy").click()
    dialog = page.get_by_role("dialog", name=f"Set the policy of {place}?")
    expect(dialog).to_contain_text(f"{deleted} would be deleted at the worker")
    confirm = dialog.get_by_role("button", name="Set policy")
    expect(confirm).to_be_disabled()
    dialog.get_by_label(f"Type {place} to confirm").fill(place)
    confirm.click()


def test_a_dry_run_tells_every_reason_and_deletes_nothing(dashboard: Dashboard, served: Served, run: str) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    expect(page.get_by_text("No policy: everything is kept")).to_be_visible()
    expect(page.get_by_text(f"shardkeep retention set kept/{run} --keep-last 3").first).to_be_visible()
    try_rules(page, "1")
    expect(table(page, VERDICTS).locator("tbody tr").filter(has_text="To be deleted")).to_have_count(3)
    kept = table(page, VERDICTS).locator("tbody tr").filter(has_text="Kept")
    expect(kept).to_have_count(1)
    expect(kept.get_by_role("listitem").filter(has_text="1 of the last 1")).to_be_visible()
    expect(page).to_have_url(re.compile("dry=edited"))
    page.reload()
    expect(table(page, VERDICTS).locator("tbody tr").filter(has_text="To be deleted")).to_have_count(3)
    page.get_by_label("Show").select_option("kept")
    expect(table(page, VERDICTS).locator("tbody tr")).to_have_count(1)
    assert steps_left(served, run) == [100, 200, 300, 400]


def test_a_policy_is_saved_and_applied_once_the_place_was_typed(dashboard: Dashboard, served: Served, run: str) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    apply = page.get_by_role("button", name="Apply now")
    expect(apply).to_be_disabled()
    try_rules(page, "2")
    save_policy(page, f"kept/{run}", "2 checkpoints")
    expect(page.get_by_text(f"The policy of kept/{run} is set.", exact=False)).to_be_visible()
    assert steps_left(served, run) == [100, 200, 300, 400]
    apply.click()
    dialog = page.get_by_role("dialog", name=f"Apply retention to kept/{run} now?")
    expect(dialog).to_contain_text("2 checkpoints would be deleted now")
    dialog.get_by_label(f"Type kept/{run} to confirm").fill(f"kept/{run}")
    dialog.get_by_role("button", name="Delete what is not kept").click()
    applied = page.get_by_role("dialog", name="Applied")
    expect(table(page, "Checkpoints that were deleted").locator("tbody tr")).to_have_count(2)
    applied.get_by_role("button", name="Close").click()
    assert steps_left(served, run) == [300, 400]


def test_rules_that_make_no_sense_are_told_and_not_sent(dashboard: Dashboard, served: Served, run: str) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    page.get_by_role("button", name="Try these rules").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.get_by_label("Keep the last").fill("none")
    page.get_by_label("Keep younger than").fill("a while")
    page.get_by_role("button", name="Save policy").click()
    for label in ("Keep the last", "Keep younger than"):
        expect(page.get_by_label(label)).to_have_attribute("aria-invalid", "true")
    with served.connect() as client:
        assert client.run(f"kept/{run}").retention().policy is None


def test_a_policy_that_somebody_else_changes_meanwhile_is_not_overwritten(
    dashboard: Dashboard, served: Served, run: str
) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    page.get_by_label("Keep the last").fill("1")
    with served.connect() as client:
        client.run(f"kept/{run}").set_retention(RetentionRules(keep_last=4))
        save_policy(page, f"kept/{run}", "3 checkpoints")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("meanwhile")
        policy = client.run(f"kept/{run}").retention().policy
    assert policy is not None
    assert policy.rules.keep_last == 4


def test_a_policy_that_somebody_else_changes_meanwhile_is_not_removed(
    dashboard: Dashboard, served: Served, run: str
) -> None:
    with served.connect() as client:
        client.run(f"kept/{run}").set_retention(RetentionRules(keep_last=4))
        page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
        page.get_by_role("button", name="Remove policy").click()
        client.run(f"kept/{run}").set_retention(RetentionRules(keep_last=3))
        dialog = page.get_by_role("dialog")
        dialog.get_by_role("button", name="Remove policy").click()
        expect(dialog.get_by_role("alert")).to_contain_text("Changed meanwhile, look again")
        policy = client.run(f"kept/{run}").retention().policy
    assert policy is not None
    assert policy.rules.keep_last == 3


def test_a_policy_that_deletes_nothing_is_saved_without_typing(dashboard: Dashboard, served: Served, run: str) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    page.get_by_label("Keep the last").fill("4")
    page.get_by_role("button", name="Save policy").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Nothing would be deleted: 4 checkpoints stay.")
    dialog.get_by_role("button", name="Set policy").click()
    expect(dialog).to_have_count(0)
    with served.connect() as client:
        policy = client.run(f"kept/{run}").retention().policy
    assert policy is not None
    assert policy.rules.keep_last == 4


@pytest.mark.parametrize("doing", ["Save policy", "Apply now"])
def test_nothing_is_decided_while_it_is_not_known_what_it_deletes(
    dashboard: Dashboard, served: Served, run: str, doing: str
) -> None:
    with served.connect() as client:
        client.run(f"kept/{run}").set_retention(RetentionRules(keep_last=2))
    page = dashboard.open(f"/retention/kept?run={run}&dry=in_force", heading=f"Retention of kept/{run}")
    expect(table(page, VERDICTS)).to_be_visible()
    page.get_by_label("Keep the last").fill("1")
    refuse(page, "**/retention/plan")
    page.get_by_role("button", name=doing).click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("alert")).to_contain_text(REQUEST_ID)
    confirm = dialog.get_by_role("button", name=re.compile("^(Set policy|Delete what is not kept)$"))
    expect(confirm).to_be_disabled()
    expect(confirm).to_have_accessible_description("What would be deleted is not known yet.")


def test_back_brings_the_rules_of_the_address_into_the_form(dashboard: Dashboard, run: str) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    fields = page.get_by_label("Keep the last")
    try_rules(page, "1")
    expect(page.get_by_text("the newest 1 on the line")).to_be_visible()
    try_rules(page, "3")
    expect(page.get_by_text("the newest 3 on the line")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("the newest 1 on the line")).to_be_visible()
    expect(fields).to_have_value("1")
    page.get_by_role("button", name="Discard edits").click()
    expect(fields).to_have_value("")
    expect(page).not_to_have_url(re.compile("rules="))


def test_what_is_pinned_after_a_dry_run_is_kept_by_it(dashboard: Dashboard, run: str) -> None:
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    try_rules(page, "3")
    expect(page.get_by_text(re.compile(r"As of (just now|\d+ (s|min) ago)\."))).to_be_visible()
    doomed = table(page, VERDICTS).locator("tbody tr").filter(has_text="To be deleted")
    expect(doomed).to_have_count(1)
    doomed.get_by_role("link").first.click()
    dashboard.settled(heading=f"Step 100 of kept/{run}")
    page.get_by_role("button", name="Pin", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Pin", exact=True).click()
    expect(page.get_by_role("button", name="Unpin")).to_be_visible()
    page.go_back()
    dashboard.settled(heading=f"Retention of kept/{run}")
    expect(table(page, VERDICTS).locator("tbody tr").filter(has_text="Kept")).to_have_count(4)


def test_removing_the_policy_of_a_run_tells_what_that_of_its_project_deletes(
    dashboard: Dashboard, served: Served
) -> None:
    with served.connect() as client:
        launch = Launch(client, "stricter/run", world_size=1)
        for step in (1, 2, 3):
            launch.save(step)
        launch.close()
        keeping = KeepingClient(client.service.transport)
        keeping.set_policy("stricter", "run", RetentionRules(keep_last=3))
        keeping.set_policy("stricter", None, RetentionRules(keep_last=1))
    page = dashboard.open("/retention/stricter?run=run", heading="Retention of stricter/run")
    page.get_by_role("button", name="Remove policy").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("2 checkpoints would be deleted at the worker")
    confirm = dialog.get_by_role("button", name="Remove policy")
    expect(confirm).to_be_disabled()
    dialog.get_by_label("Type stricter/run to confirm").fill("stricter/run")
    confirm.click()
    expect(page.get_by_text("The run has no policy of its own", exact=False)).to_be_visible()


def test_a_policy_is_removed(dashboard: Dashboard, served: Served, run: str) -> None:
    with served.connect() as client:
        KeepingClient(client.service.transport).set_policy("kept", run, RetentionRules(keep_last=4))
    page = dashboard.open(f"/retention/kept?run={run}", heading=f"Retention of kept/{run}")
    page.get_by_role("button", name="Remove policy").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Project kept has no policy: then everything of this run is kept.")
    dialog.get_by_role("button", name="Remove policy").click()
    expect(page.get_by_text("No policy: everything is kept")).to_be_visible()


def test_names_of_metrics_are_text(dashboard: Dashboard) -> None:
    page = dashboard.open("/retention/demo", heading="Retention of demo")
    expect(page.get_by_label("Metric", exact=True)).to_have_value(MARKUP)
    expect(page.get_by_role("listitem").filter(has_text=MARKUP)).to_be_visible()


def test_a_writer_may_try_rules_and_not_set_them(open_dashboard: OpenDashboard, served: Served, run: str) -> None:
    page = open_dashboard(served.filled.tokens.write).open(f"/retention/kept?run={run}")
    try_rules(page, "1")
    for button in ("Save policy", "Apply now"):
        expect(page.get_by_role("button", name=button)).to_be_disabled()
