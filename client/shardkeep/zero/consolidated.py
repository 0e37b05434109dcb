"""The gathered state of a sharded optimizer, as a plain one keeps it: tensor by tensor, never all of a rank's at once.

`state` and `param_groups` are those of `torch.optim.Optimizer.state_dict()`, with whole tensors on the CPU. Masters are
beside them under `master_params`, where a plain optimizer neither takes them for state nor trips over them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import torch

from shardkeep.errors import LoadError
from shardkeep.pytorch.flat_slices import FlatPart, slices_of
from shardkeep.pytorch.optimizer_groups import restore_group
from shardkeep.zero.collectives import Collectives
from shardkeep.zero.item_restore import set_state
from shardkeep.zero.shards import StatePart

if TYPE_CHECKING:
    from shardkeep.zero.optimizer import ShardedOptimizer

MASTERS: Final = "master_params"
StateDict = dict[str, Any]


@dataclass(slots=True)
class _Held:
    """What a rank has of one parameter: which elements; of which arrays, with dtype, and shape if whole; values."""

    ranges: list[tuple[int, int]]
    master: torch.dtype | None
    arrays: dict[str, tuple[torch.dtype, tuple[int, ...] | None]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def gather_state(optimizer: ShardedOptimizer, collectives: Collectives, *, rank: int | None) -> StateDict:
    """The whole on one rank, or with None on every rank; the others get the groups alone. Collective."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {}
    masters: dict[int, torch.Tensor] = {}
    held = collectives.gather_objects([_held(optimizer, parameter) for parameter in parameters])
    for index, parameter in enumerate(parameters):
        parts = optimizer.state_parts(parameter)
        owners = [(owner, found) for owner, of_rank in enumerate(held) if (found := of_rank[index]) is not None]
        gathered = _Gathered(collectives, parameter, parts, owners, rank)
        if not owners:
            continue
        first = owners[0][1]
        if first.master is not None:
            masters |= gathered.sliced(index, "", first.master)
        entry: dict[str, Any] = {}
        for key, (dtype, shape) in first.arrays.items():
            entry |= gathered.sliced(key, key, dtype) if shape is None else gathered.whole(key, dtype, shape)
        if gathered.is_wanted and (entry or first.values):
            state[index] = {**{key: copy.deepcopy(value) for key, value in first.values.items()}, **entry}
    return {"state": state, "param_groups": _packed(optimizer), MASTERS: masters}


def _held(optimizer: ShardedOptimizer, parameter: torch.Tensor) -> _Held | None:
    parts = optimizer.state_parts(parameter)
    if not parts:
        return None
    first = parts[0]
    found = _Held([(part.start, part.stop) for part in parts], None, {}, dict(first.values))
    if optimizer.has_masters(parameter):
        found.master = first.master.dtype
    for key, tensor in first.tensors.items():
        is_slice = optimizer.layout_kind == "flat" or tensor.shape == parameter.shape
        found.arrays[key] = (tensor.dtype, None if is_slice else tuple(tensor.shape))
    return found


@dataclass(slots=True)
class _Gathered:
    """The gathers of one parameter's tensors. The empty key is the master."""

    collectives: Collectives
    parameter: torch.Tensor
    parts: Any
    owners: list[tuple[int, _Held]]
    rank: int | None

    @property
    def is_wanted(self) -> bool:
        return self.rank is None or self.rank == self.collectives.rank

    def sliced(self, name: Any, key: str, dtype: torch.dtype) -> dict[Any, torch.Tensor]:
        """A tensor in slices under `name`; nothing where it is not wanted."""
        whole = torch.empty(self.parameter.numel() if self.is_wanted else 0, dtype=dtype)
        for owner, held in self.owners:
            for at, (start, stop) in enumerate(held.ranges):
                own = None
                if owner == self.collectives.rank:
                    part: StatePart = self.parts[at]
                    own = part.tensors[key] if key else part.master
                self._send(owner, own, whole[start:stop], stop - start)
        return {name: whole.view(self.parameter.shape)} if self.is_wanted else {}

    def whole(self, key: str, dtype: torch.dtype, shape: tuple[int, ...]) -> dict[Any, torch.Tensor]:
        """A tensor that its owner has whole."""
        owner = self.owners[0][0]
        made = torch.empty(shape, dtype=dtype)
        own = self.parts[0].tensors[key] if owner == self.collectives.rank else None
        self._send(owner, own, made.view(-1), made.numel())
        return {key: made} if self.is_wanted else {}

    def _send(self, owner: int, own: torch.Tensor | None, target: torch.Tensor, count: int) -> None:
        """As bytes, which every backend can send."""
        given = None if own is None else own.detach().contiguous().view(-1).view(torch.uint8)
        size = count * target.itemsize
        found = self.collectives.send(given, size, source=owner, to=self.rank, device=self.parameter.device)
        if self.is_wanted and found is not None:
            target.view(torch.uint8).copy_(found)


def _packed(optimizer: ShardedOptimizer) -> list[dict[str, Any]]:
    packed, start = [], 0
    for group in optimizer.param_groups:
        numbers = list(range(start, start + len(group["params"])))
        start += len(numbers)
        packed.append({key: value for key, value in group.items() if key != "params"} | {"params": numbers})
    return packed


def load_state(optimizer: ShardedOptimizer, given: Mapping[str, Any], names: Mapping[int, list[str]]) -> None:
    """Takes a gathered state or a plain optimizer's, by names where it has any; `given` is left as it is.

    The groups stay the same dicts. LoadError, with nothing changed, if parameters do not match.
    """
    matched = list(_matched(optimizer, given, names))
    masters = given.get(MASTERS, {})
    for number, parameter in matched:
        _load_master(optimizer, parameter, masters.get(number))
        _load_parameter(optimizer, parameter, given["state"].get(number) or {}, has_master=number in masters)
    saved_groups = {number: group for group in given["param_groups"] for number in group["params"]}
    number_of = {id(parameter): number for number, parameter in matched}
    for at, live in enumerate(optimizer.param_groups):
        sources = {id(found): found for one in live["params"] if (found := saved_groups[number_of[id(one)]])}
        copies = [{key: copy.deepcopy(value) for key, value in one.items()} for one in sources.values()]
        restore_group(f"group {at}", live, copies)
    optimizer.was_restored()


def _matched(
    optimizer: ShardedOptimizer, given: Mapping[str, Any], names: Mapping[int, list[str]]
) -> Iterator[tuple[int, torch.Tensor]]:
    groups = given["param_groups"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if all("param_names" in group for group in groups):
        named = [zip(group["param_names"], group["params"], strict=True) for group in groups]
        number_of = {name: number for pairs in named for name, number in pairs}
        for parameter in parameters:
            found = next((number_of[name] for name in names[id(parameter)] if name in number_of), None)
            if found is None:
                raise LoadError(f"the state has no parameter {names[id(parameter)][0]}; nothing was loaded")
            yield found, parameter
        return
    counts = [len(group["params"]) for group in groups]
    if counts != [len(group["params"]) for group in optimizer.param_groups]:
        raise LoadError(f"the state has groups of {counts} parameters without names; nothing was loaded")
    yield from zip((number for group in groups for number in group["params"]), parameters, strict=True)


def _load_master(optimizer: ShardedOptimizer, parameter: torch.Tensor, master: torch.Tensor | None) -> None:
    if master is None or master.shape != parameter.shape or not parameter.numel():
        return
    flat = master.detach().reshape(-1)
    if optimizer.has_masters(parameter):
        optimizer.make_shard_of(parameter)
        for part in optimizer.state_parts(parameter):
            part.master.copy_(flat[part.start : part.stop])
    elif parameter.dtype == master.dtype:
        _write(parameter, master)
        optimizer.refresh_master_of(parameter)


@torch.no_grad()
def _write(parameter: torch.Tensor, values: torch.Tensor) -> None:
    """A parameter takes the master, from which it had been rounded."""
    sliced = slices_of(parameter)
    if sliced is None:
        parameter.copy_(values)
        return
    part: FlatPart
    for part in sliced.parts:
        part.values.copy_(values.reshape(-1)[part.start : part.start + part.values.numel()])


def _load_parameter(
    optimizer: ShardedOptimizer, parameter: torch.Tensor, state: Mapping[str, Any], *, has_master: bool
) -> None:
    if not state:
        optimizer.set_state_of(parameter, None)
        return
    stepped = optimizer.stepped_dtype(parameter)
    then = torch.float32 if has_master else parameter.dtype
    optimizer.make_shard_of(parameter)
    parts = optimizer.state_parts(parameter)
    arrays: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    for key, value in state.items():
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape and key != "step":
            arrays[key] = value.detach().reshape(-1)
        else:
            values[key] = value

    def slice_of(key: str, at: int) -> torch.Tensor:
        part, array = parts[at], arrays[key]
        dtype = stepped if array.dtype == then else array.dtype
        return array[part.start : part.stop].to(part.master.device, dtype, copy=True)

    set_state(optimizer, parameter, parts, slice_of, arrays, values)
