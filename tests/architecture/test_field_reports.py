"""Every failure that others reported in the field, and that can happen at this stage, has a test that tries it here.

The list holds the ids of the field reports about saving, loading, resharding, consistency, resume and RNG, data order,
optimizer state, names, dtypes, scalars, empty shards, layouts, ties, concurrency, HTTP and the API, S3, access,
collection, memory, migrations, security and the dashboard. A test carries the id in its name.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

AREAS: Final = {
    "save": "E05 E17 E169 E176",
    "load": "E12 E56 E69 E184 E199 E200 E206",
    "reshard": "E31 E32 E34 E35 E37 E42 E93 E94 E203",
    "consistency": "E01 E02 E04 E06 E08 E09 E11 E13 E15 E16 E204 E205",
    "resume-rng": "E72 E73 E75 E76 E78 E79",
    "dataloader": "E58 E59 E61 E62 E64 E65 E67 E68 E71",
    "optimizer-state": "E21 E22 E25 E26 E28 E29 E38 E39 E44 E46 E49 E50 E53 E54",
    "names": "E132 E133 E135 E136 E209 E210",
    "dtype": "E43 E45 E122 E123 E125",
    "scalar/0-d": "E99 E100 E102 E103",
    "empty-shard": "E41 E92 E96 E97",
    "non-contiguous": "E126 E127",
    "tied-weights": "E104 E105 E107 E108",
    "concurrency": "E20 E51 E167 E168 E171 E172 E174 E175",
    "http": "E131 E159 E161 E162",
    "api": "E164 E165",
    "s3": "E139 E140 E142 E143 E145 E146 E148 E151 E153 E154 E156 E157 E211",
    "auth": "E149 E150 E188 E194",
    "gc": "E81 E82 E84 E85 E87 E88 E90 E91",
    "memory": "E177 E178 E180 E181 E183",
    "migration": "E24 E195",
    "security": "E186 E189",
    "dashboard": "E191 E192",
}

LATER: Final[dict[str, str]] = {}
"""Ids of the list that no test tries yet, each with the reason."""

PARTS_LATER: Final = {
    "E99": "a scalar on a GPU: no accelerator is needed to run the tests",
    "E167": "a pinned staging pool on a GPU: no accelerator is needed to run the tests",
    "E180": "a cap on the memory of a GPU: no accelerator is needed to run the tests; the process's own is capped",
    "E181": "saving from a GPU: no accelerator is needed to run the tests",
}
"""Parts of trials that come with a later part of Shardkeep; the rest of the trial is tried."""

TESTS: Final = Path(__file__).parents[1]


def names_of_tests() -> set[str]:
    names: set[str] = set()
    for path in TESTS.rglob("*.py"):
        tree = ast.parse(path.read_text())
        names.update(
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not _is_skipped(node)
        )
    return names


def _is_skipped(node: ast.FunctionDef) -> bool:
    return any(
        "skip" in ast.unparse(decorator) or "xfail" in ast.unparse(decorator) for decorator in node.decorator_list
    )


def ids() -> list[str]:
    return [found for area in AREAS.values() for found in area.split()]


def test_every_field_report_of_this_stage_has_a_test() -> None:
    tried = {part for name in names_of_tests() for part in name.split("_")}
    missing = [found for found in ids() if found not in tried and found not in LATER]
    assert not missing, f"no test carries these ids: {missing}"


def test_what_is_left_for_later_is_of_the_list_and_is_not_tried_yet() -> None:
    tried = {part for name in names_of_tests() for part in name.split("_")}
    assert set(LATER) <= set(ids())
    assert not set(LATER) & tried, "take these out of LATER"
    assert set(PARTS_LATER) <= set(ids()) - set(LATER)
    assert all({**LATER, **PARTS_LATER}.values())


def test_no_id_is_listed_twice() -> None:
    assert len(ids()) == len(set(ids())) == 136
