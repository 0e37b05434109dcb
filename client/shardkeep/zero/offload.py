"""Where masters and state are kept when not beside the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike


@dataclass(frozen=True, slots=True)
class NvmeOffload:
    """State, masters and gradients in a scratch file of each rank; at stage 3 the parameters too.

    `directory` must exist. `budget_bytes` bounds the wrapper's own buffers on each rank: tiles, buckets and gathered
    units; it must exceed two of the largest module. What training itself holds is not in it: gradients under
    `no_sync()` or of parameters out of the usual order, modules in `gathered()`, and at stage 1 and 2 the parameters.
    The file has no name: nothing is left of it when the process ends. `keeps_pages`: the kernel may keep what was read
    and written in its own cache, which is faster where memory is left over.
    """

    directory: str | PathLike[str]
    budget_bytes: int
    keeps_pages: bool = False
