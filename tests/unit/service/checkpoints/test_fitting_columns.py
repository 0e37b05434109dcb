"""How many columns of the heat map make a page."""

from __future__ import annotations

import pytest

from shardkeep_service.checkpoints.save_times import CELLS_LIMIT, COLUMNS_LIMIT, fitting_columns


@pytest.mark.parametrize(
    ("world_sizes", "count"),
    [
        ([], 0),
        ([8] * COLUMNS_LIMIT, COLUMNS_LIMIT),
        ([CELLS_LIMIT * 3], 1),
        ([CELLS_LIMIT * 3, 1], 1),
        ([1, CELLS_LIMIT], 1),
        ([1, CELLS_LIMIT - 1, 1], 2),
        ([CELLS_LIMIT // 10] * COLUMNS_LIMIT, 10),
    ],
    ids=["none", "few-ranks", "one-too-large", "large-and-small", "small-and-large", "just-fitting", "many"],
)
def test_the_more_ranks_the_fewer_columns(world_sizes: list[int], count: int) -> None:
    assert fitting_columns(world_sizes) == count
