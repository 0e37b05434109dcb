"""Damage in stored bytes is found and named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from shardkeep.format.regions import Region
from tests.integration.cli.command_line import CommandLine, Part, save, stored_chunks, whole

rng = np.random.default_rng(11)


@pytest.fixture
def before(shardkeep: CommandLine) -> set[Path]:
    return set(stored_chunks(shardkeep.service))


def new_chunks(shardkeep: CommandLine, before: set[Path]) -> list[Path]:
    found = [path for path in stored_chunks(shardkeep.service) if path not in before]
    assert found
    return found


def two_ranks() -> list[list[Part]]:
    array = rng.standard_normal((600, 1000)).astype(np.float32)
    halves = [Region((0, 0), (300, 1000)), Region((300, 0), (300, 1000))]
    return [[Part("model.w", (600, 1000), half, array[half.offsets[0] : half.ends[0]])] for half in halves]


def test_an_intact_checkpoint_of_several_ranks_verifies(shardkeep: CommandLine, before: set[Path]) -> None:
    with shardkeep.client() as client:
        save(client, "intact/r", 1, two_ranks())
    done = shardkeep.ok("verify", "intact/r", "--json").document
    assert (done["intact"], done["ranks"], done["damage"]) == (True, 2, [])
    assert done["chunks"] == len(new_chunks(shardkeep, before))
    assert done["segments"] == 4


def test_E204_a_flipped_bit_fails_and_names_tensor_region_rank_and_chunk(
    shardkeep: CommandLine, before: set[Path]
) -> None:
    with shardkeep.client() as client:
        checkpoint = save(client, "flip/r", 1, two_ranks())
        second = next(iter(checkpoint.slices_of(1, 2))).segments[0].chunk.digest
    (path,) = [path for path in new_chunks(shardkeep, before) if second in path.name]
    data = bytearray(path.read_bytes())
    data[1000] ^= 4
    path.chmod(0o600)
    path.write_bytes(data)
    done = shardkeep("verify", "flip/r", "--json")
    assert done.code == 1
    assert not done.document["intact"]
    assert done.document["reported"]
    (damage,) = {(item["tensor"], item["rank"], item["chunk"]) for item in done.document["damage"]}
    assert damage == ("model.w", 1, second)
    assert done.document["damage"][0]["regions"][0]["offsets"] == [300, 0]
    text = shardkeep("verify", checkpoint.id)
    assert (text.code, "tensor model.w [300:" in text.out, "rank 1" in text.out) == (1, True, True)


def test_E204_a_cut_chunk_fails_and_names_the_tensor(shardkeep: CommandLine, before: set[Path]) -> None:
    with shardkeep.client() as client:
        checkpoint = save(client, "short/r", 1, [[whole("w", rng.standard_normal(500_000).astype(np.float32))]])
    (path,) = new_chunks(shardkeep, before)
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-4096])
    done = shardkeep("verify", checkpoint.id, "--json")
    assert (done.code, {item["tensor"] for item in done.document["damage"]}) == (1, {"w"})


def test_E204_a_lost_chunk_fails_and_names_the_tensor(shardkeep: CommandLine, before: set[Path]) -> None:
    with shardkeep.client() as client:
        checkpoint = save(client, "lost/r", 1, [[whole("w", rng.standard_normal(5000))]])
    (path,) = new_chunks(shardkeep, before)
    path.unlink()
    done = shardkeep("verify", checkpoint.id, "--json")
    assert (done.code, {item["tensor"] for item in done.document["damage"]}) == (1, {"w"})


def test_E204_a_pull_of_damaged_bytes_fails_and_leaves_no_file(
    shardkeep: CommandLine, before: set[Path], tmp_path: Path
) -> None:
    with shardkeep.client() as client:
        checkpoint = save(client, "pulled/r", 1, [[whole("w", rng.standard_normal(5000))]])
    (path,) = new_chunks(shardkeep, before)
    data = bytearray(path.read_bytes())
    data[7] ^= 1
    path.chmod(0o600)
    path.write_bytes(data)
    done = shardkeep("pull", checkpoint.id, tmp_path / "out")
    assert (done.code, "w" in done.err) == (1, True)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_checkpoint_that_is_not_committed_is_not_found(shardkeep: CommandLine) -> None:
    with shardkeep.client() as client:
        checkpoint = save(client, "gone/r", 1, [[whole("w", np.ones(3))]])
    shardkeep.ok("rm", checkpoint.id, "--yes")
    assert shardkeep("verify", checkpoint.id).code == 3
