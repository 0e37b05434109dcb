"""Gradients on their way from autograd to the rank that owns them: collected into buckets, reduced while backward runs.

Buckets leave in the order of their indexes, on every rank, whatever order their gradients come in (as DDP does). What
did not arrive by the end of a backward leaves as zero, so ranks that used different parameters still agree. Reduction
is linear: a gradient that comes after its bucket left waits for the next round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakMethod

import torch
from torch import nn
from torch.utils.hooks import RemovableHandle

from shardkeep.errors import StateError
from shardkeep.zero.autograd_internals import at_end_of_backward, is_accumulating, version_of
from shardkeep.zero.collectives import Collectives, PendingSum
from shardkeep.zero.layout import Bucket, Layout

IN_FLIGHT: Final = 2
"""Reductions under way at once: more would hold more memory and gain nothing."""

Sink = Callable[[int, PendingSum], None]


@dataclass(slots=True)
class _Filling:
    """One bucket in the present round. `missing`: parameters trained now whose gradient did not arrive yet."""

    missing: int
    is_reduced: bool
    memory: torch.Tensor | None = None
    arrived: set[int] = field(default_factory=set)
    has_left: bool = False


class GradientRounds:
    """The rounds of one optimizer: each backward that is not under `no_sync` is one."""

    def __init__(
        self,
        layout: Layout,
        parameters: Sequence[nn.Parameter],
        collectives: Collectives,
        *,
        keep_local: bool,
        wire_dtype: torch.dtype | None,
        sink: Sink,
        in_flight: int = IN_FLIGHT,
    ) -> None:
        """`keep_local`: `p.grad` stays this rank's own gradient (stage 1). `sink` takes each bucket's sum."""
        self.syncs = True
        self.has_failed = False
        self.after_backward: Callable[[], None] = lambda: None
        self.after_collecting: Callable[[int], None] = lambda _: None
        """Called with the index of a parameter whose gradient was taken."""
        self.touched: set[int] = set()
        self._layout = layout
        self._parameters = parameters
        self._collectives = collectives
        self._keep_local = keep_local
        self._wire_dtype = wire_dtype
        self._sink = sink
        self._in_flight = in_flight
        self._fillings: dict[int, _Filling] = {}
        self._next = 0
        self._flying: deque[tuple[int, PendingSum]] = deque()
        self._waiting: dict[int, torch.Tensor] = {}
        self._local: dict[int, torch.Tensor] = {}
        self._kept: dict[int, tuple[int, int]] = {}
        self._spare: torch.Tensor | None = None
        self._has_begun = False
        self._accumulates = False
        self._hooks: dict[int, list[RemovableHandle]] = {}

    # --- hooks -------------------------------------------------------------------------------------------------------

    def watch(self, index: int) -> None:
        """Collect the gradients of a parameter from now on. Idempotent."""
        parameter = self._parameters[index]
        if index in self._hooks or not parameter.requires_grad:
            return
        collect: WeakMethod[Callable[[int], None]] = WeakMethod(self._collect)
        set_aside: WeakMethod[Callable[[int], None]] = WeakMethod(self._set_aside)
        hooks = [parameter.register_post_accumulate_grad_hook(lambda _: _call(collect, index))]
        if self._keep_local:
            hooks.append(parameter.register_hook(lambda _: _call(set_aside, index)))
        self._hooks[index] = hooks

    def close(self) -> None:
        """Leave the parameters alone."""
        for handles in self._hooks.values():
            for handle in handles:
                handle.remove()
        self._hooks.clear()

    def begin(self, *, accumulates: bool = True) -> None:
        """Called inside a backward, at the latest by its first gradient: its end will flush. Idempotent.

        `accumulates`: False for torch.autograd.grad(), which gives no parameter a gradient: nothing is reduced then.
        """
        self._accumulates = self._accumulates or accumulates
        if not self._has_begun:
            self._has_begun = True
            at_end_of_backward(self._end_backward)

    @property
    def is_running(self) -> bool:
        """Whether a backward began and did not end."""
        return self._has_begun

    # --- outside a backward ------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """After a backward that raised: what it sent is awaited and dropped. Nothing can be stepped until `clear`."""
        for _, pending in self._flying:
            pending.wait()
        self._flying.clear()
        self._reset_round()
        self.has_failed = True

    def clear(self) -> None:
        """Forget every gradient."""
        if self._has_begun:
            self.abandon()
        self.has_failed = False
        self.touched.clear()
        self._waiting.clear()
        self._local.clear()
        self._kept.clear()

    def settle(self) -> torch.Tensor:
        """Reduces what is still waiting on any rank; says which parameters have a gradient on any. Collective."""
        if self.has_failed or self._has_begun:
            raise StateError(
                "the last backward() raised before its gradients were whole; call zero_grad() and run it again"
            )
        self._check_unchanged()
        count = len(self._parameters)
        device = self._parameters[0].device if count else torch.device("cpu")
        marks = torch.zeros(2 * count, dtype=torch.uint8)
        if self.touched:
            marks[list(self.touched)] = 1
        if self._waiting:
            marks[[count + index for index in self._waiting]] = 1
        marks = self._collectives.maximum(marks.to(device)).cpu()
        late = sorted({self._layout.bucket_of[index] for index in marks[count:].nonzero().flatten().tolist()})
        for bucket in late:
            self._leave(self._layout.buckets[bucket])
        if late:
            self._land(0)
            self._fillings.clear()
        return marks[:count].bool()

    def _check_unchanged(self) -> None:
        for index, kept in self._kept.items():
            grad = self._parameters[index].grad
            if grad is not None and _identity(grad) != kept:
                raise StateError(
                    f"the gradient of {self._layout.specs[index].name} was changed in place after backward(), which "
                    "has no effect on the sharded step: use the optimizer's clip_grad_norm_ or scale_grads_, and "
                    "shardkeep.zero.GradScaler"
                )

    # --- inside a backward -------------------------------------------------------------------------------------------

    def _set_aside(self, index: int) -> None:
        """Before a gradient is accumulated: what is there already must not be reduced twice."""
        parameter = self._parameters[index]
        if parameter.grad is not None and is_accumulating(parameter):
            if index in self._kept:  # else of before the last step
                self._local[index] = parameter.grad
            parameter.grad = None

    def _collect(self, index: int) -> None:
        parameter = self._parameters[index]
        grad = parameter.grad
        if grad is None or not parameter.requires_grad:  # frozen since the forward
            return
        if grad.layout is not torch.strided:
            raise StateError(f"{self._layout.specs[index].name} has a sparse gradient; make it dense (sparse=False)")
        grad = grad.detach()
        self.begin()
        self.touched.add(index)
        bucket = self._layout.buckets[self._layout.bucket_of[index]]
        if self.syncs and not self._filling(bucket.index).has_left:
            self._put(bucket, index, grad)
        else:
            self._wait_for_next_round(index, grad)
        self._keep(index, grad)
        self.after_collecting(index)
        if self.syncs:
            self._launch_ready()

    def _wait_for_next_round(self, index: int, grad: torch.Tensor) -> None:
        waiting = self._waiting.get(index)
        if waiting is not None:
            waiting += grad
        else:
            self._waiting[index] = grad.clone() if self._keep_local else grad

    def _keep(self, index: int, grad: torch.Tensor) -> None:
        """What `p.grad` is from now on: nothing, or all that this rank came to since `clear`."""
        parameter = self._parameters[index]
        if not self._keep_local:
            parameter.grad = None
            return
        before = self._local.pop(index, None)
        if before is not None:
            before += grad
            parameter.grad = before
        assert parameter.grad is not None
        self._kept[index] = _identity(parameter.grad)

    def _put(self, bucket: Bucket, index: int, grad: torch.Tensor) -> None:
        filling = self._filling(bucket.index)
        if filling.memory is None:
            filling.memory = self._memory(bucket)
        place = self._layout.place_of[index]
        part = filling.memory[bucket.offsets[place] : bucket.offsets[place] + bucket.sizes[place]]
        waiting = self._waiting.pop(index, None)
        if waiting is not None:
            grad = waiting.add_(grad)
        part = part.view(grad.shape)
        if index in filling.arrived:
            part += grad
        else:
            part.copy_(grad)
            filling.missing -= 1
        filling.arrived.add(index)

    def _launch_ready(self) -> None:
        buckets = self._layout.buckets
        while self._next < len(buckets):
            bucket = buckets[self._next]
            filling = self._filling(bucket.index)
            if filling.is_reduced:
                if filling.missing:
                    return
                self._leave(bucket)
            self._next += 1

    def _leave(self, bucket: Bucket) -> None:
        """Off to its owners; what did not arrive is zero, or what was waiting."""
        filling = self._filling(bucket.index)
        if filling.memory is None:
            filling.memory = self._memory(bucket)
        memory = filling.memory
        end = 0
        for index, offset, size in zip(bucket.parameters, bucket.offsets, bucket.sizes, strict=True):
            end = offset + size
            if index in filling.arrived:
                continue
            waiting = self._waiting.pop(index, None)
            if waiting is None:
                memory[offset:end].zero_()
            else:
                memory[offset:end].copy_(waiting.reshape(-1))
        memory[end:].zero_()
        filling.has_left, filling.memory = True, None
        self._land(self._in_flight - 1)
        self._flying.append((bucket.index, self._collectives.start_sum(memory, bucket.bounds)))

    def _land(self, left: int) -> None:
        """Takes the oldest sums until no more than `left` are under way."""
        while len(self._flying) > left:
            index, pending = self._flying.popleft()
            self._sink(index, pending)
            held = 0 if self._spare is None else self._spare.nbytes
            if held < pending.sent.nbytes <= self._layout.bucket_bytes:  # one, and of no parameter that is larger
                self._spare = pending.sent

    def _memory(self, bucket: Bucket) -> torch.Tensor:
        first = self._parameters[bucket.parameters[0]]
        dtype = self._wire_dtype or first.dtype
        spare, size_bytes = self._spare, bucket.size * dtype.itemsize
        if spare is not None and spare.nbytes >= size_bytes and spare.device == first.device:
            self._spare = None
            return spare.view(torch.uint8)[:size_bytes].view(dtype)
        return torch.empty(bucket.size, dtype=dtype, device=first.device)

    def _filling(self, index: int) -> _Filling:
        found = self._fillings.get(index)
        if found is None:
            trained = sum(self._is_trained(member) for member in self._layout.buckets[index].parameters)
            found = self._fillings[index] = _Filling(trained, trained > 0)
        return found

    def _is_trained(self, index: int) -> bool:
        return index in self._hooks and self._parameters[index].requires_grad

    def _end_backward(self) -> None:
        if self.syncs and self._accumulates:
            for bucket in self._layout.buckets:
                filling = self._filling(bucket.index)
                if filling.is_reduced and not filling.has_left:
                    self._leave(bucket)
            self._land(0)
        self._reset_round()
        self.after_backward()

    def _reset_round(self) -> None:
        self._fillings.clear()
        self._next = 0
        self._has_begun = self._accumulates = False


def _identity(grad: torch.Tensor) -> tuple[int, int]:
    """Changes when a gradient is replaced or written."""
    return grad.data_ptr(), version_of(grad)


def _call(method: WeakMethod[Callable[[int], None]], index: int) -> None:
    """What a parameter's hooks hold, the collector of garbage does not see: they must not hold an optimizer."""
    live = method()
    if live is not None:
        live(index)
