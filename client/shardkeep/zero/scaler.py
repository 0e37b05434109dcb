"""Loss scaling over a `ShardedOptimizer`: the reduced gradients are unscaled and checked where they are."""

from __future__ import annotations

from typing import Any

import torch
from torch.amp.grad_scaler import OptState
from torch.optim import Optimizer

from shardkeep.errors import ConfigurationError
from shardkeep.zero.optimizer import ShardedOptimizer


class GradScaler(torch.amp.GradScaler):
    """torch.amp.GradScaler for sharded gradients: every rank skips a step when the gradients of any are not finite.

    scale(loss).backward(); unscale_(optimizer); optimizer.clip_grad_norm_(...); step(optimizer); update(). Other
    optimizers are treated as torch's treats them. On the CPU too; `device` is chosen if None.
    """

    def __init__(
        self,
        device: str | None = None,
        *,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__(
            device or ("cuda" if torch.cuda.is_available() else "cpu"),
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )

    def step(self, optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        """Unscales unless that was done, and steps if all gradients are finite on all ranks. Collective."""
        if not self._enabled or not isinstance(optimizer, ShardedOptimizer):
            return super().step(optimizer, *args, **kwargs)
        if args or kwargs:
            raise ConfigurationError("a closure cannot be evaluated while losses are scaled: call it before step()")
        self._check_scale_growth_tracker("step")
        state = self._per_optimizer_states[id(optimizer)]
        if state["stage"] is OptState.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if state["stage"] is OptState.READY:
            self.unscale_(optimizer)
        result = self._maybe_opt_step(optimizer, state)
        optimizer.zero_grad()  # a step that was skipped leaves nothing either
        state["stage"] = OptState.STEPPED
        return result

    def _unscale_grads_(
        self, optimizer: Optimizer, inv_scale: torch.Tensor, found_inf: torch.Tensor, allow_fp16: bool
    ) -> dict[torch.device, torch.Tensor]:
        """Called by `unscale_`. A rank that owns no gradient says so too: they agree on what was found."""
        if not isinstance(optimizer, ShardedOptimizer):
            found: dict[torch.device, torch.Tensor] = super()._unscale_grads_(
                optimizer, inv_scale, found_inf, allow_fp16
            )
            return found
        if not optimizer.unscale_grads_(float(inv_scale)):
            found_inf.fill_(1.0)
        return {found_inf.device: found_inf}
