"""The norm of all gradients, whoever has which part: summed in fp64, so that the division hardly shows."""

from __future__ import annotations

import math

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
        self._total = 0.0

    def add(self, values: torch.Tensor) -> None:
        """A piece of the gradient."""
        if not values.numel():
            return
        if math.isinf(self._type):
            largest = float(torch.linalg.vector_norm(values, math.inf))
            self._total = largest if math.isnan(largest) else max(self._total, largest)
        else:
            part = float(torch.linalg.vector_norm(values, self._type, dtype=torch.float64))
            self._total += part**self._type

    def over(self, collectives: Collectives, device: torch.device) -> torch.Tensor:
        """The norm over all ranks, the same fp32 number on each."""
        parts = collectives.gather_rows(torch.tensor([self._total], dtype=torch.float64, device=device)).cpu()
        total = parts.max() if math.isinf(self._type) else parts.sum() ** (1.0 / self._type)
        return total.to(torch.float32)
