from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.distributed.launcher import Ranks
from tests.distributed.toys import train_chain, train_uninterrupted
from tests.service_process import ServiceProcess


def chain(
    service: ServiceProcess, directory: Path, run: str, *, layout: str, world: int, workers: int = 0
) -> tuple[list[Any], list[list[Any]]]:
    """The uninterrupted run, and three launches of two steps each, every one in processes of its own."""
    reference: list[Any] = []
    hops = []
    options: dict[str, Any] = {"layout": layout, "workers": workers}
    for until in (2, 4, 6):
        with Ranks(world, directory=directory, env=service.environment()) as ranks:
            reference = reference or ranks.run(train_uninterrupted, until=6, **options)
            hops.append(ranks.run(train_chain, run=run, until=until, saves=(until,), **options))
    return reference, hops


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.slow
def test_E56_E72_two_resumes_equal_the_uninterrupted_run_bit_for_bit(
    shared_service: ServiceProcess, tmp_path: Path, workers: int
) -> None:
    reference, hops = chain(shared_service, tmp_path, f"chain/fsdp-{workers}", layout="fsdp", world=2, workers=workers)

    for rank in range(2):
        losses = [loss for hop in hops for loss in hop[rank]["losses"]]
        samples = [index for hop in hops for index in hop[rank]["samples"]]
        assert losses == reference[rank]["losses"]
        assert samples == reference[rank]["samples"]
        assert hops[2][rank]["digest"] == reference[rank]["digest"]
        assert [hop[rank]["verdict"] for hop in hops] == ["fresh", "exact", "exact"], hops[1][rank]["reasons"]
        assert [hop[rank]["step"] for hop in hops] == [0, 2, 4]
        assert [hop[rank]["failures"] for hop in hops] == [[], [], []]
