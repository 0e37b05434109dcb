from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from shardkeep.errors import UnnamedParameter
from shardkeep.pytorch.capture import TrainingState
from shardkeep.pytorch.captured import Placed, Plain
from shardkeep.pytorch.dtensors import local_pieces
from tests.unit.pytorch.memory_checkpoint import MemoryCheckpoint
from tests.unit.pytorch.ranks import run_ranks, save_all

pytestmark = pytest.mark.slow

VOCABULARY = 1003


class Model(nn.Module):
    """Sizes that no rank count divides, and one parameter that most ranks hold nothing of."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(VOCABULARY, 8)
        self.norm = nn.BatchNorm1d(8)
        self.out = nn.Linear(8, 5)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.out(self.norm(self.embedding(tokens))) * self.scale
        return result


def train(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int, *, first: int = 0) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        torch.manual_seed(100 + step)
        loss = model(torch.randint(0, VOCABULARY, (16,))).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach().item())
    return losses


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach()


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert type(found) is type(expected) or isinstance(found, nn.Parameter)
    assert found.dtype == expected.dtype
    assert torch.equal(whole(found), whole(expected))


def assert_same_state(
    first: nn.Module, one: torch.optim.Optimizer, second: nn.Module, other: torch.optim.Optimizer
) -> None:
    for (name, parameter), (_, same) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert_same(same, parameter)
        for key, value in one.state[parameter].items():
            found = other.state[same][key]
            assert isinstance(found, DTensor) == isinstance(value, DTensor), (name, key)
            assert_same(found, value)


def sharded(mesh: DeviceMesh | None = None) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Model()
    fully_shard(model.out, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def plain() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Model()
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def keep(checkpoint: MemoryCheckpoint, path: Path) -> None:
    path.write_bytes(pickle.dumps(checkpoint.ranks))


def kept(path: Path) -> MemoryCheckpoint:
    return MemoryCheckpoint(pickle.loads(path.read_bytes()))


# --- FSDP2 -----------------------------------------------------------------------------------------------------------


def fsdp_continues(rank: int, world_size: int, folder: Path) -> None:
    model, optimizer = sharded()
    state = TrainingState({"model": model, "optimizer": optimizer})
    train(model, optimizer, 2)
    checkpoint = save_all(state)
    model.train()
    resumed, again = sharded()
    report = TrainingState({"model": resumed, "optimizer": again}).restore(checkpoint, rank=rank, world_size=world_size)
    assert report.notes == []
    assert_same_state(model, optimizer, resumed, again)
    assert train(resumed, again, 3, first=2) == train(model, optimizer, 3, first=2)
    if rank == 0:
        keep(checkpoint, folder / "sharded")
    _loads_plain(rank, world_size, folder)
    _refuses_an_early_optimizer()


def _loads_plain(rank: int, world_size: int, folder: Path) -> None:
    """A checkpoint of one plain process, into FSDP2."""
    resumed, again = sharded()
    TrainingState({"model": resumed, "optimizer": again}).restore(
        kept(folder / "plain"), rank=rank, world_size=world_size
    )
    checkpoint = kept(folder / "plain")
    for name, parameter in resumed.named_parameters():
        assert whole(parameter).numpy().tobytes() == checkpoint.tensor_bytes(f"model.{name}")
        for key, value in again.state[parameter].items():
            assert isinstance(value, DTensor) == (key != "step")
            assert whole(value).numpy().tobytes() == checkpoint.tensor_bytes(f"optimizer.state.model.{name}.{key}")


def _refuses_an_early_optimizer() -> None:
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    fully_shard(model)
    with pytest.raises(UnnamedParameter, match="build the optimizer after fully_shard"):
        TrainingState({"model": model, "optimizer": optimizer}).capture()


@pytest.mark.parametrize("world_size", [2, 3])
def test_E94_E100_fsdp2_continues_bit_equal_and_trades_with_plain_models(world_size: int, tmp_path: Path) -> None:
    model, optimizer = plain()
    train(model, optimizer, 2)
    keep(MemoryCheckpoint.of(TrainingState({"model": model, "optimizer": optimizer}).capture()), tmp_path / "plain")
    run_ranks(fsdp_continues, world_size, tmp_path)
    resumed, again = plain()
    checkpoint = kept(tmp_path / "sharded")
    TrainingState({"model": resumed, "optimizer": again}).restore(checkpoint, rank=0, world_size=1)
    for name, parameter in resumed.named_parameters():
        assert parameter.detach().numpy().tobytes() == checkpoint.tensor_bytes(f"model.{name}")
        assert set(again.state[parameter]) == {"step", "exp_avg", "exp_avg_sq"}
        moment = again.state[parameter]["exp_avg"]
        assert moment.numpy().tobytes() == checkpoint.tensor_bytes(f"optimizer.state.model.{name}.exp_avg")


# --- state that only a shard has -------------------------------------------------------------------------------------


class LocalState(torch.optim.Optimizer):
    """Keeps plain tensors for the local shard: a moment of its shape, codes and scales of other shapes, an int."""

    def __init__(self, params: Any) -> None:
        super().__init__(params, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                local, gradient = parameter.to_local(), parameter.grad.to_local()
                state = self.state[parameter]
                if not state:
                    state["moment"] = torch.zeros_like(local)
                    state["codes"] = torch.zeros(local.numel() + 3, dtype=torch.int8)
                    state["scale"] = torch.ones(3)
                    state["count"] = 0
                state["count"] += 1
                state["moment"].mul_(0.9).add_(gradient)
                decoded = state["codes"][: local.numel()].float().view_as(local) * state["scale"][0]
                total = decoded * 0.5 + gradient
                largest = float(total.abs().max()) if total.numel() else 1.0
                state["scale"].fill_(largest / 127 + 1e-12)
                state["codes"][: local.numel()] = (total / state["scale"][0]).round().to(torch.int8).flatten()
                local.sub_(group["lr"] * (state["moment"] + total))


def local_state(rank: int, world_size: int, folder: Path) -> None:
    def build() -> tuple[nn.Module, LocalState]:
        model = Model()
        fully_shard(model)
        return model, LocalState(model.parameters())

    model, optimizer = build()
    train(model, optimizer, 2)
    checkpoint = save_all(TrainingState({"model": model, "optimizer": optimizer}))
    resumed, again = build()
    TrainingState({"model": resumed, "optimizer": again}).restore(checkpoint, rank=rank, world_size=world_size)
    assert_same_state_of_ints(model, optimizer, resumed, again)
    assert train(resumed, again, 20, first=2) == train(model, optimizer, 20, first=2)
    assert tuple(next(t.shape for t in checkpoint.tensors() if t.name.endswith("embedding.weight.moment"))) == (1003, 8)
    assert "optimizer.state.model.embedding.weight.codes" in checkpoint.info.report.per_rank_values
    # With another world size the codes of a shard mean nothing: fresh, and said so.
    fresh, other = build()
    report = TrainingState({"model": fresh, "optimizer": other}).restore(
        checkpoint, rank=rank, world_size=world_size + 1
    )
    assert "optimizer.state.model.embedding.weight" in report.kept_fresh
    assert not other.state


def assert_same_state_of_ints(first: nn.Module, one: Any, second: nn.Module, other: Any) -> None:
    for (_, parameter), (_, same) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        for key, value in one.state[parameter].items():
            found = other.state[same][key]
            assert type(found) is type(value)
            assert torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value


def test_E25_local_state_of_a_shard_follows_it_or_is_kept_per_rank(tmp_path: Path) -> None:
    run_ranks(local_state, 2, tmp_path)


# --- DDP -------------------------------------------------------------------------------------------------------------


def ddp(rank: int, world_size: int, folder: Path) -> None:
    inner, optimizer = plain()
    model = DistributedDataParallel(inner, broadcast_buffers=False)
    with torch.no_grad():
        inner.get_buffer("norm.running_mean").fill_(rank + 1)
    train(model, optimizer, 1)
    capture = TrainingState({"model": model, "optimizer": optimizer}).capture()
    assert {tensor.name for tensor in capture.tensors} >= {"model.out.weight", "optimizer.state.model.scale.step"}
    assert all(tensor.placement == Plain() for tensor in capture.tensors)
    checkpoint = save_all(TrainingState({"model": model, "optimizer": optimizer}))
    resumed, again = plain()
    TrainingState({"model": resumed, "optimizer": again}).restore(checkpoint, rank=rank, world_size=world_size)
    assert torch.equal(resumed.get_buffer("norm.running_mean"), inner.get_buffer("norm.running_mean"))
    assert_same_state(inner, optimizer, resumed, again)


def test_E135_ddp_names_are_those_of_the_module_and_buffers_return_per_rank(tmp_path: Path) -> None:
    run_ranks(ddp, 2, tmp_path)


# --- several mesh dimensions -----------------------------------------------------------------------------------------


class Feed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = nn.Linear(6, 10, bias=False)
        self.down = nn.Linear(10, 6, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.down(torch.relu(self.up(inputs)))
        return result


def tensor_parallel(mesh: DeviceMesh) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = Feed()
    parallelize_module(model, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    model(torch.ones(4, 6)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def many_dimensions(rank: int, world_size: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    _fsdp_over_tp(mesh, rank, world_size, folder)
    _hsdp(mesh, rank, world_size)
    _pieces_equal_the_whole(mesh)


def _fsdp_over_tp(mesh: DeviceMesh, rank: int, world_size: int, folder: Path) -> None:
    model, optimizer = tensor_parallel(mesh)
    step(model, optimizer)
    checkpoint = save_all(TrainingState({"model": model, "optimizer": optimizer}))
    for name, parameter in model.named_parameters():
        assert whole(parameter).numpy().tobytes() == checkpoint.tensor_bytes(f"model.{name}")
    resumed, again = tensor_parallel(mesh)
    TrainingState({"model": resumed, "optimizer": again}).restore(checkpoint, rank=rank, world_size=world_size)
    assert_same_state(model, optimizer, resumed, again)
    if rank == 0:
        keep(checkpoint, folder / "tp")


def _hsdp(mesh: DeviceMesh, rank: int, world_size: int) -> None:
    model, optimizer = sharded(mesh)
    train(model, optimizer, 1)
    capture = TrainingState({"model": model, "optimizer": optimizer}).capture()
    (embedding,) = [tensor for tensor in capture.tensors if tensor.name == "model.embedding.weight"]
    assert embedding.placement == Placed(rank // 2, 2)
    checkpoint = save_all(TrainingState({"model": model, "optimizer": optimizer}))
    resumed, again = sharded(mesh)
    TrainingState({"model": resumed, "optimizer": again}).restore(checkpoint, rank=rank, world_size=world_size)
    assert_same_state(model, optimizer, resumed, again)


def _pieces_equal_the_whole(mesh: DeviceMesh) -> None:
    for shape in ((5, 7), (1, 3), (9, 2), (0, 4)):
        content = torch.arange(shape[0] * shape[1], dtype=torch.float32).reshape(shape)
        for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(1)], [Shard(0), Shard(0)], [Replicate(), Shard(0)]):
            tensor = distribute_tensor(content, mesh, placements)
            for piece in local_pieces(tensor):
                index = tuple(slice(s, e) for s, e in zip(piece.region.offsets, piece.region.ends, strict=True))
                assert torch.equal(piece.tensor, content[index])


def test_hsdp_and_fsdp_over_tp_know_their_boxes_and_replicas(tmp_path: Path) -> None:
    run_ranks(many_dimensions, 4, tmp_path)
    model = Feed()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    checkpoint = kept(tmp_path / "tp")
    TrainingState({"model": model, "optimizer": optimizer}).restore(checkpoint, rank=0, world_size=1)
    assert model.up.weight.detach().numpy().tobytes() == checkpoint.tensor_bytes("model.up.weight")
