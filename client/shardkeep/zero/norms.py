"""The norm of all gradients, whoever has which part: summed in fp64, so that the division hardly shows."""

from __future__ import annotations

import torch

from shardkeep.errors import ConfigurationError
from shardkeep.zero.collectives import Collectives


class GradientNorm:
    """Gathers this rank's part, then that of all."""

    def __init__(self, norm_type: float) -> None:
        """`norm_type`: a positive number, or inf for the largest magnitude."""
        if not norm_type > 0:
            raise ConfigurationError(f"norm_type={norm_type} is not positive")
        self._type = norm_type
        self._parts: list[torch.Tensor] = []

    def add(self, values: torch.Tensor) -> None:
        """A piece of the gradient."""
        if values.numel():
            self._parts.append(self._norm(values))

    def over(self, collectives: Collectives, device: torch.device) -> torch.Tensor:
        """The norm over all ranks, the same fp32 number on each, in the host's memory."""
        nothing = torch.zeros((), dtype=torch.float64, device=device)
        own = self._norm(torch.stack([nothing, *(part.to(device) for part in self._parts)]))
        return self._norm(collectives.gather_rows(own.view(1)).cpu()).to(torch.float32)

    def _norm(self, values: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = torch.linalg.vector_norm(values, self._type, dtype=torch.float64)
        return found
