"""Parameters at stage 3: each rank keeps its part, and a module's parameters are whole only around their use.

A unit is what one module uses: its own parameters. Modules gather their units by hooks, the next one ahead of its use,
and free them after their forward; in backward whatever needs them gathers them again (see `saved_parameters`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map_only

from shardkeep.errors import StateError
from shardkeep.zero.autograd_internals import in_backward
from shardkeep.zero.collectives import Collectives
from shardkeep.zero.disk_part import MemoryPart
from shardkeep.zero.layout import Bucket
from shardkeep.zero.model_hooks import watch_state
from shardkeep.zero.saved_parameters import SavedParameters
from shardkeep.zero.unit_memory import KeepPart, UnitMemory
from shardkeep.zero.use_order import UseOrder

Phase = Literal["forward", "backward"]
_CONTAINERS: Final = (nn.ParameterList, nn.ParameterDict)
_PERSISTENT: Final = 0


class Unit:
    """What one module gathers and frees together."""

    def __init__(self, number: int, saved: SavedParameters, note: Callable[[int], None]) -> None:
        """`note` is called with the number whenever it is gathered."""
        self.number = number
        self.memories: list[UnitMemory] = []
        self.parameters: dict[int, nn.Parameter] = {}
        self.collected: set[int] = set()
        self.pins = 0
        """Forwards and `gathered` blocks that use it now."""
        self.blocks = 0
        """Those of them that are `gathered` blocks, which no failure of a forward ends."""
        self.calls = 0
        """How often it was called in the last forward, with inputs whose gradients say when that call is done."""
        self._saved = saved
        self._note = note

    @property
    def is_whole(self) -> bool:
        """Whether the parameters can be read."""
        return all(memory.is_whole for memory in self.memories)

    @property
    def is_collected(self) -> bool:
        """Whether every gradient that can come has come in this backward."""
        return all(index in self.collected for index, one in self.parameters.items() if one.requires_grad)

    def start_gather(self) -> None:
        """Sends for all of it."""
        if any(memory.flat is None for memory in self.memories):
            self._note(self.number)
        for memory in self.memories:
            memory.start_gather()

    def wait(self) -> None:
        """Returns when it is whole."""
        self.start_gather()
        for memory in self.memories:
            if not memory.is_whole:
                memory.wait()
                if memory.flat is not None and memory.flat.numel():
                    self._saved.is_whole(memory.flat, memory)

    def free(self) -> None:
        """Unless somebody still uses it."""
        if self.pins > 0:
            return
        for memory in self.memories:
            if memory.flat is not None:
                self._saved.is_freed(memory.flat)
                memory.free()


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """One call of a module that is under way."""

    module: nn.Module
    units: list[Unit]
    hooks: Any
    phase: Phase


class Units:
    """The units of a model, gathered by hooks of its modules, the next one ahead of its use."""

    def __init__(self, model: nn.Module, whole_modules: tuple[type[nn.Module], ...], persistent_elements: int) -> None:
        self._model = model
        self._run_of: dict[int, int] = {}
        self._units: dict[int, Unit] = {}
        self._unit_of: dict[int, Unit] = {}
        self._of_memory: dict[int, Unit] = {}
        self._saved = SavedParameters(lambda memory: self._use(self._of_memory[id(memory)], "backward"))
        self._order: dict[Phase, UseOrder] = {"forward": UseOrder(), "backward": UseOrder()}
        self._ahead: Unit | None = None
        self._kept: Unit | None = None
        self._gathers = 0
        self._calls: list[_Call] = []
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
        uses: list[tuple[nn.Module, list[int]]] = []
        for owner, parameters in members.values():
            fresh = {key: one for key, one in parameters.items() if key not in self._run_of}
            if sum(one.numel() for one in fresh.values()) < persistent:
                self._run_of.update(dict.fromkeys(fresh, _PERSISTENT))
            elif fresh:
                number += 1
                self._units[number] = Unit(number, self._saved, self._note)
                self._run_of.update(dict.fromkeys(fresh, number))
            uses.append((owner, sorted({self._run_of[key] for key in parameters} - {_PERSISTENT})))
        for owner, runs in uses:
            if runs:
                self._watch(owner, [self._units[run] for run in runs])
        for module in model.modules():
            if any(self._run_of.get(id(one)) for one in module.parameters(recurse=False)):
                self._removers += watch_state(module, self._hold, self._let_go)

    def run_of(self, parameter: nn.Parameter) -> int:
        """The run of the layout in which a parameter belongs: its unit's, or that of all persistent ones."""
        return self._run_of.get(id(parameter), _PERSISTENT)

    def is_persistent(self, run: int) -> bool:
        """Whether the parameters of a run stay whole."""
        return run == _PERSISTENT

    def add(
        self,
        bucket: Bucket,
        parameters: Sequence[nn.Parameter],
        collectives: Collectives,
        keep: KeepPart = MemoryPart.of,
    ) -> UnitMemory:
        """The memory of a bucket of a unit; `keep` says where this rank's part goes."""
        unit = self._units[bucket.run]
        memory = UnitMemory(bucket, parameters, collectives, keep)
        unit.memories.append(memory)
        self._of_memory[id(memory)] = unit
        for index, parameter in zip(bucket.parameters, parameters, strict=True):
            self._unit_of[id(parameter)] = unit
            unit.parameters[index] = parameter
        return memory

    @property
    def are_in_use(self) -> bool:
        """Whether parameters are held whole, in `gathered` or a forward."""
        return any(unit.pins for unit in self._units.values())

    @property
    def are_called(self) -> bool:
        """Whether a module's forward is under way, or was left by what is not an Exception."""
        return bool(self._calls)

    # --- gathering and freeing ---------------------------------------------------------------------------------------

    def begin_forward(self) -> None:
        """Before a forward of the whole model, outside of any backward."""
        self._drop_ahead()
        self._order["forward"].begin()
        for unit in self._units.values():
            unit.calls = 0

    def after_forward(self) -> None:
        """After it: what was sent for ahead is not kept, unless backward begins with it."""
        if self._ahead is not None and self._ahead.number != self._order["backward"].first:
            self._drop_ahead()

    def after_collecting(self, index: int, parameter: nn.Parameter) -> None:
        """A gradient was taken: with the last one of its unit the unit is done in this backward."""
        unit = self._unit_of.get(id(parameter))
        if unit is None:
            return
        unit.collected.add(index)
        if unit.is_collected:
            unit.free()

    def after_backward(self) -> None:
        """Frees what is left."""
        self._ahead = self._kept = None
        for unit in self._units.values():
            unit.collected.clear()
            unit.free()
        for order in self._order.values():
            order.begin()

    def reset(self) -> None:
        """After a forward or backward that raised."""
        while self._calls:
            self._end(self._calls.pop())
        for unit in self._units.values():
            unit.pins = unit.blocks
        self.after_backward()

    def check_alike(self, collectives: Collectives, device: torch.device) -> None:
        """StateError on every rank unless all gathered the same units since the last check: they got each other's."""
        row = torch.tensor([self._gathers], dtype=torch.int64, device=device)
        rows, self._gathers = collectives.gather_rows(row).flatten().tolist(), 0
        other = [rank for rank, gathers in enumerate(rows) if gathers != rows[0]]
        if other:
            raise StateError(
                f"ranks {', '.join(map(str, other[:8]))} used other modules than rank 0, or in another order: at "
                "stage 3 all ranks use the same ones, and none may skip one. Take stage 2, or call them on every rank"
            )

    def _note(self, number: int) -> None:
        self._gathers = hash((self._gathers, number))

    @contextlib.contextmanager
    def gathered(self, module: nn.Module) -> Iterator[None]:
        """All parameters below a module, whole; what is written into them is taken back at the end."""
        units = {unit.number: unit for one in module.parameters() if (unit := self._unit_of.get(id(one))) is not None}
        for unit in units.values():
            unit.start_gather()
        for unit in units.values():
            unit.pins += 1
            unit.blocks += 1
            unit.wait()
        try:
            yield
        finally:
            for unit in units.values():
                self.take_back(unit.memories)
                unit.pins -= 1
                unit.blocks -= 1
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
        order = self._order[phase]
        order.use(unit.number)
        if phase == "backward" and not unit.is_whole:
            unit.collected.clear()
        if self._ahead is unit:
            self._ahead = None
        elif self._ahead is not None and self._ahead.number != order.next:
            self._drop_ahead()
        unit.start_gather()
        foretold = self._units.get(order.next) if order.next is not None else None
        if foretold is not None and all(memory.flat is None for memory in foretold.memories):
            foretold.start_gather()
            self._ahead = foretold
        unit.wait()

    def _drop_ahead(self) -> None:
        """It was not used after all."""
        if self._ahead is not None:
            self._ahead.free()
            self._ahead = None

    def _watch(self, module: nn.Module, units: list[Unit]) -> None:
        """A copy of the module has the same hooks, and nothing to do with the units."""

        def before(called: nn.Module, arguments: Any, keywords: Any) -> None:
            if called is module:
                self._begin(module, units, (arguments, keywords))

        def after(called: nn.Module, _arguments: Any, output: Any) -> Any:
            if called is not module or not self._calls or self._calls[-1].module is not module:
                return None  # some other hook raised before ours was called
            is_shared = any(self._saved.holds(one) for one in _tensors(output))
            if is_shared:  # what is returned lives longer than the unit
                output = tree_map_only(torch.Tensor, lambda one: one.clone() if self._saved.holds(one) else one, output)
            self._end(self._calls.pop())
            return output if is_shared else None

        first, last = torch.compiler.disable(before), torch.compiler.disable(after)  # nothing for a compiler in there
        self._removers.append(module.register_forward_pre_hook(first, prepend=True, with_kwargs=True))
        self._removers.append(module.register_forward_hook(last, always_call=True))

    def _begin(self, module: nn.Module, units: list[Unit], inputs: Any) -> None:
        phase: Phase = "backward" if in_backward() else "forward"
        for unit in units:
            self._use(unit, phase)
            unit.pins += 1
        self._calls.append(_Call(module, units, self._saved.enter(), phase))
        if torch.is_grad_enabled():
            self._free_after_inputs(units, inputs, phase)

    def _end(self, call: _Call) -> None:
        """In a backward the parameters that were used in a forward of its own are soon used again."""
        self._saved.leave(call.hooks)
        for unit in call.units:
            unit.pins -= 1
            if call.phase == "backward" and torch.is_grad_enabled():
                continue
            if torch.is_grad_enabled() and self._is_next_in_backward(unit):
                self._ahead = unit
            else:
                unit.free()

    def _keep(self, unit: Unit) -> None:
        """Calls of it are left in this backward, soon or late: it stays until another one does."""
        if self._kept is not None and self._kept is not unit:
            self._kept.free()
        self._kept = unit

    def _is_next_in_backward(self, unit: Unit) -> bool:
        order = self._order["forward"]
        return order.is_at_end and self._order["backward"].first == unit.number and unit.pins == 0

    def _free_after_inputs(self, units: list[Unit], inputs: Any, phase: Phase) -> None:
        """Not all parameters have gradients that tell when the unit is done; the gradients of its inputs do."""
        found = [one for one in _tensors(inputs) if one.requires_grad]
        if not found:
            return
        for unit in units:
            unit.calls += phase == "forward"

        def done(_gradient: torch.Tensor) -> None:
            for unit in units:
                if unit.calls <= 1 or unit.is_collected:
                    unit.free()
                else:
                    self._keep(unit)

        for tensor in found:
            tensor.register_hook(done)

    # --- state_dict() and load_state_dict() --------------------------------------------------------------------------

    def _hold(self, module: nn.Module) -> None:
        """A module's own parameters are whole until `_let_go`, unless others free them: what is read lives on."""
        for unit in self._units_of(module):
            unit.wait()

    def _let_go(self, module: nn.Module, *, is_written: bool) -> None:
        for unit in self._units_of(module):
            if is_written:
                self.take_back(unit.memories)
            unit.free()

    def _units_of(self, module: nn.Module) -> list[Unit]:
        found = {id(unit): unit for one in module.parameters(recurse=False) if (unit := self._unit_of.get(id(one)))}
        return list(found.values())


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


def _tensors(values: Any) -> list[torch.Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]
