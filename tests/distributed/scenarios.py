"""What ranks do in these tests: each function is one short life of a Checkpointer, or two, on every rank."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset

import shardkeep.pytorch as skt
from shardkeep.errors import InexactResume, ShardkeepError
from shardkeep.pytorch.checkpointer import Checkpointer
from shardkeep.pytorch.random_sources import torch_bytes
from shardkeep.pytorch.sampler import ResumableSampler
from tests.distributed.toys import Training, make_model, make_net, report


class SelfCounting(DataLoader[Any]):
    """What torchdata's StatefulDataLoader looks like to a keeper."""

    def __init__(self) -> None:
        super().__init__(TensorDataset(torch.arange(4)))
        self.position: dict[str, int] = {"yielded": 0}

    def state_dict(self) -> dict[str, int]:
        return dict(self.position)

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.position = dict(state)


def outcome(keeper: Checkpointer) -> str:
    """How the last save ended, in words: `committed`, or the error's type and message."""
    try:
        keeper.wait()
    except ShardkeepError as error:
        return f"{type(error).__name__}: {error}"
    return "committed"


def try_save(keeper: Checkpointer, n: int) -> str:
    """Save and wait."""
    try:
        keeper.save(n)
    except ShardkeepError as error:
        return f"{type(error).__name__}: {error}"
    return outcome(keeper)


def save_and_resume(rank: int, world_size: int, *, run: str, layout: str) -> dict[str, Any]:
    """Train 3 steps, save, go on for 2; then resume into a new model and go on for 2 as well."""
    first = Training(make_model(layout), rank=rank)
    batches = first.batches()
    for _ in range(3):
        first.train_on(next(batches))
    with skt.Checkpointer(run, **first.items()) as keeper:
        keeper.save(3)
    buffers = {name: buffer.tolist() for name, buffer in first.model.named_buffers()}
    for _ in range(2):
        first.train_on(next(batches))
    second = Training(make_model(layout), rank=rank)
    with skt.Checkpointer(run, **second.items()) as keeper:
        keeper.resume()
    restored_buffers = {name: buffer.tolist() for name, buffer in second.model.named_buffers()}
    batches = second.batches()
    for _ in range(2):
        second.train_on(next(batches))
    return {
        "went_on": report(first, None),
        "resumed": report(second, keeper),
        "buffers": buffers,
        "restored_buffers": restored_buffers,
    }


def train_or_resume(rank: int, world_size: int, *, run: str, layout: str, save: bool) -> dict[str, Any]:
    """Train 3 steps and save; or only resume. Gives the whole tensors, whatever the layout."""
    training = Training(make_model(layout), rank=rank)
    with skt.Checkpointer(run, **training.items()) as keeper:
        if save:
            batches = training.batches()
            for _ in range(3):
                training.train_on(next(batches))
            keeper.save(3)
        else:
            keeper.resume()
    names = [name for name, _ in training.model.named_parameters()]
    states = [{"value": each.detach(), **training.optimizer.state[each]} for each in training.model.parameters()]
    whole = {
        f"{name}.{key}": (value.full_tensor() if isinstance(value, DTensor) else value).tolist()
        for name, state in zip(names, states, strict=True)
        for key, value in state.items()
    }
    return {"whole": whole, "position": training.sampler.samples, "loop": training.loop, **report(training, keeper)}


def save_stages(rank: int, world_size: int, *, run: str) -> dict[str, Any]:
    """Two pipeline stages of two replicas each: names of their own by stage, nothing in common."""
    stage = rank // 2
    states = []
    for attempt in range(2):
        torch.manual_seed(10 * attempt + stage)
        net = nn.Linear(4 + stage, 3)
        optimizer = torch.optim.AdamW(net.parameters())
        with skt.Checkpointer(run, state={f"stage{stage}": net, f"optimizer{stage}": optimizer}) as keeper:
            if attempt == 0:
                net(torch.ones(2, 4 + stage)).sum().backward()
                optimizer.step()
                keeper.save(1)
            else:
                keeper.resume()
        moments = [state[key].tolist() for state in optimizer.state.values() for key in sorted(state)]
        states.append([*(value.tolist() for value in net.state_dict().values()), *moments])
    assert keeper.resumed is not None
    return {"equal": states[0] == states[1], "verdict": keeper.resumed.verdict}


def diverge(rank: int, world_size: int, *, run: str) -> str:
    """One element of one replica flips."""
    net = make_net()
    weight = net.get_parameter("3.weight")
    if rank == 1:
        with torch.no_grad():
            weight[1, 2] += 1e-6
    with skt.Checkpointer(run, model=net) as keeper:
        said = try_save(keeper, 5)
        with torch.no_grad():
            weight.zero_()
        return said if try_save(keeper, 6) == "committed" else "and the next save failed too"


def keep_a_plain_tensor_that_differs(rank: int, world_size: int, *, run: str, per_rank: bool) -> Any:
    """A key whose value is the rank."""
    stage = torch.tensor(rank)
    state: dict[str, Any] = {"stage": skt.PerRank(stage) if per_rank else stage}
    keeper = skt.Checkpointer(run, state=state)
    said = try_save(keeper, 1)
    if said != "committed":
        return said
    stage.fill_(77)
    keeper.resume()
    keeper.close()
    return int(state["stage"].value)


def register_data_on_rank_0_only(rank: int, world_size: int, *, run: str) -> list[str]:
    """The other ranks have the model only."""
    items: dict[str, Any] = {"model": make_net()}
    if rank == 0:
        items["data"] = ResumableSampler(8, batch_size=4)
    keeper = skt.Checkpointer(run, **items)
    return [try_save(keeper, n) for n in (1, 2, 3, 4)]


def save_different_steps(rank: int, world_size: int, *, run: str) -> str:
    """Rank 1 is one step behind."""
    keeper = skt.Checkpointer(run, loop={"n": 0})
    return try_save(keeper, 100 - 10 * rank)


def fail_on_one_rank(rank: int, world_size: int, *, run: str) -> dict[str, Any]:
    """At saves 2 and 4 rank 1 cannot be captured; the others learn at once, and the next save is made."""
    loop: dict[str, Any] = {"n": 0}
    outcomes = []
    started = time.monotonic()
    with skt.Checkpointer(run, loop=loop, every_steps=1) as keeper:
        keeper.resume()
        for n in range(1, 7):
            loop["n"] = print if rank == 1 and n in (3, 5) else n
            keeper.step(n)
            outcomes.append(outcome(keeper))
    return {"outcomes": outcomes, "seconds": time.monotonic() - started}


def let_an_expert_wake_up_late(rank: int, world_size: int, *, run: str) -> dict[str, Any]:
    """Each rank has an expert of its own; rank 1's gets its first gradient after save 2, between two agreements."""
    shared, expert = make_net(), nn.Linear(2, 2)
    optimizer = torch.optim.AdamW([*shared.parameters(), *expert.parameters()])
    items: dict[str, Any] = {"model": shared, f"expert{rank}": expert, f"optimizer{rank}": optimizer}
    outcomes = []
    with skt.Checkpointer(run, state=items) as keeper:
        for n in range(1, 7):
            optimizer.zero_grad()
            loss = shared(torch.ones(2, 8)).sum() * 0
            if rank == 0 or n > 3:
                loss = loss + expert(torch.ones(2, 2)).sum()
            loss.backward()
            optimizer.step()
            keeper.save(n)
            outcomes.append(outcome(keeper))
        kept = expert.weight.tolist()
        with torch.no_grad():
            expert.weight.zero_()
        keeper.resume()
        return {"outcomes": outcomes, "restored": expert.weight.tolist() == kept}


def save_per_rank_things(rank: int, world_size: int, *, run: str) -> dict[str, Any]:
    """Generators, a loader that counts for itself, PerRank values, big values: global and one rank's own."""
    items = per_rank_items()
    torch.manual_seed(1000 + rank)
    random.seed(2000 + rank)
    np.random.seed(3000 + rank)
    items["loader"].position = {"yielded": 10 + rank}
    items["own"].value = {"rank": rank, "blob": bytes([rank]) * 100_000}
    items["loop"].update(table=list(range(40_000)), best=0.25)
    items["differs"]["host"] = f"node-{rank}"
    with skt.Checkpointer(run, state=items) as keeper:
        keeper.save(9)
    return observe(items)


def per_rank_items() -> dict[str, Any]:
    """What `save_per_rank_things` keeps, fresh."""
    return {
        "loader": SelfCounting(),
        "own": skt.PerRank({"rank": -1, "blob": b""}),
        "loop": {"table": [], "best": 1.0},
        "differs": {"host": "fresh"},
    }


def resume_per_rank_things(rank: int, world_size: int, *, run: str) -> dict[str, Any]:
    """Strictly first, then as it comes."""
    items = per_rank_items()
    torch.manual_seed(0)
    with skt.Checkpointer(run, state=items) as keeper:
        before, strict = observe(items), ""
        try:
            keeper.resume(strict=True)
        except InexactResume as error:
            strict = "; ".join(error.reasons)
            assert observe(items) == before
            keeper.resume()
        assert keeper.resumed is not None
        return {**observe(items), "strict": strict, "reasons": list(keeper.resumed.reasons)}


def observe(items: dict[str, Any]) -> dict[str, Any]:
    """The items, the generators' states, and what they draw next."""
    states = (torch_bytes(torch.get_rng_state()).hex(), repr(random.getstate()), repr(np.random.get_state()))
    return {
        "rng": hash_of(states),
        "position": dict(items["loader"].position),
        "own": (items["own"].value["rank"], len(items["own"].value["blob"])),
        "table": len(items["loop"]["table"]),
        "best": items["loop"]["best"],
        "host": items["differs"]["host"],
    }


def hash_of(states: tuple[str, ...]) -> str:
    """A short name for states too long to print."""
    import hashlib

    return hashlib.sha256("/".join(states).encode()).hexdigest()[:16]


def request_on_rank_1(rank: int, world_size: int, *, run: str) -> list[tuple[int, bool]]:
    """Rank 1 wants a save after step 2 and a stop after step 5."""
    seen = []
    with skt.Checkpointer(run, loop={"n": 0}) as keeper:
        for n in range(1, 20):
            if rank == 1 and n in (3, 6):
                keeper.request_save(stop=n == 6)
            stop = keeper.step(n)
            seen.append((n, stop))
            if stop:
                break
    return seen


def poll_in_an_evaluation(rank: int, world_size: int, *, run: str) -> tuple[int, bool]:
    """Rank 1 gets the wish while all evaluate."""
    with skt.Checkpointer(run, loop={"n": 0}) as keeper:
        keeper.step(1)
        polls = 0
        while not keeper.poll():
            polls += 1
            assert polls < 100
            if rank == 1 and polls == 5:
                keeper.request_save(stop=True)
        return polls, keeper.step(1)


def train_until_stopped(rank: int, world_size: int, *, run: str, directory: str) -> dict[str, Any]:
    """A loop that only a signal ends. Tells by a file that it runs."""
    training = Training(make_model("fsdp"), rank=rank)
    with skt.Checkpointer(run, **training.items()) as keeper:
        start = keeper.resume()
        batches = training.batches()
        for n in range(start + 1, 100_000):
            training.train_on(next(batches))
            if keeper.step(n):
                break
            if n == start + 3:
                Path(directory, f"running-{rank}").touch()
            time.sleep(0.002)
    return {**report(training, keeper), "step": n}


def save_on_signals(rank: int, world_size: int, *, run: str, directory: str) -> dict[str, Any]:
    """Two tensors that are equal at every step's edge and nowhere else."""
    first, second = torch.zeros(64, 64), torch.zeros(64, 64)
    weight = torch.ones(64, 64, requires_grad=True)
    with skt.Checkpointer(run, first=first, second=second) as keeper:
        Path(directory, f"running-{rank}").touch()
        n = 0
        while True:
            n += 1
            first.add_(1)
            (weight @ weight).sum().backward()
            second.add_(1)
            if keeper.step(n):
                break
    return {"step": n, "failures": len(keeper.failures)}


def die_while_saving(rank: int, world_size: int, *, run: str) -> None:
    """Step 20 is committed; at step 40 rank 1 is gone before it has handed anything in, and rank 0 waits for it."""

    class Deadly:
        def state_dict(self) -> dict[str, int]:
            if rank == 1 and last_step == 40:
                os._exit(1)
            return {"n": 0}

        def load_state_dict(self, state: dict[str, int]) -> None:
            """Nothing to load."""

    keeper = skt.Checkpointer(run, model=make_net(), deadly=Deadly())
    keeper.resume()
    for last_step in (5, 10, 20, 40):
        keeper.save(last_step)
        keeper.wait()


def resume_and_save(rank: int, world_size: int, *, run: str, step: int) -> tuple[int, str, list[Any]]:
    """A new launch that reaches the step again."""
    dist.barrier()
    with skt.Checkpointer(run, model=make_net()) as keeper:
        start = keeper.resume()
        return start, try_save(keeper, step), keeper.failures
