from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from shardkeep.errors import FormatError
from shardkeep.format.segments import ValueRecord
from shardkeep.format.values import decode_value, encode_value
from shardkeep.store.stored_values import ReadableValues, readable_values, stored_aliases


@dataclass(frozen=True)
class Report:
    per_rank_values: Sequence[str] = ()
    values_of_some_ranks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Saved:
    values: Sequence[ValueRecord]


class Ranks:
    """What each rank saved; notes whose manifest is read and which values are decoded."""

    def __init__(self, *saved: dict[str, Any], per_rank: Sequence[str] = ()) -> None:
        self.saved = [
            Saved([ValueRecord(path, encode_value(value), path in per_rank) for path, value in values.items()])
            for values in saved
        ]
        self.read: list[int] = []
        self.decoded: list[str] = []

    def manifest(self, rank: int) -> Saved:
        self.read.append(rank)
        return self.saved[rank]

    def decode(self, record: ValueRecord) -> Any:
        self.decoded.append(record.path)
        return decode_value(record.encoded)

    def readable(self, report: Report | None, *, rank: int | None) -> ReadableValues:
        return readable_values(self.manifest, report, self.decode, rank=rank)


def test_a_rank_of_the_saved_world_gets_its_own_values_and_those_only_others_have() -> None:
    ranks = Ranks({"a": 0, "stage.0": "x"}, {"a": 1, "rng": 7}, {"a": 2, "stage.2": "z"}, per_rank=["rng"])
    report = Report(["a"], {"stage.0": 0, "stage.2": 2})

    assert dict(ranks.readable(report, rank=1)) == {("a",): 1, ("rng",): 7, ("stage", "0"): "x", ("stage", "2"): "z"}


def test_a_rank_of_another_world_gets_what_is_global_and_is_told_what_is_withheld() -> None:
    ranks = Ranks(
        {"a": 0, "both": 5, "rng": 7}, {"a": 1, "both": 5, "codes": 9, "stage.1": "y"}, per_rank=["rng", "codes"]
    )

    values = ranks.readable(Report(["a", "codes"], {"stage.1": 1}), rank=None)

    assert dict(values) == {("both",): 5, ("stage", "1"): "y"}
    assert values.withheld == {("a",), ("rng",), ("codes",)}
    assert ("a",) not in values


def test_with_values_equal_on_all_ranks_only_one_manifest_is_read_and_only_what_is_asked_for_decoded() -> None:
    ranks = Ranks(*[{"a": 0, "b": 1}] * 1024)

    values = ranks.readable(Report(), rank=None)

    assert list(values) == [("a",), ("b",)]
    assert values[("b",)] == values[("b",)] == 1
    assert (ranks.read, ranks.decoded) == ([0], ["b"])


def test_the_manifest_of_another_rank_is_read_when_one_of_its_values_is_looked_up() -> None:
    ranks = Ranks({"a": 0}, {"b": 1}, {"c": 2})
    values = ranks.readable(Report((), {"b": 1, "c": 2}), rank=None)

    assert len(values) == 3
    assert ("c",) in values
    assert ranks.read == [0]
    assert values[("c",)] == 2
    assert ranks.read == [0, 2]
    assert values.record(("a",)).path == "a"


def test_a_holder_that_does_not_have_the_value_is_a_format_error_naming_it() -> None:
    values = Ranks({"a": 0}, {}).readable(Report((), {"b": 1}), rank=None)

    with pytest.raises(FormatError, match="rank 1 is said to have the value 'b'"):
        values[("b",)]


def test_aliases_of_all_ranks_are_merged_and_a_whole_dict_of_them_is_read_too() -> None:
    values = {("@aliases",): {"x": "y"}, ("@aliases", "0"): {"head": "embed"}, ("@aliased",): {"no": "no"}}

    assert stored_aliases(values) == {"x": "y", "head": "embed"}
