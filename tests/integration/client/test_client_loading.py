"""Loading plain states through a real service."""

from __future__ import annotations

import math
import os
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import shardkeep as sk
from shardkeep.errors import (
    CheckpointNotCommitted,
    DtypeMismatch,
    IntegrityError,
    MissingNames,
    NotFound,
    ShapeMismatch,
)
from shardkeep.format.load_plan import decode_load_plan, encode_load_plan
from shardkeep.format.regions import Region
from shardkeep.format.segments import SliceKind
from shardkeep.store.run import Run
from tests.faulty_proxy import Exchange, FaultyProxy, Reply
from tests.service_process import ServiceProcess

CHUNK = r"GET /v1/checkpoints/[^/]+/chunks/[0-9a-f]{64}"


def weights(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_state_comes_back_bit_equal(run: Run) -> None:
    state = {
        "model": {
            "weight": weights(1, 700, 600),
            "bias": weights(2, 600),
            "empty": np.zeros((0, 4)),
            "scalar": np.array(3),
        },
        "strided": weights(3, 64, 64)[::2, ::-1],
        "fortran": np.asfortranarray(weights(4, 30, 50)),
        "big_endian": np.arange(10, dtype=">i8"),
        "flags": np.array([True, False]),
        "complex": np.array([1 + 2j, math.nan]),
        "list": [np.arange(3), {"inner": np.arange(4.0), "note": "in a list"}],
    }
    target: dict[str, Any] = {
        "model": {
            "weight": np.zeros((700, 600), np.float32),
            "bias": np.zeros(600, np.float32),
            "empty": np.zeros((0, 4)),
            "scalar": np.array(0),
        },
        "strided": np.zeros((32, 64), np.float32),
        "fortran": np.asfortranarray(np.zeros((30, 50), np.float32)),
        "big_endian": np.zeros(10, ">i8"),
        "flags": np.array([False, True]),
        "complex": np.zeros(2, complex),
        "list": [np.zeros(3, int), {"inner": np.zeros(4), "note": ""}],
    }
    weight = target["model"]["weight"]
    report = run.save(1, state).wait(60).load_into(target)
    assert report.success
    assert target["model"]["weight"] is weight
    np.testing.assert_equal(target, state)


def test_E199_values_are_put_back_into_the_dict(run: Run) -> None:
    saved: dict[str, Any] = {
        "epoch": 20, "name": "x", "rate": 0.1, "history": [1, 2.5, "three"], "nothing": None, "raw": b"\0\xff",
        "w": weights(1, 3),
    }  # fmt: skip
    target: dict[str, Any] = {
        "epoch": 0, "name": "", "rate": 0.0, "history": [], "nothing": "something", "raw": b"",
        "w": np.zeros(3, np.float32),
    }  # fmt: skip
    report = run.save(5, saved).wait(60).load_into(target)
    np.testing.assert_equal(target, saved)
    assert set(report.loaded) == set(saved)


def test_E132_values_are_replaced_as_a_whole_and_equal_in_type(run: Run) -> None:
    saved: dict[str, Any] = {
        "fields": [{"a": 1}, {"b": 2}],
        "keys": {1: "int", "1": "str", (1, 2): "tuple", None: "none"},
        "nested": {"empty": {}},
        "none": None,
        "ordered": OrderedDict(z=1, a=2),
        "pair": (1, [2]),
    }
    target: dict[str, Any] = {key: [] for key in saved}
    run.save(1, saved).wait(60).load_into(target)
    assert target == saved
    assert {key: type(value) for key, value in target.items()} == {key: type(value) for key, value in saved.items()}
    assert list(map(type, target["keys"])) == list(map(type, saved["keys"]))


def test_E133_integer_keys_stay_integers_over_two_rounds(run: Run) -> None:
    state: dict[str, Any] = {
        "scheduler": {"milestones": {25: 1, 50: 1}},
        "optimizer": {"state": {0: {"m": weights(1, 4)}}},
    }
    for step in (1, 2):
        target: dict[str, Any] = {"scheduler": {}, "optimizer": {"state": {0: {"m": np.zeros(4, np.float32)}}}}
        run.save(step, state).wait(60).load_into(target)
        assert target["scheduler"] == {"milestones": {25: 1, 50: 1}}
        state = target
    np.testing.assert_array_equal(state["optimizer"]["state"][0]["m"], weights(1, 4))


def test_E210_names_that_a_clean_up_would_merge_stay_apart(run: Run) -> None:
    names = ["a b", "a_b", "w/1", "w_1", "a.b", "A", "a", "é", "e\u0301", "%2e", ".."]
    saved: dict[str, Any] = {name: np.array([number]) for number, name in enumerate(names)}
    saved["nest"] = {"a.b": np.array([100]), "a": {"b": np.array([200])}}
    target: dict[str, Any] = {name: np.array([-1]) for name in names}
    target["nest"] = {"a.b": np.array([-1]), "a": {"b": np.array([-1])}}
    run.save(1, saved).wait(60).load_into(target)
    np.testing.assert_equal(target, saved)


def test_E200_a_strict_load_raises_with_both_lists_and_writes_nothing(run: Run) -> None:
    checkpoint = run.save(1, {"net": {"a": weights(1, 3), "b": weights(2, 2, 2), "c": weights(3, 5)}}).wait(60)
    target: dict[str, Any] = {
        "net": {"renamed": np.zeros(3, np.float32), "b": np.zeros((3, 2), np.float32), "c": np.zeros(5, np.float32)}
    }
    with pytest.raises(MissingNames, match=r"net\.renamed.*net\.a.*net\.b.*\(2, 2\).*\(3, 2\)") as caught:
        checkpoint.load_into(target)
    assert caught.value.missing == ("net.renamed",)
    assert caught.value.unexpected == ("net.a",)
    assert not target["net"]["c"].any()

    report = checkpoint.load_into(target, strict=False)
    assert (report.missing, report.unexpected, report.mismatched) == (("net.renamed",), ("net.a",), ("net.b",))
    assert not report.success
    assert report.loaded == ("net.c",)
    np.testing.assert_array_equal(target["net"]["c"], weights(3, 5))


def test_E200_names_can_be_allowed(run: Run) -> None:
    checkpoint = run.save(1, {"net": {"a": weights(1, 3), "head": {"w": weights(2, 2)}}}).wait(60)
    target: dict[str, Any] = {"net": {"a": np.zeros(3, np.float32), "new": np.ones(1)}}
    checkpoint.load_into(target, allow_missing=["net.new"], allow_unexpected=["net.head"])
    np.testing.assert_array_equal(target["net"]["a"], weights(1, 3))


def test_names_count_below_the_top_level_keys_given(run: Run) -> None:
    checkpoint = run.save(1, {"model": {"w": weights(1, 3)}, "optimizer": {"m": weights(2, 3)}, "epoch": 3}).wait(60)
    target: dict[str, Any] = {"model": {"w": np.zeros(3, np.float32)}}
    assert checkpoint.load_into(target).success


@pytest.mark.parametrize("shape", [(4, 8), (32,), (8, 5)])
def test_E206_another_shape_is_an_error_with_both_shapes_and_no_write(run: Run, shape: tuple[int, ...]) -> None:
    checkpoint = run.save(1, {"good": weights(1, 2), "bad": weights(2, 8, 4)}).wait(60)
    target = {"good": np.zeros(2, np.float32), "bad": np.zeros(shape, np.float32)}
    with pytest.raises(ShapeMismatch, match=r"'bad'.*\(8, 4\)") as caught:
        checkpoint.load_into(target)
    assert str(shape) in str(caught.value)
    assert not target["good"].any()
    assert not target["bad"].any()


def test_E206_another_dtype_is_an_error_unless_cast(run: Run) -> None:
    checkpoint = run.save(1, {"w": weights(1, 8, 4)}).wait(60)
    target = {"w": np.zeros((8, 4), np.float64)}
    with pytest.raises(DtypeMismatch, match=r"float32.*float64"):
        checkpoint.load_into(target)
    assert not target["w"].any()
    checkpoint.load_into(target, cast=True)
    np.testing.assert_array_equal(target["w"], weights(1, 8, 4).astype(np.float64))


def test_E12_a_step_that_is_named_never_gives_another(run: Run) -> None:
    run.save(10, {"w": weights(10, 50), "step": 10}).wait(60)
    run.save(20, {"w": weights(20, 50), "step": 20}).wait(60)
    target: dict[str, Any] = {"w": np.zeros(50, np.float32)}
    checkpoint = run.checkpoint(step=10)
    assert checkpoint.step == 10
    checkpoint.load_into(target)
    np.testing.assert_array_equal(target["w"], weights(10, 50))
    assert checkpoint.values()["step",] == 10
    with pytest.raises(NotFound, match="step 15"):
        run.checkpoint(step=15)


def test_E69_the_step_stays_the_same_over_save_and_load(run: Run) -> None:
    state: dict[str, Any] = {"step": 7}
    for _ in range(5):
        checkpoint = run.save(state["step"], state, fresh=True).wait(60)
        loaded: dict[str, Any] = {"step": 0}
        checkpoint.load_into(loaded)
        assert checkpoint.step == loaded["step"] == 7
        run.resume()
        state = loaded


def test_E174_a_checkpoint_that_is_not_committed_is_not_read(client: sk.Client, new_run: Callable[[], Run]) -> None:
    run = new_run()
    attempt = run.begin_attempt(sk.World(0, 2, "ab" * 16))
    attempt.decide_resume()
    with attempt.start_save(1, expected_bytes=0) as writer:
        handle = writer.finish()
        with pytest.raises(CheckpointNotCommitted):
            client.checkpoint(handle.checkpoint_id).tensors()
        with pytest.raises(CheckpointNotCommitted, match="open"):
            run.checkpoint(step=1)
        assert run.latest() is None
        client.service.abort(handle.checkpoint_id, rank=1, reason="enough")
    with pytest.raises(sk.errors.SaveFailed, match="enough"):
        handle.wait(60)
    with pytest.raises(CheckpointNotCommitted, match="aborted"):
        client.checkpoint(handle.checkpoint_id).values()


def test_E174_in_the_same_process_a_handle_waits_and_the_state_is_that_of_the_call(run: Run) -> None:
    state = {"w": weights(1, 3_000_000)}
    handle = run.save(1, state)
    state["w"][:] = 0
    target = {"w": np.ones(3_000_000, np.float32)}
    handle.wait(60).load_into(target)
    np.testing.assert_array_equal(target["w"], weights(1, 3_000_000))


def test_damaged_bytes_are_an_error_naming_tensor_region_and_chunk(shared_service: ServiceProcess) -> None:
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token, codec="raw") as client:
        checkpoint = client.run("damage/run").save(1, {"layer": {"w": weights(1, 1000, 1000)}}).wait(60)

        def flipped(exchange: Exchange) -> Reply:
            return Reply(body=exchange.answer[:-9] + bytes([exchange.answer[-9] ^ 1]) + exchange.answer[-8:])

        target = {"layer": {"w": np.zeros((1000, 1000), np.float32)}}
        once = proxy.fail(CHUNK, flipped)
        checkpoint.load_into(target)
        assert once.times == 0
        np.testing.assert_array_equal(target["layer"]["w"], weights(1, 1000, 1000))

        proxy.fail(CHUNK, flipped, times=9)
        with pytest.raises(
            IntegrityError, match=r"layer\.w, offsets \(0, 0\).*chunk [0-9a-f]{64}.*the service was told"
        ):
            checkpoint.load_into(target)
        assert proxy.count("POST .*/damage$") == 1


@pytest.mark.parametrize("left_bytes", [None, 100])
def test_E204_a_chunk_that_is_gone_or_cut_fails_the_load_at_once_and_is_reported(
    shared_service: ServiceProcess, left_bytes: int | None
) -> None:
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token, codec="raw") as client:
        saved = weights(2 if left_bytes else 3, 1000, 1000)
        run = client.run(f"gone/left-{left_bytes}")
        checkpoint = run.save(1, {"w": saved}).wait(60)
        digest = next(iter(checkpoint.manifest().chunks())).digest
        (stored,) = shared_service.data_dir.rglob(f"{digest}.*")
        if left_bytes is None:
            stored.unlink()
        else:
            os.truncate(stored, left_bytes)

        with pytest.raises(IntegrityError, match=rf"^w, offsets .*chunk {digest}.*the service was told"):
            checkpoint.load_into({"w": np.zeros((1000, 1000), np.float32)})
        assert proxy.count("GET .*/chunks/[0-9a-f]{64}$") == 1
        assert run.latest() is None
        assert [passed.code for passed in run.passed_over()] == ["quarantined"]


def test_E205_bytes_without_a_fingerprint_are_not_accepted(shared_service: ServiceProcess) -> None:
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token) as client:
        checkpoint = client.run("unsigned/run").save(1, {"w": weights(1, 100)}).wait(60)

        def unsigned(exchange: Exchange) -> Reply:
            plan = decode_load_plan(exchange.answer)
            return Reply(body=encode_load_plan(replace(plan, fingerprints=np.zeros_like(plan.fingerprints))))

        proxy.fail("POST .*/load-plan", unsigned)
        with pytest.raises(IntegrityError, match="fingerprint"):
            checkpoint.load_into({"w": np.zeros(100, np.float32)})


def test_a_lazy_tensor_reads_only_the_segments_it_needs(shared_service: ServiceProcess) -> None:
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token, codec="raw") as client:
        stored = weights(1, 16, 1024, 256)
        lazy = client.run("lazy/run").save(1, {"w": stored}).wait(60).tensor("w")
        before = proxy.sent_bytes(CHUNK)
        np.testing.assert_array_equal(np.asarray(lazy[3, 5:9]), stored[3, 5:9])
        assert proxy.sent_bytes(CHUNK) - before == 1 << 20
        np.testing.assert_array_equal(np.asarray(lazy[2:4, ::7, 1]), stored[2:4, ::7, 1])
        assert proxy.sent_bytes(CHUNK) - before == 3 << 20
        assert (lazy.shape, lazy.dtype, len(lazy)) == ((16, 1024, 256), "float32", 16)


def test_E184_loading_on_many_readers_asks_for_the_common_manifest_once_each(shared_service: ServiceProcess) -> None:
    with FaultyProxy(shared_service.port) as proxy, sk.connect(proxy.url, shared_service.token) as client:
        state: dict[str, Any] = {"w": weights(1, 1000, 300), "epoch": 3, "text": "x" * 100_000}
        checkpoint = client.run("counts/run").save(1, state).wait(60)
        before = len(proxy.exchanges)
        target: dict[str, Any] = {"w": np.zeros((1000, 300), np.float32), "epoch": 0, "text": ""}
        checkpoint.load_into(target)
        assert target["text"] == state["text"]
        asked = [f"{item.method} {item.path.split('/')[-2]}" for item in proxy.exchanges[before:]]
        assert len(asked) <= 8, asked
        assert proxy.count("GET .*/manifests/") == 1


def test_regions_are_read_from_anywhere_into_anywhere(run: Run) -> None:
    stored = weights(1, 300, 400, 9)
    checkpoint = run.save(1, {"w": stored}).wait(60)
    rng = np.random.default_rng(0)
    reads, wanted = [], []
    for _ in range(20):
        ends = [sorted(rng.integers(0, size + 1, 2)) for size in stored.shape]
        region = Region(tuple(int(a) for a, _ in ends), tuple(int(b - a) for a, b in ends))
        out = np.zeros(region.sizes, np.float32)
        reads.append(sk.ReadRequest("w", region, out.reshape(-1).view(np.uint8).data))
        wanted.append((out, stored[tuple(slice(int(a), int(b)) for a, b in ends)]))
    checkpoint.read(reads)
    for out, expected in wanted:
        np.testing.assert_array_equal(out, expected)


def test_a_name_is_found_by_parts_by_plain_text_and_missed_with_the_nearest(run: Run) -> None:
    checkpoint = run.save(1, {"net": {"a.b": weights(1, 2), "layer": weights(2, 2)}}).wait(60)
    assert checkpoint.resolve(("net", "a.b")) == checkpoint.resolve("net.a.b") == "net.a\\.b"
    with pytest.raises(NotFound, match=r"nearest names are 'net\.layer'"):
        checkpoint.resolve("net.layr")
    assert [info.name for info in checkpoint.tensors(("net", "layer"))] == ["net.layer"]


def test_a_dtype_without_numpy_counterpart_is_a_clear_error(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)  # other tests of this process may have imported it
    attempt = run.begin_attempt(sk.World.alone())
    attempt.decide_resume()
    with attempt.start_save(1, expected_bytes=8) as writer:
        whole = Region.whole((4,))
        writer.stage("w", "bfloat16", (4,), whole, SliceKind.TENSOR, fill=lambda _, out: None)
        checkpoint = writer.finish().wait(60)
    with pytest.raises(sk.errors.ConfigurationError, match="numpy has no bfloat16"):
        checkpoint.tensor("w").read()
