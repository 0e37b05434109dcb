"""Files in, files out: the same bytes."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from shardkeep.format.segments import SliceKind
from tests.integration.cli.command_line import Array, CommandLine, save, whole

rng = np.random.default_rng(7)


def model() -> dict[str, Array]:
    return {
        "model.layers.0.weight": rng.standard_normal((700, 600)).astype(np.float32),
        "model.layers.0.bias": rng.standard_normal(600).astype(np.float16),
        "model.steps": np.array(12),
        "model.empty": np.zeros((0, 4), np.float32),
        "mask": np.array([True, False, True]),
    }


def pulled(directory: Path) -> dict[str, Array]:
    index = json.loads((directory / "model.safetensors.index.json").read_text())
    found: dict[str, Array] = {}
    for name in sorted(set(index["weight_map"].values())):
        found |= load_file(directory / name)
    assert set(found) == set(index["weight_map"])
    return found


def assert_equal(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name


@pytest.fixture
def model_file(tmp_path: Path) -> tuple[Path, dict[str, Array]]:
    arrays = model()
    save_file(arrays, tmp_path / "in.safetensors", metadata={"author": "someone"})
    return tmp_path / "in.safetensors", arrays


def test_a_file_pushed_and_pulled_has_the_same_bytes(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]], tmp_path: Path
) -> None:
    path, arrays = model_file
    pushed = shardkeep.ok("push", path, "push/one", "--step", 5, "--json").document
    assert (pushed["already_there"], pushed["checkpoint"]["step"]) == (False, 5)
    assert json.loads(pushed["checkpoint"]["environment"]["source_metadata"]) == {"author": "someone"}
    done = shardkeep.ok("pull", "push/one", tmp_path / "out", "--json").document
    assert done["checkpoint_id"] == pushed["checkpoint"]["id"]
    assert_equal(pulled(tmp_path / "out"), arrays)
    with shardkeep.client() as client:
        tensor = client.run("push/one").checkpoint(5).tensor("model.layers.0.weight")
        assert np.array_equal(np.asarray(tensor[3:5]), arrays["model.layers.0.weight"][3:5])


def test_shards_pulled_can_be_pushed_again_and_show_no_difference(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]], tmp_path: Path
) -> None:
    path, arrays = model_file
    shardkeep.ok("push", path, "shards/a", "--step", 1)
    done = shardkeep.ok("pull", "shards/a", tmp_path / "out", "--max-shard-size", "1MB", "--json").document
    assert len(done["files"]) > 1
    assert_equal(pulled(tmp_path / "out"), arrays)
    shardkeep.ok("push", tmp_path / "out", "shards/b", "--step", 1)
    found = shardkeep.ok("diff", "shards/a", "shards/b@1", "--json").document
    assert found["identical"]
    assert found["reused_bytes"] == found["bytes"] == sum(array.nbytes for array in arrays.values())


def test_a_push_repeated_finds_what_is_there(shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]]) -> None:
    path, _ = model_file
    first = shardkeep.ok("push", path, "again/r", "--step", 1, "--json").document
    second = shardkeep.ok("push", path, "again/r", "--step", 1, "--json").document
    assert (first["checkpoint"]["id"], second["already_there"]) == (second["checkpoint"]["id"], True)


def test_a_push_that_was_interrupted_can_be_repeated(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]]
) -> None:
    from shardkeep.cli.import_plan import launch_id_of, plan_import
    from shardkeep.cli.safetensors_source import TensorSource
    from shardkeep.store.world import World

    path, _ = model_file
    with TensorSource(path) as source, shardkeep.client() as client:
        launch_id = launch_id_of("cut/r", 1, plan_import(source), lambda _: None)
        attempt = client.run("cut/r").begin_attempt(World(0, 1, launch_id), 0)
        attempt.decide_resume(fresh=True)
        attempt.start_save(1, expected_bytes=10).abort("killed")
        attempt.wait_in_flight()
    assert shardkeep.ok("push", path, "cut/r", "--step", 1, "--json").document["already_there"] is False
    assert shardkeep.ok("show", "cut/r", "--json").document["checkpoint"]["step"] == 1


def test_a_run_in_use_is_refused_and_a_new_attempt_must_be_asked_for(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]], tmp_path: Path
) -> None:
    path, arrays = model_file
    shardkeep.ok("push", path, "used/r", "--step", 1)
    save_file({**arrays, "mask": np.array([False])}, tmp_path / "other.safetensors")
    refused = shardkeep("push", tmp_path / "other.safetensors", "used/r", "--step", 2, "--json")
    assert (refused.code, refused.error["code"]) == (4, "run_in_use")
    assert "--new-attempt" in refused.error["message"]
    shardkeep.ok("push", tmp_path / "other.safetensors", "used/r", "--step", 2, "--new-attempt")
    assert shardkeep.ok("show", "used/r", "--json").document["checkpoint"]["step"] == 2


@pytest.mark.parametrize(
    ("content", "message"), [(b"not a tensor", "safetensors"), (b"\x02\0\0\0\0\0\0\0{}x", "belong to no tensor")]
)
def test_a_malformed_file_is_refused_before_the_service_is_asked(
    shardkeep: CommandLine, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "bad.safetensors").write_bytes(content)
    done = shardkeep("push", tmp_path / "bad.safetensors", "bad/r", "--step", 1)
    assert (done.code, message in done.err, "bad.safetensors" in done.err) == (1, True, True)
    assert shardkeep("ls", "bad/r").code == 3


def test_a_prefix_pulls_a_part_and_an_unknown_one_is_not_found(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]], tmp_path: Path
) -> None:
    path, _ = model_file
    shardkeep.ok("push", path, "part/r", "--step", 1)
    shardkeep.ok("pull", "part/r", tmp_path / "out", "--prefix", "model.layers", "--strip-prefix")
    assert set(pulled(tmp_path / "out")) == {"0.weight", "0.bias"}
    assert not (tmp_path / "out" / "values.json").exists()
    assert shardkeep("pull", "part/r", tmp_path / "none", "--prefix", "optimizer").code == 3
    assert not (tmp_path / "none").exists()


def test_a_directory_with_files_is_refused_unless_overwrite_is_given(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]], tmp_path: Path
) -> None:
    path, arrays = model_file
    shardkeep.ok("push", path, "over/r", "--step", 1)
    shardkeep.ok("pull", "over/r", tmp_path / "out", "--max-shard-size", "1MB")
    assert shardkeep("pull", "over/r", tmp_path / "out").code == 4
    shardkeep.ok("pull", "over/r", tmp_path / "out", "--overwrite")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "model.safetensors", "model.safetensors.index.json", "values.json",
    }  # fmt: skip
    assert_equal(pulled(tmp_path / "out"), arrays)


def test_E104_E105_E108_a_tie_is_written_once_under_the_kept_name_with_its_aliases(
    shardkeep: CommandLine, tmp_path: Path
) -> None:
    weight = rng.standard_normal((100, 8)).astype(np.float32)
    with shardkeep.client() as client:
        save(
            client,
            "tie/r",
            1,
            [[whole("model.embed.weight", weight)]],
            {("@aliases",): {"model.head.weight": "model.embed.weight"}},
        )
    done = shardkeep.ok("pull", "tie/r", tmp_path / "out", "--json").document
    assert done["aliases"] == {"model.head.weight": "model.embed.weight"}
    assert_equal(pulled(tmp_path / "out"), {"model.embed.weight": weight})
    shardkeep.ok("push", tmp_path / "out", "tie/again", "--step", 1)
    again = shardkeep.ok("pull", "tie/again", tmp_path / "again", "--json").document
    assert again["aliases"] == {"model.head.weight": "model.embed.weight"}
    options = ("--prefix", "model", "--strip-prefix", "--json")
    assert shardkeep.ok("pull", "tie/r", tmp_path / "stripped", *options).document["aliases"] == {
        "head.weight": "embed.weight"
    }


def test_E107_experts_staged_from_one_reused_buffer_stay_apart(shardkeep: CommandLine, tmp_path: Path) -> None:
    experts = {f"experts.{number}.w": np.full((16, 16), number, np.float32) for number in range(64)}
    with shardkeep.client() as client:
        save(client, "experts/r", 1, [[whole(name, array) for name, array in experts.items()]])
    shardkeep.ok("pull", "experts/r", tmp_path / "out")
    assert_equal(pulled(tmp_path / "out"), experts)


def test_E123_dtypes_that_safetensors_lacks_are_written_as_views_and_come_back(
    shardkeep: CommandLine, tmp_path: Path
) -> None:
    freqs = (rng.standard_normal(16) + 1j).astype(np.complex64)
    square = rng.standard_normal((2, 2)).astype(np.complex128)
    scale = rng.integers(0, 255, (3,), np.uint8)
    parts = [
        whole("freqs", freqs, kind=SliceKind.BUFFER),
        whole("square", square),
        whole("scale", scale, dtype="float8_e8m0fnu"),
    ]
    with shardkeep.client() as client:
        save(client, "dtypes/r", 1, [parts])
    done = shardkeep.ok("pull", "dtypes/r", tmp_path / "out", "--json")
    assert done.document["views"] == {"freqs": "complex64", "square": "complex128", "scale": "float8_e8m0fnu"}
    assert "complex64" in done.err
    found = pulled(tmp_path / "out")
    assert np.array_equal(found["freqs"], freqs.view(np.float32).reshape(16, 2))
    shardkeep.ok("push", tmp_path / "out", "dtypes/again", "--step", 1)
    assert shardkeep.ok("diff", "dtypes/r", "dtypes/again", "--json").document["identical"]


def test_E126_arrays_in_any_layout_are_written_row_major_with_their_values(
    shardkeep: CommandLine, tmp_path: Path
) -> None:
    base = rng.standard_normal((8, 5, 5, 3)).astype(np.float32)
    state: dict[str, Any] = {
        "channels_last": base.transpose(0, 3, 1, 2),
        "transposed": rng.standard_normal((6, 4)).T,
        "stepped": np.arange(20)[::2],
        "flipped": np.arange(7)[::-1],
        "expanded": np.broadcast_to(np.arange(5, dtype=np.float32), (4, 5)),
        "offset": np.arange(10)[3:],
    }
    with shardkeep.client() as client:
        client.run("layouts/r").save(1, state, fresh=True).wait(60)
    shardkeep.ok("pull", "layouts/r", tmp_path / "out")
    assert_equal(pulled(tmp_path / "out"), state)


def test_E209_E210_names_that_look_alike_are_written_apart(shardkeep: CommandLine, tmp_path: Path) -> None:
    names = ["caf\u00e9", "cafe\u0301", "a b", "a_b", "w/1", "w_1"]
    state: dict[str, Any] = {name: np.full(3, number) for number, name in enumerate(names)}
    state |= {"x.y": np.array([1]), "x": {"y": np.array([2])}}
    with shardkeep.client() as client:
        client.run("names/r").save(1, state, fresh=True).wait(60)
    done = shardkeep.ok("pull", "names/r", tmp_path / "out")
    found = pulled(tmp_path / "out")
    assert {name: int(found[name][0]) for name in names} == {name: number for number, name in enumerate(names)}
    assert (found["x.y"].tolist(), found["x\\.y"].tolist()) == ([2], [1])
    assert "stored names" in done.err
    shardkeep.ok("push", tmp_path / "out", "names/again", "--step", 1)
    assert shardkeep.ok("diff", "names/r", "names/again", "--json").document["identical"]


def test_E209_a_run_name_with_letters_outside_ascii_is_refused(
    shardkeep: CommandLine, model_file: tuple[Path, dict[str, Array]]
) -> None:
    for name in ("p/caf\u00e9", "p/cafe\u0301"):
        done = shardkeep("push", model_file[0], name, "--step", 1)
        assert (done.code, "cannot name a run" in done.err) == (2, True)


def test_values_are_written_as_json(shardkeep: CommandLine, tmp_path: Path) -> None:
    values = {("loop", "epoch"): 3, ("loop", "best"): float("nan"), ("big",): list(range(3)), ("t",): (1, 2)}
    with shardkeep.client() as client:
        save(client, "values/r", 4, [[whole("w", np.ones(2))]], values)
    shardkeep.ok("pull", "values/r", tmp_path / "out")
    document = json.loads((tmp_path / "out" / "values.json").read_text())
    assert document["step"] == 4
    assert document["values"] == {
        "loop.epoch": 3,
        "loop.best": {"$type": "float", "text": "nan"},
        "big": [0, 1, 2],
        "t": {"$type": "tuple", "items": [1, 2]},
    }


def test_a_value_big_enough_for_chunks_is_written_whole(shardkeep: CommandLine, tmp_path: Path) -> None:
    blob = rng.bytes(100_000)
    with shardkeep.client() as client:
        client.run("big/r").save(1, {"w": np.ones(2), "blob": blob}, fresh=True).wait(60)
    shardkeep.ok("pull", "big/r", tmp_path / "out")
    assert set(pulled(tmp_path / "out")) == {"w"}
    values = json.loads((tmp_path / "out" / "values.json").read_text())["values"]
    assert values["blob"] == {"$type": "bytes", "base64": base64.b64encode(blob).decode()}


def test_weights_leave_optimizer_state_and_values_out(shardkeep: CommandLine, tmp_path: Path) -> None:
    parts = [whole("model.w", np.ones(2)), whole("optimizer.model.w.exp_avg", np.ones(2), kind=SliceKind.OPTIMIZER)]
    with shardkeep.client() as client:
        save(client, "weights/r", 1, [parts], {("a",): 1})
    shardkeep.ok("pull", "weights/r", tmp_path / "out", "--weights")
    assert set(pulled(tmp_path / "out")) == {"model.w"}
    assert not (tmp_path / "out" / "values.json").exists()
