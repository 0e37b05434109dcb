"""Parameters at stage 3: each rank keeps its part, and a module's parameters are whole only around their use.

A unit is what one module uses: its own parameters. Its gathered memory is one storage that is given back by resizing it
to nothing, so that what autograd saved of it is valid again once it is gathered anew. A freed parameter is NaN
everywhere, expanded from one element: reading it is seen, writing it raises, and neither touches freed memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from shardkeep.errors import ConfigurationError
from shardkeep.pytorch.flat_slices import FlatPart, FlatSlices, keep_in_slices, keep_whole
from shardkeep.zero.autograd_internals import in_backward
from shardkeep.zero.collectives import Collectives, Gathering
from shardkeep.zero.layout import Bucket

Phase = Literal["forward", "backward"]
_CONTAINERS = (nn.ParameterList, nn.ParameterDict)
_PERSISTENT = 0


class UnitMemory:
    """One bucket of one unit: this rank's part always, the whole while it is gathered."""

    def __init__(self, bucket: Bucket, parameters: Sequence[nn.Parameter], collectives: Collectives) -> None:
        """`parameters`: those of the bucket, in its order. Their content becomes rank 0's; then they are freed."""
        self._bucket = bucket
        self._parameters = parameters
        self._collectives = collectives
        first = parameters[0]
        self._flat = torch.zeros(bucket.size, dtype=first.dtype, device=first.device)
        self._nan = torch.full((), torch.nan, dtype=first.dtype, device=first.device)
        self._views = []
        for parameter, offset, size in zip(parameters, bucket.offsets, bucket.sizes, strict=True):
            view = self._flat[offset : offset + size].view(parameter.shape)
            view.copy_(parameter.detach())
            self._views.append(view)
        collectives.broadcast(self._flat)
        self._begin, self._end = bucket.part(collectives.rank)
        self._own = self._flat[self._begin : self._end].clone()
        self._gathering: Gathering | None = None
        self.is_whole = True
        for place, parameter in enumerate(parameters):
            keep_in_slices(parameter, partial(self._slices, place))
        self.free()

    @property
    def own(self) -> torch.Tensor:
        """The part of this rank."""
        return self._own

    def read_own(self, begin: int, out: torch.Tensor) -> None:
        """Copies a part of it out."""
        out.copy_(self._own[begin - self._begin : begin - self._begin + out.numel()])

    def write_own(self, begin: int, values: torch.Tensor) -> None:
        """Replaces a part of it."""
        target = self._own[begin - self._begin : begin - self._begin + values.numel()]
        if target.data_ptr() != values.data_ptr():
            target.copy_(values)

    def _slices(self, place: int) -> FlatSlices:
        """What this rank has of one parameter."""
        parameter, bucket = self._parameters[place], self._bucket
        offset, size = bucket.offsets[place], bucket.sizes[place]
        first, last = max(self._begin, offset), min(self._end, offset + size)
        parts = [FlatPart(first - offset, self._own[first - self._begin : last - self._begin])] if first < last else []
        return FlatSlices(tuple(parameter.shape), parameter.dtype, tuple(parts))

    def start_publish(self) -> Gathering:
        """Whoever has the parameters gathered gets the new ones; else they are gathered when they are used."""
        if not self.is_whole:
            return Gathering()
        self._flat[self._begin : self._end] = self._own
        return self._collectives.start_gather(self._flat, self._bucket.bounds)

    def start_gather(self) -> None:
        """Sends for the others' parts. Idempotent."""
        if self.is_whole or self._gathering is not None:
            return
        self._flat.untyped_storage().resize_(self._flat.numel() * self._flat.itemsize)
        self._flat[self._begin : self._end] = self._own
        self._gathering = self._collectives.start_gather(self._flat, self._bucket.bounds)

    def wait(self) -> None:
        """Returns when the parameters are whole. Idempotent."""
        if self.is_whole:
            return
        self.start_gather()
        assert self._gathering is not None
        self._gathering.wait()
        self._gathering = None
        for parameter, view in zip(self._parameters, self._views, strict=True):
            parameter.data = view
        self.is_whole = True

    def free(self) -> None:
        """Gives the whole back; the parameters read as NaN. Idempotent."""
        if self._gathering is not None:
            self._gathering.wait()
            self._gathering = None
        for parameter in self._parameters:
            parameter.data = self._nan.expand(parameter.shape)
        self._flat.untyped_storage().resize_(0)
        self.is_whole = False

    def release(self) -> None:
        """The parameters are ordinary ones from now on."""
        for parameter in self._parameters:
            keep_whole(parameter)

    def take_back(self) -> None:
        """Keeps the part of this rank of what was written into the whole."""
        if self.is_whole:
            self._own.copy_(self._flat[self._begin : self._end])


class Unit:
    """What one module gathers and frees together."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.memories: list[UnitMemory] = []
        self.trainable: set[int] = set()
        self.collected: set[int] = set()
        self.pins = 0

    @property
    def is_whole(self) -> bool:
        """Whether the parameters can be read."""
        return all(memory.is_whole for memory in self.memories)

    def start_gather(self) -> None:
        """Sends for all of it."""
        for memory in self.memories:
            memory.start_gather()

    def wait(self) -> None:
        """Returns when it is whole."""
        for memory in self.memories:
            memory.start_gather()
        for memory in self.memories:
            memory.wait()

    def free(self) -> None:
        """Unless somebody still uses it."""
        if self.pins == 0:
            for memory in self.memories:
                memory.free()


class Units:
    """The units of a model, gathered by hooks of its modules, the next one ahead of its use."""

    def __init__(self, model: nn.Module, whole_modules: tuple[type[nn.Module], ...], persistent_elements: int) -> None:
        self._model = model
        self._run_of: dict[int, int] = {}
        self._units: dict[int, Unit] = {}
        self._unit_of: dict[int, Unit] = {}
        self._owners: dict[int, list[nn.Module]] = {}
        self._follows: dict[tuple[Phase, int], int] = {}
        self._last: dict[Phase, int] = {"forward": 0, "backward": 0}
        self._removers: list[Any] = []
        self.take_back: Callable[[Iterable[UnitMemory]], None] = lambda _: None
        """Called with memories that were written from outside, while they are whole."""
        self._divide(model, whole_modules, persistent_elements)

    # --- which parameter is in which unit ----------------------------------------------------------------------------

    def _divide(self, model: nn.Module, whole_modules: tuple[type[nn.Module], ...], persistent: int) -> None:
        members: dict[int, tuple[nn.Module, dict[int, nn.Parameter]]] = {}
        for owner, holder in _owners(model, whole_modules):
            found = members.setdefault(id(owner), (owner, {}))[1]
            found.update((id(parameter), parameter) for parameter in holder.parameters(recurse=False))
        number = _PERSISTENT
        for owner, parameters in members.values():
            fresh = {key: one for key, one in parameters.items() if key not in self._run_of}
            if sum(one.numel() for one in fresh.values()) < persistent:
                self._run_of.update(dict.fromkeys(fresh, _PERSISTENT))
            else:
                number += 1
                self._units[number] = Unit(number)
                self._run_of.update(dict.fromkeys(fresh, number))
            for run in {self._run_of[key] for key in parameters} - {_PERSISTENT}:
                self._owners.setdefault(run, []).append(owner)
        for run, owners in self._owners.items():
            for owner in owners:
                self._watch(owner, self._units[run])
        for module in model.modules():
            self._watch_state(module)

    def run_of(self, parameter: nn.Parameter) -> int:
        """The run of the layout in which a parameter belongs: its unit's, or that of all persistent ones."""
        return self._run_of.get(id(parameter), _PERSISTENT)

    def is_persistent(self, run: int) -> bool:
        """Whether the parameters of a run stay whole."""
        return run == _PERSISTENT

    def add(self, bucket: Bucket, parameters: Sequence[nn.Parameter], collectives: Collectives) -> UnitMemory:
        """The memory of a bucket of a unit."""
        unit = self._units[bucket.run]
        memory = UnitMemory(bucket, parameters, collectives)
        unit.memories.append(memory)
        for index, parameter in zip(bucket.parameters, parameters, strict=True):
            self._unit_of[id(parameter)] = unit
            if parameter.requires_grad:
                unit.trainable.add(index)
        return memory

    # --- gathering and freeing ---------------------------------------------------------------------------------------

    def after_collecting(self, index: int, parameter: nn.Parameter) -> None:
        """A gradient was taken: with the last one of its unit the unit is done in this backward."""
        unit = self._unit_of.get(id(parameter))
        if unit is None:
            return
        unit.trainable.add(index)
        unit.collected.add(index)
        if unit.collected >= unit.trainable:
            unit.free()

    def after_backward(self) -> None:
        """Frees what is left."""
        for unit in self._units.values():
            unit.collected.clear()
            unit.free()
        self._last["backward"] = 0

    def reset(self) -> None:
        """After a forward or backward that raised."""
        for unit in self._units.values():
            unit.pins = 0
        self.after_backward()
        self._last["forward"] = 0

    @contextlib.contextmanager
    def gathered(self, module: nn.Module) -> Iterator[None]:
        """All parameters below a module, whole; what is written into them is taken back at the end."""
        units = {unit.number: unit for one in module.parameters() if (unit := self._unit_of.get(id(one))) is not None}
        for unit in units.values():
            unit.pins += 1
            unit.wait()
        try:
            yield
        finally:
            for unit in units.values():
                self.take_back(unit.memories)
                unit.pins -= 1
                unit.free()

    def close(self) -> None:
        """Leaves the modules alone, with whole parameters."""
        for remover in self._removers:
            remover.remove()
        for unit in self._units.values():
            unit.wait()
            for memory in unit.memories:
                memory.release()

    def _use(self, unit: Unit, phase: Phase) -> None:
        self._follows[phase, self._last[phase]] = unit.number
        self._last[phase] = unit.number
        unit.start_gather()
        ahead = self._units.get(self._follows.get((phase, unit.number), _PERSISTENT))
        if ahead is not None and ahead is not unit:
            ahead.start_gather()
        unit.wait()

    def _watch(self, module: nn.Module, unit: Unit) -> None:
        def before(_module: nn.Module, arguments: Any) -> None:
            self._use(unit, "backward" if in_backward() else "forward")
            unit.pins += 1
            if torch.is_grad_enabled() and not in_backward():
                self._free_after_inputs(unit, arguments)

        def after(_module: nn.Module, _arguments: Any, output: Any) -> None:
            unit.pins = max(0, unit.pins - 1)
            if in_backward():
                return
            if torch.is_grad_enabled():
                for tensor in _differentiable(output):
                    tensor.register_hook(lambda _: self._use(unit, "backward"))
            unit.free()

        self._removers.append(module.register_forward_pre_hook(before))
        self._removers.append(module.register_forward_hook(after, always_call=True))

    def _free_after_inputs(self, unit: Unit, arguments: Any) -> None:
        """Frozen parameters have no gradient that tells when the unit is done: the gradients of its inputs do."""

        def done(_gradient: torch.Tensor) -> None:
            if unit.collected >= unit.trainable:
                unit.free()

        for tensor in _differentiable(arguments):
            tensor.register_hook(done)

    # --- state_dict() and load_state_dict() --------------------------------------------------------------------------

    def _watch_state(self, module: nn.Module) -> None:
        """Each module's own parameters are gathered, copied out and freed before the next module's."""
        if not any(self._run_of.get(id(one)) for one in module.parameters(recurse=False)):
            return

        def before_state(_module: nn.Module, _prefix: str, keep_vars: bool) -> None:
            if not keep_vars:
                self._pin(module)

        def after_state(_module: nn.Module, state: dict[str, Any], prefix: str, _metadata: Any) -> None:
            own = dict(module.named_parameters(recurse=False, remove_duplicate=False))
            copied = False
            for name, parameter in own.items():
                held = state.get(prefix + name)
                if held is not None and held is not parameter and id(parameter) in self._unit_of:
                    state[prefix + name] = held.clone()
                    copied = True
            if copied:
                self._unpin(module)

        def before_load(_module: nn.Module, _state: Any, _prefix: str, metadata: dict[str, Any], *_rest: Any) -> None:
            if metadata.get("assign_to_params_buffers"):
                raise ConfigurationError("load_state_dict(assign=True) would replace sharded parameters; leave it out")
            self._pin(module)

        def after_load(_module: nn.Module, _keys: Any) -> None:
            for unit in self._units_of(module):
                self.take_back(unit.memories)
            self._unpin(module)

        self._removers += [
            module.register_state_dict_pre_hook(before_state),
            module.register_state_dict_post_hook(after_state),
            module.register_load_state_dict_pre_hook(before_load),
            module.register_load_state_dict_post_hook(after_load),
        ]

    def _units_of(self, module: nn.Module) -> list[Unit]:
        found = {id(unit): unit for one in module.parameters(recurse=False) if (unit := self._unit_of.get(id(one)))}
        return list(found.values())

    def _pin(self, module: nn.Module) -> None:
        for unit in self._units_of(module):
            unit.pins += 1
            unit.wait()

    def _unpin(self, module: nn.Module) -> None:
        for unit in self._units_of(module):
            unit.pins -= 1
            unit.free()


def _owners(model: nn.Module, whole_modules: tuple[type[nn.Module], ...]) -> Iterator[tuple[nn.Module, nn.Module]]:
    """(the module whose forward uses them, the module that holds them) for every module with parameters."""

    def visit(module: nn.Module, user: nn.Module | None, seen: set[int]) -> Iterator[tuple[nn.Module, nn.Module]]:
        if id(module) in seen:
            return
        seen.add(id(module))
        owner = user or module
        if user is None and isinstance(module, whole_modules):
            user = module
        yield owner, module
        for child in module.children():
            yield from visit(child, user or (owner if isinstance(child, _CONTAINERS) else None), seen)

    yield from visit(model, None, set())


def _differentiable(values: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor) and one.requires_grad]
