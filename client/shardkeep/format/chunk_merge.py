"""One chunk table out of many ranks', sorted by digest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.chunk_table import ChunkTable, digest_order
from shardkeep.format.columns import Ints, starts_of


def merge_chunks(tables: list[ChunkTable]) -> tuple[ChunkTable, list[Ints]]:
    """The merged table, and for each input table the row that each of its chunks has in it.

    FormatError if two tables give one digest different sizes or checksums.
    """
    joined = ChunkTable(
        np.concatenate([table.digests for table in tables]),
        np.concatenate([table.sizes for table in tables]),
        np.concatenate([table.crc64s for table in tables]),
    )
    order = digest_order(joined.digests)
    ordered = joined.take(order)
    is_new = np.ones(len(order), np.bool_)
    is_new[1:] = (ordered.digests[1:] != ordered.digests[:-1]).any(axis=1)
    differs = (ordered.sizes[1:] != ordered.sizes[:-1]) | (ordered.crc64s[1:] != ordered.crc64s[:-1])
    if (differs & ~is_new[1:]).any():
        row = int(np.flatnonzero(differs & ~is_new[1:])[0])
        raise FormatError(f"chunk {ordered.row(row).digest} is named with two sizes or checksums")
    rows = np.empty(len(order), np.int64)
    rows[order] = np.cumsum(is_new) - 1
    ends = starts_of(np.array([len(table) for table in tables], np.int64)).tolist()
    return ordered.take(np.flatnonzero(is_new)), [rows[start:stop] for start, stop in pairwise(ends)]
