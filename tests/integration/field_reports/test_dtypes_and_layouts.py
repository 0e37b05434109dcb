"""Trials with unusual dtypes, shapes and memory layouts, from live torch state to the service and back."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import nn

import shardkeep as sk
from shardkeep.format.regions import Region
from tests.integration.service.process_client import exchange
from tests.service_process import ServiceProcess

_numbers = itertools.count()
E4M3, E8M0, FP4 = torch.float8_e4m3fn, torch.float8_e8m0fnu, torch.float4_e2m1fn_x2


def raw(tensor: torch.Tensor) -> bytes:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def of_bytes(dtype: torch.dtype, shape: tuple[int, ...], seed: int = 1) -> torch.Tensor:
    item = torch.empty(0, dtype=dtype).element_size()
    generator = torch.Generator().manual_seed(seed)
    count = item
    for size in shape:
        count *= size
    data = torch.randint(0, 256, (count,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape)


def new_run(client: sk.Client) -> Any:
    return client.run(f"reports/dtypes-{next(_numbers)}")


def through_keeper(run: Any, saved: dict[str, Any], live: dict[str, Any], step: int = 1) -> None:
    """Save with one Checkpointer, resume with another."""
    with sk.Checkpointer(run, state=saved) as keeper:
        keeper.resume()
        keeper.save(step)
    with sk.Checkpointer(run, state=live) as keeper:
        assert keeper.resume() == step


def test_E43_quantised_weights_scales_and_masters_are_byte_equal_after_three_round_trips(client: sk.Client) -> None:
    def state(seed: int) -> dict[str, Any]:
        master = torch.randn(64, 64, generator=torch.Generator().manual_seed(seed))
        return {
            "weight": master.to(E4M3),
            "master": master,
            "scale": (master.abs().amax(1) / 448).float(),
            "block_scale": of_bytes(E8M0, (64, 2), seed),
        }

    first, run = state(1), new_run(client)
    expected = {name: raw(tensor) for name, tensor in first.items()}
    current = first
    for step in range(1, 4):
        fresh = state(99)
        through_keeper(run, {"quantised": current}, {"quantised": fresh}, step)
        assert {name: raw(tensor) for name, tensor in fresh.items()} == expected
        current = fresh


def test_E45_E100_E103_moments_and_counters_of_a_half_parameter_keep_their_dtype_and_bits(client: sk.Client) -> None:
    def build(value: float) -> tuple[nn.Linear, torch.optim.Optimizer]:
        module = nn.Linear(1, 1, bias=False).half()
        optimizer = torch.optim.AdamW(module.parameters())
        optimizer.state[module.weight] = {
            "step": torch.tensor(value * (2**24 + 1), dtype=torch.float64),
            "exp_avg": torch.tensor([[value * 1e-9]]),
            "exp_avg_sq": torch.tensor([[value * 70000.0]]),
        }
        return module, optimizer

    run = new_run(client)
    (module, optimizer), (other, other_optimizer) = build(1), build(0)
    through_keeper(run, {"m": module, "o": optimizer}, {"m": other, "o": other_optimizer})
    found = other_optimizer.state[other.weight]
    assert found["step"].dtype == torch.float64
    assert found["step"].item() == 16777217.0
    assert found["exp_avg"].dtype == found["exp_avg_sq"].dtype == torch.float32
    assert raw(found["exp_avg"]) == raw(torch.tensor([[1e-9]]))
    assert found["exp_avg_sq"].item() == 70000.0
    assert other.weight.shape == (1, 1)


@pytest.mark.parametrize(("dtype", "value"), [(torch.bfloat16, 256.0), (torch.float16, 2048.0)])
def test_E102_a_low_precision_counter_at_its_limit_comes_back_exactly_and_is_warned_about(
    client: sk.Client, dtype: torch.dtype, value: float, caplog: pytest.LogCaptureFixture
) -> None:
    def build(number: float) -> tuple[nn.Linear, torch.optim.Optimizer]:
        module = nn.Linear(2, 1, bias=False)
        optimizer = torch.optim.SGD(module.parameters())
        optimizer.state[module.weight] = {"step": torch.tensor(number, dtype=dtype)}
        return module, optimizer

    (module, optimizer), (other, other_optimizer) = build(value), build(0)
    through_keeper(new_run(client), {"m": module, "o": optimizer}, {"m": other, "o": other_optimizer})
    step = other_optimizer.state[other.weight]["step"]
    assert (step.dtype, step.shape, step.item()) == (dtype, (), value)
    assert "o.state.m.weight.step" in caplog.text
    assert str(int(value)) in caplog.text


@pytest.mark.parametrize("waits", [True, False])
def test_E99_scalars_of_every_kind_keep_shape_and_dtype_in_waited_and_overlapping_saves(
    client: sk.Client, *, waits: bool
) -> None:
    def scalars(number: int) -> dict[str, Any]:
        return {
            "step": torch.tensor(float(number)),
            "count": torch.tensor(number),
            "flag": torch.tensor(bool(number)),
            "half": torch.tensor(number, dtype=torch.bfloat16),
        }

    run, saved, live = new_run(client), scalars(7), scalars(0)
    with sk.Checkpointer(run, state={"s": saved}) as keeper:
        keeper.resume()
        keeper.save(1)
        if waits:
            keeper.wait()
        saved["count"].add_(1)
    with sk.Checkpointer(run, state={"s": live}) as keeper:
        keeper.resume()
    expected = scalars(7)
    for name, tensor in live.items():
        assert (tensor.shape, tensor.dtype) == ((), expected[name].dtype)
        assert torch.equal(tensor, expected[name])


def test_E122_packed_dtypes_come_back_by_file_by_bytes_and_by_http_range(
    client: sk.Client, shared_service: ServiceProcess
) -> None:
    state = {"e8m0": of_bytes(E8M0, (3,)), "fp4": of_bytes(FP4, (2, 4)), "empty": of_bytes(FP4, (0, 4))}
    run = client.run(f"reports/dtypes-{next(_numbers)}").with_settings(codec="raw")
    checkpoint = run.save(1, dict(state)).wait(60)
    infos = {info.name: (info.dtype, tuple(info.shape)) for info in checkpoint.tensors()}
    assert infos == {
        "e8m0": ("float8_e8m0fnu", (3,)),
        "fp4": ("float4_e2m1fn_x2", (2, 4)),
        "empty": ("float4_e2m1fn_x2", (0, 4)),
    }
    for name, tensor in state.items():
        read = checkpoint.tensor(name).read()
        assert (read.dtype, tuple(read.shape), raw(read)) == (tensor.dtype, tuple(tensor.shape), raw(tensor))
        out = bytearray(len(raw(tensor)))
        checkpoint.read([sk.ReadRequest(name, Region.whole(tuple(tensor.shape)), memoryview(out))])
        assert bytes(out) == raw(tensor)
    for record in checkpoint.manifest().slices():
        for segment in record.segments:
            path = f"/v1/checkpoints/{checkpoint.id}/chunks/{segment.chunk.digest}"
            last = segment.offset + segment.size_bytes - 1
            answer = exchange(shared_service, "GET", path, headers={"range": f"bytes={segment.offset}-{last}"})
            assert (answer.status, answer.body) == (206, raw(state[record.name]))


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_E123_E125_strided_slices_of_every_dtype_stream_through_a_small_budget(client: sk.Client) -> None:
    dtypes = [
        torch.bfloat16,
        E4M3,
        torch.float8_e5m2,
        torch.complex32,
        torch.complex64,
        torch.complex128,
        torch.float16,
    ]
    whole = {str(dtype): of_bytes(dtype, (640, 1400), seed) for seed, dtype in enumerate(dtypes)}
    state = {name: tensor.t()[3::2] for name, tensor in whole.items()}
    run = client.run(f"reports/dtypes-{next(_numbers)}").with_settings(staging_bytes=8 << 20)
    checkpoint = run.save(1, dict(state)).wait(120)
    for name, tensor in state.items():
        assert not tensor.is_contiguous()
        read = checkpoint.tensor(name).read()
        assert (read.dtype, read.shape) == (tensor.dtype, tensor.shape)
        assert raw(read) == raw(tensor)
    live = {name: torch.zeros(640, 1400, dtype=tensor.dtype).t()[3::2] for name, tensor in whole.items()}
    checkpoint.load_into(dict(live))
    assert all(raw(live[name]) == raw(tensor) for name, tensor in state.items())


def test_E126_E127_views_of_every_layout_store_their_own_values(client: sk.Client) -> None:
    base = torch.arange(600.0)
    state = {
        "channels_last": base.reshape(8, 3, 5, 5).contiguous(memory_format=torch.channels_last),
        "transposed": base[:24].reshape(4, 6).t(),
        "step_2": base[:40:2],
        "expanded": base[:5].reshape(1, 5).expand(4, 5),
        "rows_of_one": base[:2].expand(4, 2),
        "flipped": base[:9].flip(0),
        "offset": base[3:50],
    }
    checkpoint = new_run(client).save(1, dict(state)).wait(60)
    for name, tensor in state.items():
        assert torch.equal(checkpoint.tensor(name).read(), tensor), name
    assert torch.equal(checkpoint.tensor("rows_of_one")[2:], base[:2].expand(2, 2))
    live = {name: torch.empty_like(tensor).contiguous() for name, tensor in state.items()}
    live["channels_last"] = torch.zeros(8, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    assert checkpoint.load_into(dict(live)).success
    assert all(torch.equal(live[name], tensor) for name, tensor in state.items())
