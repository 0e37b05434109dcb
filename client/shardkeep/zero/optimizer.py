"""`ShardedOptimizer`: data-parallel training with optimizer state, gradients and parameters divided over the ranks.

The parts: `layout` says where every element lies, `gradients` reduces, `parameter_memory` and `units` keep parameters,
`shards` and `nvme` keep masters and state, `inner` steps them, `item` and `consolidated` give them out by name.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, overload

import torch
import torch.distributed as dist
from torch import nn
from torch.optim import Optimizer
from torch.utils._pytree import tree_leaves

from shardkeep.errors import ConfigurationError, StateError
from shardkeep.pytorch.flat_slices import is_in_slices
from shardkeep.zero.autograd_internals import accumulates, in_backward, version_of
from shardkeep.zero.budget import IN_FLIGHT as IN_FLIGHT_ON_BUDGET
from shardkeep.zero.collectives import Collectives, PendingSum
from shardkeep.zero.consolidated import gather_state, load_state
from shardkeep.zero.disk_part import MemoryPart
from shardkeep.zero.gradients import IN_FLIGHT, GradientRounds
from shardkeep.zero.inner import StepOptions
from shardkeep.zero.item import ShardedItem
from shardkeep.zero.layout import Bucket, Layout, LayoutKind, ParameterSpec
from shardkeep.zero.masters import refresh, refresh_written
from shardkeep.zero.model_hooks import watch_forward, watch_loads
from shardkeep.zero.named_parameters import check_in_model, check_inner, check_model, groups_of, named, names_of
from shardkeep.zero.nvme import open_store
from shardkeep.zero.offload import NvmeOffload
from shardkeep.zero.parameter_memory import ParameterMemory, WholeMemory, check_in_place
from shardkeep.zero.reduced_gradients import ReducedGradients, slice_in
from shardkeep.zero.shard_builder import ShardBuilder
from shardkeep.zero.shards import Shard, StatePart
from shardkeep.zero.unit_memory import UnitMemory
from shardkeep.zero.units import Units

Stage = Literal[1, 2, 3]
_MEBIBYTE = 1 << 20


class ShardedOptimizer(Optimizer):
    """Wraps the optimizer class `inner` (with its options) for a model whose ranks train on different data.

    Stage 1 divides the optimizer's state, stage 2 the reduced gradients too, stage 3 the parameters too. Parameters and
    buffers become rank 0's at construction. Every rank constructs it, runs the same backwards and calls step(),
    clip_grad_norm_() and the like together.

    `params`: parameters or groups, as torch.optim takes them; else all of the model's.
    `offload`: None, "cpu" (masters and state in the host's memory, stepped there) or `NvmeOffload`.
    `layout`: "flat" cuts buckets into equal parts; "whole" gives each parameter one owner, for optimizers that look at
    matrices.
    `master_dtype`: of the values that are stepped; parameters of another dtype are rounded from them. None: no masters.
    `reduce_dtype`: of gradients on the wire; None: the parameters'. Sums are fp32. `reduce_op`: "mean" or "sum".
    `broadcast_buffers`: rank 0's buffers go to all ranks before each training forward.
    `persistent_elements` (stage 3): modules with fewer parameters than this stay whole on every rank.
    `whole_modules` (stage 3): classes whose modules are gathered as one, with all below them: because they use the
    parameters of their submodules themselves, or to gather a block at once where single layers are small.
    """

    def __init__(
        self,
        model: nn.Module,
        inner: type[Optimizer],
        *,
        params: Iterable[Any] | None = None,
        stage: Stage = 2,
        offload: Literal["cpu"] | NvmeOffload | None = None,
        layout: LayoutKind = "flat",
        reduce_dtype: torch.dtype | None = None,
        master_dtype: torch.dtype | None = torch.float32,
        reduce_op: Literal["mean", "sum"] = "mean",
        bucket_mb: float = 25,
        broadcast_buffers: bool = True,
        persistent_elements: int = 100_000,
        whole_modules: tuple[type[nn.Module], ...] = (nn.MultiheadAttention,),
        group: dist.ProcessGroup | None = None,
        **options: Any,
    ) -> None:
        check_model(model)
        check_inner(inner, layout)
        self.stage = _one_of("stage", stage, (1, 2, 3))
        self.layout_kind = _one_of("layout", layout, ("flat", "whole"))
        where = None if isinstance(offload, NvmeOffload) else _one_of("offload", offload, (None, "cpu"))
        self._model = model
        self._master_dtype = master_dtype
        self._broadcasts_buffers = broadcast_buffers
        self._collectives = Collectives(group)
        world_size = self._collectives.world_size
        divisor = world_size if _one_of("reduce_op", reduce_op, ("mean", "sum")) == "mean" else 1
        self._parameters: list[nn.Parameter] = []
        self._group_of: list[int] = []
        self._index_of: dict[int, int] = {}
        self._layout = Layout(layout, world_size, max(1, round(bucket_mb * _MEBIBYTE)))
        self._nvme = None
        if isinstance(offload, NvmeOffload):
            self._nvme = open_store(
                offload, self._collectives, _device_of(model), kind=layout, gathers=stage == 3, wire_dtype=reduce_dtype
            )
        self._builder = ShardBuilder(
            inner,
            options,
            self._layout,
            self._group_of,
            self._nvme or where,
            divisor,
        )
        self._is_half_stepped = False
        self._memories: list[ParameterMemory] = []
        self._shards: dict[int, Shard] = {}
        self._reduced = ReducedGradients(self._shards, self._collectives)
        self._versions: list[int] = []
        self._rounds = GradientRounds(
            self._layout,
            self._parameters,
            self._collectives,
            keep_local=stage == 1,
            wire_dtype=reduce_dtype,
            sink=self._take_gradient,
            in_flight=IN_FLIGHT if self._nvme is None else IN_FLIGHT_ON_BUDGET,
        )
        self._units = Units(model, whole_modules, persistent_elements) if stage == 3 else None
        if self._units is not None:
            self._units.take_back = self._take_back
        self._rounds.after_collecting = self._after_collecting
        self._rounds.after_backward = self._after_backward
        self._has_warned = False
        prototype = inner([nn.Parameter(torch.empty(1, 1))], **options)
        super().__init__(groups_of(model, params), prototype.defaults)
        self._append(self.param_groups)
        self._broadcast_rest()
        self._broadcast_buffers()
        self._hooks = [
            *watch_forward(model, self._before_forward, self._after_forward),
            *watch_loads(model, self._after_load),
        ]

    # --- what torch.optim has ----------------------------------------------------------------------------------------

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds parameters of the model; every rank does. They get buckets of their own."""
        if not self._parameters:  # the groups to begin with
            super().add_param_group(param_group)
            return
        (added,) = groups_of(self._model, [param_group])
        added["param_names"] = named(added, names_of(self._model), f"group {len(self.param_groups)}")
        super().add_param_group(added)
        self._append(self.param_groups[-1:])

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets all gradients, reduced or not; also those of a backward that raised."""
        if self._units is not None and (self._rounds.is_running or self._units.are_called):
            self._units.reset()
        self._forget_gradients()
        super().zero_grad(set_to_none)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], Any]) -> Any: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of every shard, then every rank has the new parameters. A closure is evaluated once, before it.

        It uses the gradients up: the next backward starts anew, also where a loop calls the model's zero_grad().
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.check_stepped()
        check_in_place(self._layout, self._memories)
        check_in_model(self._model, self._layout.specs, self._parameters)
        if self._units is not None:
            self._units.check_alike(self._collectives, self._parameters[0].device)
        touched = self._rounds.settle()
        self._follow_outside_writes()
        if not bool(touched.any()):
            self._warn_of_nothing()
            return loss
        self._is_half_stepped = True
        try:
            self._step_shards(touched.tolist().__getitem__)
        except BaseException:
            if self._nvme is not None:
                self._nvme.abandon()
            raise
        self._is_half_stepped = False
        self._forget_gradients()
        self._note_versions()
        return loss

    def _step_shards(self, is_touched: Callable[[int], bool]) -> None:
        gatherings, options = [], StepOptions(self.param_groups)
        for bucket in self._layout.buckets:
            shard, memory = self._shards.get(bucket.index), self._memories[bucket.index]
            if shard is None:
                continue
            for tile in shard.tiles(step=True):
                tile.inner.step(options, is_touched)
                memory.write_own(tile.begin, tile.master)
            gatherings.append(memory.start_publish())
        options.keep()
        for gathering in gatherings:
            gathering.wait()
        if self._nvme is not None:
            self._nvme.drain()

    def state_dict(self, *, rank: int | None = None) -> dict[str, Any]:
        """The state of all ranks, as `inner` on the whole model keeps it: whole tensors on the CPU. Collective.

        With `rank` that rank alone gets it, the others the groups. Masters are beside it under `master_params`; an
        optimizer that is not sharded can load the rest. Checkpoints of Shardkeep need none of this.
        """
        self.check_stepped()
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        gathered = gather_state(self, self._collectives, rank=rank)
        for after in self._optimizer_state_dict_post_hooks.values():
            gathered = after(self, gathered) or gathered
        return gathered

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes what `state_dict` gave, of any stage and number of ranks, or a plain optimizer's; on every rank.

        Parameters are matched by name where the groups have names, else by order. Nothing is cast but where masters
        are kept otherwise; `state_dict` is left as it is. LoadError, with nothing changed, if parameters do not match.
        """
        given = dict(state_dict)
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            given = before(self, given) or given
        load_state(self, given, names_of(self._model))
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    # --- gradients ---------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backwards in here reduce nothing: what they add waits on this rank for the next one outside."""
        before, self._rounds.syncs = self._rounds.syncs, False
        try:
            yield
        finally:
            self._rounds.syncs = before

    @torch.no_grad()
    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, *, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """Scales all gradients so that their norm over all ranks is at most `max_norm`; the norm before, fp32.

        Squares are summed in fp64, so the norm hardly depends on how gradients are divided. Gradients that are not
        finite are left alone. Collective.
        """
        self._rounds.settle()
        norm = self._reduced.norm(norm_type, self._parameters[0].device)
        if not torch.isfinite(norm):
            if error_if_nonfinite:
                raise RuntimeError(f"the norm of the gradients is {float(norm)}; they were not clipped")
            return norm
        self.scale_grads_(float((max_norm / (norm + 1e-6)).clamp(max=1.0)))
        return norm

    @torch.no_grad()
    def scale_grads_(self, factor: float) -> None:
        """Multiplies all gradients. Collective."""
        self._rounds.settle()
        self._reduced.scale(factor)

    @torch.no_grad()
    def unscale_grads_(self, factor: float) -> bool:
        """Multiplies all gradients; whether they are finite on all ranks. Collective."""
        self._rounds.settle()
        return self._reduced.unscale(factor, self._parameters[0].device)

    @property
    def _step_supports_amp_scaling(self) -> bool:
        raise ConfigurationError(
            "torch.amp.GradScaler looks at p.grad, which is not what is stepped here: use shardkeep.zero.GradScaler, "
            "which unscales and checks the reduced gradients of all ranks"
        )

    def grad_slice(self, name: str) -> tuple[int, torch.Tensor] | None:
        """The part of this rank of a parameter's reduced gradient: its first element and the fp32 values, as a copy.

        None where it owns nothing of it or nothing was reduced yet. What no_sync() holds back is not in it.
        """
        index = self._index_named(name)
        bucket = self._layout.buckets[self._layout.bucket_of[index]]
        shard = self._shards.get(bucket.index)
        return None if shard is None else slice_in(shard, bucket, index)

    # --- parameters --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def gathered(self, module: nn.Module | None = None) -> Iterator[None]:
        """The parameters below a module (the model) are whole in here, to be read or written.

        At stage 3 each rank keeps its part of what it wrote: write the same on every rank. Collective at stage 3. The
        masters follow what was written, at every stage.
        """
        inside = contextlib.nullcontext() if self._units is None else self._units.gathered(module or self._model)
        with inside:
            yield
        self._follow_outside_writes()

    # --- masters -----------------------------------------------------------------------------------------------------

    @torch.no_grad()
    def refresh_master(self) -> None:
        """Takes the parameters as they are now: call it after weights were written from outside."""
        for index, shard in self._shards.items():
            refresh(shard, self._memories[index])
        self._note_versions()

    # --- state, for checkpoints --------------------------------------------------------------------------------------

    def shardkeep_item(self, name: str) -> ShardedItem:
        """How a Checkpointer keeps it."""
        return ShardedItem(name, self)

    def state_parts(self, parameter: torch.Tensor) -> Sequence[StatePart]:
        """The part of this rank of a parameter's master and state, as live memory; none where it owns nothing of it."""
        shard = self._shard_of(parameter)
        return () if shard is None else shard.state_parts(self._index_of[id(parameter)])

    def set_state_of(self, parameter: torch.Tensor, parts: Sequence[StatePart] | None) -> None:
        """Replaces this rank's part of a parameter's state; None: it was never stepped."""
        shard = self._shard_of(parameter)
        if shard is not None:
            shard.set_state(self._index_of[id(parameter)], parts, self.param_groups)

    def empty_state_of(self, parameter: torch.Tensor, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Memory for this rank's state of a parameter, to be filled and given to `set_state_of`."""
        shard = self._shard_of(parameter)
        return torch.empty(count, dtype=dtype) if shard is None else shard.empty_state(count, dtype)

    def stepped_dtype(self, parameter: torch.Tensor) -> torch.dtype:
        """The dtype of the values of a parameter that are stepped."""
        return self._master_dtype or parameter.dtype

    def has_masters(self, parameter: torch.Tensor) -> bool:
        """Whether what is stepped is not the parameter itself but of another dtype."""
        return self.stepped_dtype(parameter) != parameter.dtype

    def owns_part_of(self, parameter: torch.Tensor) -> bool:
        """Whether any element of a parameter is this rank's."""
        bucket, offset = self._place_of(parameter)
        begin, end = bucket.part(self._collectives.rank)
        return max(begin, offset) < min(end, offset + parameter.numel())

    def group_of(self, parameter: torch.Tensor) -> dict[str, Any]:
        """The param group a parameter is in."""
        return self.param_groups[self._group_of[self._index_of[id(parameter)]]]

    @property
    def is_gathered(self) -> bool:
        """Whether parameters of stage 3 are held whole, in `gathered()` or a forward."""
        return self._units is not None and self._units.are_in_use

    @torch.no_grad()
    def make_shard_of(self, parameter: torch.Tensor) -> None:
        """State for a parameter that is frozen now: it was trained before, or will be."""
        bucket, _ = self._place_of(parameter)
        if bucket.index not in self._shards:
            self._shards[bucket.index] = self._shard_for(bucket)

    @torch.no_grad()
    def refresh_master_of(self, parameter: torch.Tensor) -> None:
        """Takes one parameter as it is now."""
        bucket, offset = self._place_of(parameter)
        for part in self.state_parts(parameter):
            self._memories[bucket.index].read_own(offset + part.start, part.master)

    def check_stepped(self) -> None:
        """StateError if a step raised half-way: some of the state is a step ahead of the rest."""
        if self._is_half_stepped:
            raise StateError(
                "the last step() raised before all parameters were stepped, so they are of two steps: load a "
                "checkpoint, or stop and resume in a new process"
            )

    def was_restored(self) -> None:
        """State and parameters are those of a checkpoint now: what was gathered before is not."""
        self._is_half_stepped = False
        if self._nvme is not None:
            self._nvme.was_loaded()
        if self._units is not None:
            self._units.reset()
        for memory in self._memories:
            if isinstance(memory, UnitMemory):
                memory.free()
        self._note_versions()

    def close(self) -> None:
        """Leaves the model alone: removes every hook. The parameters keep their values."""
        self._rounds.close()
        for hook in self._hooks:
            hook.remove()
        try:
            if self._units is not None:
                self._units.close()
        finally:
            if self._nvme is not None:
                self._nvme.close()

    # --- parts -------------------------------------------------------------------------------------------------------

    def _append(self, groups: Sequence[dict[str, Any]]) -> None:
        names = names_of(self._model)
        specs, first_group = [], len(self.param_groups) - len(groups)
        for place, group in enumerate(groups, start=first_group):
            group["param_names"] = named(group, names, f"group {place}")
            for parameter, name in zip(group["params"], group["param_names"], strict=True):
                self._index_of[id(parameter)] = len(self._parameters)
                self._parameters.append(parameter)
                self._group_of.append(place)
                specs.append(self._spec(parameter, name))
        added = self._layout.append(specs) if self._nvme is None else self._nvme.fit(self._layout, specs)
        device = self._parameters[0].device if self._parameters else torch.device("cpu")
        self._collectives.check_equal(self._layout.digest(), "the parameters", device)
        for bucket in added:
            self._memories.append(self._memory_for(bucket))
        self._activate()
        self._note_versions()

    def _spec(self, parameter: nn.Parameter, name: str) -> ParameterSpec:
        run = 0 if self._units is None else self._units.run_of(parameter)
        return ParameterSpec(
            name, tuple(parameter.shape), str(parameter.dtype), parameter.itemsize, parameter.requires_grad, run
        )

    def _memory_for(self, bucket: Bucket) -> ParameterMemory:
        members = [self._parameters[index] for index in bucket.parameters]
        if self._units is not None and not self._units.is_persistent(bucket.run):
            keep = MemoryPart.of if self._nvme is None else self._nvme.keep
            return self._units.add(bucket, members, self._collectives, keep)
        return WholeMemory(bucket, members, self._collectives)

    def _activate(self) -> None:
        """Gradients and state for every bucket that has a trainable parameter now, if it has none yet."""
        for bucket in self._layout.buckets:
            trainable = [index for index in bucket.parameters if self._parameters[index].requires_grad]
            for index in trainable:
                self._rounds.watch(index)
            if trainable and bucket.index not in self._shards:
                self._shards[bucket.index] = self._shard_for(bucket)

    def _shard_for(self, bucket: Bucket) -> Shard:
        part, memory = bucket.part(self._collectives.rank), self._memories[bucket.index]
        return self._builder.shard(bucket, part, memory, self.stepped_dtype(self._parameters[bucket.parameters[0]]))

    def _take_gradient(self, bucket: int, arrived: PendingSum) -> None:
        self._shards[bucket].add_gradient(arrived)

    def _after_collecting(self, index: int) -> None:
        if self._units is not None:
            self._units.after_collecting(index, self._parameters[index])

    def _after_backward(self) -> None:
        if self._units is not None:
            self._units.after_backward()

    @torch.no_grad()
    def _take_back(self, memories: Iterable[UnitMemory]) -> None:
        taken = {id(memory) for memory in memories}
        for memory in memories:
            memory.take_back()
        for index, shard in self._shards.items():
            if id(self._memories[index]) in taken:
                refresh_written(shard, self._memories[index], self._dtype_of(index))

    def _forget_gradients(self) -> None:
        self._rounds.clear()
        self._reduced.forget()

    def _before_forward(self) -> None:
        if in_backward():
            return
        check_in_place(self._layout, self._memories)
        if self._rounds.is_running:
            self._rounds.abandon()
            if self._units is not None:
                self._units.reset()
        if self._units is not None:
            self._units.begin_forward()
        self._activate()
        if self._model.training and self._rounds.syncs and self._broadcasts_buffers and torch.is_grad_enabled():
            self._broadcast_buffers()

    def _after_forward(self, output: Any) -> None:
        """Backward begins at the outputs: its end is known even where checkpoints run backwards of their own in it."""
        if self._units is not None and not in_backward():
            self._units.after_forward()
        if not torch.is_grad_enabled():
            return
        for found in tree_leaves(output):
            if isinstance(found, torch.Tensor) and found.requires_grad:
                found.register_hook(lambda _: self._rounds.begin(accumulates=accumulates()))

    def _after_load(self, parameters: list[nn.Parameter]) -> None:
        for parameter in parameters:
            index = self._index_of.get(id(parameter))
            if index is not None:
                self.refresh_master_of(parameter)
                self._versions[index] = version_of(parameter)

    @torch.no_grad()
    def _broadcast_rest(self) -> None:
        """Parameters that are in no group are trained by nobody here, but used on every rank."""
        for parameter in self._model.parameters():
            if id(parameter) not in self._index_of and not is_in_slices(parameter):
                self._collectives.broadcast(parameter.data)

    @torch.no_grad()
    def _broadcast_buffers(self) -> None:
        for buffer in self._model.buffers():
            self._collectives.broadcast(buffer)

    def _place_of(self, parameter: torch.Tensor) -> tuple[Bucket, int]:
        index = self._index_of[id(parameter)]
        bucket = self._layout.buckets[self._layout.bucket_of[index]]
        return bucket, bucket.offsets[self._layout.place_of[index]]

    def _shard_of(self, parameter: torch.Tensor) -> Shard | None:
        return self._shards.get(self._layout.bucket_of[self._index_of[id(parameter)]])

    def _follow_outside_writes(self) -> None:
        if self._versions != [version_of(parameter) for parameter in self._parameters]:
            for index, shard in self._shards.items():
                refresh_written(shard, self._memories[index], self._dtype_of(index))
            self._note_versions()

    def _dtype_of(self, bucket: int) -> torch.dtype:
        return self._parameters[self._layout.buckets[bucket].parameters[0]].dtype

    def _note_versions(self) -> None:
        self._versions = [version_of(parameter) for parameter in self._parameters]

    def _warn_of_nothing(self) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn("step() without a gradient on any rank changes nothing", stacklevel=4)

    def _index_named(self, name: str) -> int:
        for index, spec in enumerate(self._layout.specs):
            if spec.name == name:
                return index
        raise ConfigurationError(f"this optimizer has no parameter {name!r}")


def _device_of(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def _one_of(what: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    if value not in allowed:
        raise ConfigurationError(f"{what}={value!r} is not one of {', '.join(map(repr, allowed))}")
    return value
