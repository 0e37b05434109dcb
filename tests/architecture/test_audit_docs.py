"""The actions that docs/access.md explains and the dashboard's filter suggests are those that the service records."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
ACTIONS_FILE = ROOT / "service/dashboard/src/pages/audit/actions.ts"
RECORDERS = {"record", "_record", "_note", "_change"}
"""What writes an entry, and what hands an action on to it."""
ACTION = re.compile(r"[a-z_]+\.[a-z_]+")


def test_the_filter_of_the_dashboard_suggests_every_action_and_no_other() -> None:
    suggested = set(re.findall(r"'([^']+)'", ACTIONS_FILE.read_text()))
    actions = set(recorded())
    assert {each for each in suggested if "." in each} == actions
    assert {each for each in suggested if "." not in each} == {action.partition(".")[0] for action in actions}


def test_the_page_about_access_names_every_action_and_no_other() -> None:
    assert documented() == set(recorded())


def recorded() -> Iterator[str]:
    """The literals `noun.verb` among the arguments of calls that record."""
    for path in sorted((ROOT / "service/shardkeep_service").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or _name_of(node.func) not in RECORDERS:
                continue
            for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
                if isinstance(argument, ast.Constant) and ACTION.fullmatch(str(argument.value)):
                    yield str(argument.value)


def _name_of(called: ast.expr) -> str:
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def documented() -> set[str]:
    """The actions of the table, where `.verb` has the noun of the action before it."""
    _, _, rest = (ROOT / "docs/access.md").read_text().partition("| actions | |\n|---|---|\n")
    table = rest.partition("\n\n")[0]
    found, noun = set(), ""
    for row in table.splitlines():
        for noun_named, verb in re.findall(r"`([a-z_]*)\.([a-z_]+)`", row.split("|")[1]):
            noun = noun_named or noun
            found.add(f"{noun}.{verb}")
    return found
