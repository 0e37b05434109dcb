"""What ranks do in the grid: save all that a world size can hold, or load one run and look at every element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import shardkeep as sk
import shardkeep.pytorch as skt
from tests.distributed.grid.contents import content, difference
from tests.distributed.grid.models import (
    MOMENTS,
    Feed,
    Model,
    Normed,
    expected,
    fill,
    local,
    moment_dtypes,
    place,
    whole,
    with_moments,
)

Problems = dict[str, str]
"""What is wrong with each tensor by name; empty text where nothing is."""

SCALARS: dict[str, torch.dtype] = {
    "float32": torch.float32,
    "int64": torch.int64,
    "bool": torch.bool,
    "bfloat16": torch.bfloat16,
}
ROWS = {
    "wide": ((20, 3), torch.float32),
    "thin": ((2, 5), torch.bfloat16),
    "one": ((1, 17), torch.uint8),
    "none": ((0, 4), torch.float64),
    "small": ((11,), torch.float8_e4m3fn),
}
FLAT = {"a": 15, "b": 6, "c": 1, "d": 35}
POISON = -777.0


def build(keyword: str, layout: str) -> tuple[nn.Module, torch.optim.AdamW]:
    """A filled model with filled moments."""
    make: dict[str, Callable[[str], nn.Module]] = {
        "model": lambda slot: Model(moment_dtypes(slot) if slot else None),
        "feed": lambda slot: Feed(),
        "ddp": lambda slot: Normed(),
    }
    modules = {}
    for slot in ("", *MOMENTS):
        module = make[keyword](slot)
        fill(module, keyword, slot)
        modules[slot] = place(module, layout) if layout != "ddp" or not slot else module
    model = modules.pop("")
    return model, with_moments(inner(model), keyword, twins=modules)


def inner(model: nn.Module) -> nn.Module:
    """Without DDP."""
    found = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
    assert isinstance(found, nn.Module)
    return found


def rows_of(size: int, rank: int, world_size: int) -> tuple[int, int]:
    """Odd cuts: rank r takes r + 1 parts of the rows, rounded, so that some take nothing of a few rows."""
    total = world_size * (world_size + 1) // 2
    return size * (rank * (rank + 1) // 2) // total, size * ((rank + 1) * (rank + 2) // 2) // total


def make_table(rank: int, world_size: int, *, filled: bool) -> dict[str, Any]:
    """Scalars that every rank has, and shards cut by rows where no one would cut them."""
    table: dict[str, Any] = {}
    for name, dtype in SCALARS.items():
        table[name] = content(name, (), dtype) if filled else torch.zeros((), dtype=dtype)
    for name, (shape, dtype) in ROWS.items():
        start, stop = rows_of(shape[0], rank, world_size)
        part = content(name, shape, dtype)[start:stop].clone()
        held = part if filled else torch.zeros_like(part)
        table[name] = sk.Sharded(held, shape=shape, offset=(start, *(0 for _ in shape[1:])))
    return table


def look_at_table(table: dict[str, Any]) -> Problems:
    found = {name: difference(table[name], content(name, (), dtype)) for name, dtype in SCALARS.items()}
    for name, (shape, dtype) in ROWS.items():
        held = table[name]
        region = held.region
        part = content(name, shape, dtype)[region.offsets[0] : region.ends[0]]
        found[name] = difference(held.local, part)
    return found


def make_flat(rank: int, world_size: int, *, filled: bool) -> tuple[torch.Tensor, dict[str, sk.Sharded]]:
    """One flat buffer over all parameters, padded so that ranks hold alike much; a rank names only what it holds."""
    total = sum(FLAT.values())
    each = -(-total // world_size)
    buffer = torch.full((each,), POISON)
    parts: dict[str, sk.Sharded] = {}
    start = 0
    for name, size in FLAT.items():
        low, high = max(start, rank * each), min(start + size, (rank + 1) * each)
        if low < high:
            held = buffer[low - rank * each : high - rank * each]
            held.copy_(content(name, (size,))[low - start : high - start] if filled else torch.zeros(high - low))
            parts[name] = sk.Sharded(held, shape=(size,), offset=(low - start,))
        start += size
    return buffer, parts


def look_at_flat(buffer: torch.Tensor, parts: dict[str, sk.Sharded], rank: int, world_size: int) -> Problems:
    """The elements, and the padding, which must be untouched."""
    found = {}
    for name, held in parts.items():
        part = content(name, (FLAT[name],))[held.region.offsets[0] : held.region.ends[0]]
        found[name] = difference(held.local, part)
    padding = buffer[sum(held.local.numel() for held in parts.values()) :]
    return {**found, "padding": difference(padding, torch.full_like(padding, POISON))}


def save_all(rank: int, world_size: int, *, project: str) -> None:
    """Every layout that this world size can hold, after an evaluation forward, each into a run of its own."""
    layouts = {1: ["plain"], 4: ["fsdp", "hsdp"]}.get(world_size, ["fsdp"])
    for layout in layouts:
        _save_one(rank, world_size, run=f"{project}/{layout}-{world_size}", layout=layout)
    if world_size == 4:
        feed, optimizer = build("feed", "tp")
        feed(torch.ones(2, 6))
        with skt.Checkpointer(f"{project}/tp-4", feed=feed, feed_optimizer=optimizer, signals=False) as keeper:
            keeper.save(7)


def _save_one(rank: int, world_size: int, *, run: str, layout: str) -> None:
    model, optimizer = build("model", layout)
    ddp, ddp_optimizer = build("ddp", "ddp")
    with torch.no_grad():
        model.eval()()
        ddp.eval()(torch.ones(2, 6))
        inner(ddp).get_buffer("norm.running_mean").fill_(rank + 1)
        inner(ddp).get_buffer("norm.num_batches_tracked").fill_(10 + rank)
    _, flat = make_flat(rank, world_size, filled=True)
    items = {
        "model": model,
        "optimizer": optimizer,
        "ddp": ddp,
        "ddp_optimizer": ddp_optimizer,
        "table": make_table(rank, world_size, filled=True),
        "flat": flat,
    }
    with skt.Checkpointer(run, state=items, signals=False) as keeper:
        keeper.save(7)


def save_model(rank: int, world_size: int, *, run: str, layout: str) -> None:
    """A model and its optimizer only."""
    model, optimizer = build("model", layout)
    with skt.Checkpointer(run, model=model, optimizer=optimizer, signals=False) as keeper:
        keeper.save(7)


def load_model(rank: int, world_size: int, *, run: str, layout: str) -> Problems:
    """The same, loaded."""
    model = place(Model(), layout)
    optimizer = torch.optim.AdamW(model.parameters())
    with skt.Checkpointer(run, model=model, optimizer=optimizer, signals=False) as keeper:
        step = keeper.resume()
    return look_at(model, optimizer, "model") | {"step": "" if step == 7 else f"resumed at {step}"}


def load_run(rank: int, world_size: int, *, run: str, saved_on: int, layout: str) -> dict[str, Any]:
    """Evaluation forward, resume, forward; then every element by name."""
    model, ddp = place(Model(), layout), place(Normed(), "ddp")
    optimizer, ddp_optimizer = torch.optim.AdamW(model.parameters()), torch.optim.AdamW(inner(ddp).parameters())
    table = make_table(rank, world_size, filled=False)
    buffer, flat = make_flat(rank, world_size, filled=False)
    items = {
        "model": model,
        "optimizer": optimizer,
        "ddp": ddp,
        "ddp_optimizer": ddp_optimizer,
        "table": table,
        "flat": flat,
    }
    with torch.no_grad():
        before = model.eval()()
        with skt.Checkpointer(run, state=items, signals=False) as keeper:
            step = keeper.resume()
        problems = look_at(model, optimizer, "model")  # before a forward leaves the root's parameters gathered
        shared = shared_memory(model, optimizer)
        after = model()
    assert keeper.resumed is not None
    sums = torch.stack([expected("model", n, "", p).double().sum() for n, p in _by_forward(model)])
    source = rank if world_size == saved_on else 0
    norm = inner(ddp)
    return {
        "step": step,
        "reasons": [reason for reason in keeper.resumed.reasons if "world size" not in reason],
        "model": problems | {"forward": difference(after, sums)},
        "was_zero": not before.any(),
        "ddp": look_at(norm, ddp_optimizer, "ddp"),
        "buffers": (norm.get_buffer("norm.running_mean").tolist(), int(norm.get_buffer("norm.num_batches_tracked"))),
        "expected_buffers": ([source + 1.0] * 6, 10 + source),
        "table": look_at_table(table),
        "flat": look_at_flat(buffer, flat, rank, world_size),
        "lr": optimizer.param_groups[0]["lr"],
        "shared_memory": shared,
    }


def load_feed(rank: int, world_size: int, *, run: str, layout: str) -> dict[str, Any]:
    """The tensor-parallel run on another layout."""
    feed = place(Feed(), layout)
    optimizer = torch.optim.AdamW(feed.parameters())
    with torch.no_grad():
        feed.eval()(torch.ones(2, 6))
        with skt.Checkpointer(run, feed=feed, feed_optimizer=optimizer, signals=False) as keeper:
            keeper.resume()
        problems = look_at(feed, optimizer, "feed")
        weights = {name: expected("feed", name, "", parameter) for name, parameter in feed.named_parameters()}
        output = torch.ones(2, 6) @ weights["up.weight"].T @ weights["down.weight"].T
        forward = torch.allclose(whole(feed(torch.ones(2, 6))), output)
    return {"feed": problems, "forward": forward}


def _by_forward(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    parameters = dict(model.named_parameters())
    own = [(name, parameters.pop(name)) for name in ("own", "scalar")]
    return own + list(parameters.items())


def look_at(module: nn.Module, optimizer: torch.optim.Optimizer, keyword: str) -> Problems:
    """Every parameter, both moments and the step, gathered and compared with what belongs there."""
    found: Problems = {}
    moments = {slot: dict(Model(moment_dtypes(slot)).named_parameters()) for slot in MOMENTS}
    for name, parameter in module.named_parameters():
        found[name] = difference(whole(parameter), expected(keyword, name, "", parameter))
        state = optimizer.state[parameter]
        for slot in MOMENTS:
            like = moments[slot][name] if keyword == "model" else parameter
            found[f"{name}.{slot}"] = difference(whole(state[slot]), expected(keyword, name, slot, like))
        found[f"{name}.step"] = difference(state["step"], torch.tensor(float(len(name))))
    return found


def shared_memory(module: nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
    """Parameters that share memory with a moment, or whose moments share it."""
    shared = []
    for name, parameter in module.named_parameters():
        tensors = [local(parameter), *(local(optimizer.state[parameter][slot]) for slot in MOMENTS)]
        places = [tensor.untyped_storage().data_ptr() for tensor in tensors if tensor.numel()]
        if len(set(places)) < len(places):
            shared.append(name)
    return shared


# --- one long weight and ten short norms -----------------------------------------------------------------------------

LONG = 1_000_000
NORMS = 10


def _uneven_entries(rank: int, world_size: int, *, filled: bool) -> dict[str, sk.Sharded]:
    """Every rank has its part of the weight; the last one the norms as well."""
    entries = {"weight": (LONG * rank // world_size, LONG * (rank + 1) // world_size, LONG)}
    if rank == world_size - 1:
        entries |= {f"norm{number}": (0, 8, 8) for number in range(NORMS)}
    made = {}
    for name, (start, stop, size) in entries.items():
        part = content(name, (size,))[start:stop].clone()
        made[name] = sk.Sharded(part if filled else torch.zeros_like(part), shape=(size,), offset=(start,))
    return made


def save_uneven_entries(rank: int, world_size: int, *, run: str) -> int:
    state = _uneven_entries(rank, world_size, filled=True)
    with skt.Checkpointer(run, state={"flat": state}, signals=False) as keeper:
        keeper.save(1)
    return len(state)


def load_uneven_entries(rank: int, world_size: int, *, run: str) -> Problems:
    state = _uneven_entries(rank, world_size, filled=False)
    with skt.Checkpointer(run, state={"flat": state}, signals=False) as keeper:
        keeper.resume()
    found = {}
    for name, held in state.items():
        part = content(name, held.shape)[held.region.offsets[0] : held.region.ends[0]]
        found[name] = difference(held.local, part)
    return found


# --- training on ------------------------------------------------------------------------------------------------------


def train(rank: int, world_size: int, *, run: str, layout: str, resume: bool) -> list[float]:
    """Losses of the global batch: six steps with a save after three, or the last three after a resume."""
    torch.manual_seed(0)
    feed = place(Feed(), layout)
    optimizer = torch.optim.AdamW(feed.parameters(), lr=0.05)
    losses = []
    with skt.Checkpointer(run, feed=feed, feed_optimizer=optimizer, signals=False) as keeper:
        start = keeper.resume() if resume else 0
        for n in range(start + 1, 7):
            torch.manual_seed(n)
            batch = torch.randn(12, 6)[rank::world_size]
            loss = (feed(batch) - batch.sum(1, keepdim=True)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total)
            losses.append(total.item() / world_size)
            if n == 3 and not resume:
                keeper.save(n)
    return losses
