"""What was stepped of a parameter when it was saved, its master or itself; what that means to others than who saved it.

A sharded optimizer steps masters and rounds the parameters from them. Whoever has parameters of another dtype than were
saved takes the masters rather than what was rounded from them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch

from shardkeep.format.names import join_name, plain_text, split_name
from shardkeep.pytorch.pieces import Parts
from shardkeep.pytorch.restore_plan import RestorePlan
from shardkeep.pytorch.state_tensor import lies_like
from shardkeep.pytorch.stored import StoredTensor
from shardkeep.pytorch.tensors import torch_dtype

MASTER: Final = "master_param"
"""The key of the values a sharded optimizer steps where the parameter itself is a rounded copy of them."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """What a checkpoint has of the values of one parameter: `master` is what was stepped, if it is there."""

    master: StoredTensor | None
    weights: StoredTensor | None

    @classmethod
    def of(cls, plan: RestorePlan, names: Iterable[Parts], master: StoredTensor | None) -> Stepped:
        """`names`: of the parameter, the first registered first."""
        if master is not None:
            plan.used.add(master.name)
        found = (plan.stored.find(join_name(parts)) for parts in names)
        return cls(master, next((one for one in found if one is not None), None))

    def plan_weights(self, plan: RestorePlan, dtype: str) -> None:
        """A parameter of another dtype than the stored weights takes the master, from which they were rounded."""
        if self.master is not None and self.weights is not None and self.weights.dtype != dtype:
            plan.read_instead(self.weights, self.master)

    def state_dtype(self, state: StoredTensor, parameter: torch.Tensor, stepped: str) -> str:
        """The dtype that a state tensor of a parameter has beside values of dtype `stepped`.

        Optimizers want both alike, so what had the dtype of the values then has it now. Counters stay as they are.
        """
        then = self.master or self.weights
        is_array = len(state.shape) > 0 or lies_like(state, parameter)
        return stepped if is_array and then is not None and state.dtype == then.dtype else state.dtype


def note_rounding(plan: RestorePlan, state: StoredTensor, dtype: str) -> None:
    """Tell, once for each optimizer, that state lost digits because masters are not kept here."""
    if torch_dtype(dtype).itemsize >= torch_dtype(state.dtype).itemsize:
        return
    keyword = split_name(state.name)[0]
    note = f"{plain_text(keyword)} keeps no {state.dtype} masters here: they and their state were rounded to {dtype}"
    if note not in plan.notes:
        plan.notes.append(note)
