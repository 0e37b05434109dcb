"""The body budget: never exceeded, given in order, refused after a while, returned whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from shardkeep.protocol.error_codes import ErrorCode
from shardkeep_service.chunks.body_budget import BodyBudget
from shardkeep_service.chunks.body_buffers import BodyBuffers
from shardkeep_service.errors import Refusal


def test_shares_never_exceed_the_budget_and_come_in_order() -> None:
    async def scenario() -> list[int]:
        budget = BodyBudget(100, wait_seconds=60)
        order: list[int] = []

        async def hold(number: int, size_bytes: int) -> None:
            async with budget.share(size_bytes):
                order.append(number)
                assert budget.used_bytes <= 100
                await asyncio.sleep(0.005)

        await asyncio.gather(*(hold(number, size) for number, size in enumerate([60, 60, 10, 90, 100, 1])))
        assert budget.used_bytes == 0
        return order

    assert asyncio.run(scenario()) == [0, 1, 2, 3, 4, 5]


def test_a_share_that_does_not_become_free_is_refused_as_busy_and_the_queue_goes_on() -> None:
    async def scenario() -> None:
        budget = BodyBudget(100, wait_seconds=0.02)
        async with budget.share(90):
            with pytest.raises(Refusal) as caught:
                async with budget.share(50):
                    pytest.fail("there was no room")
            assert caught.value.code is ErrorCode.BUSY
            assert caught.value.retryable
            assert caught.value.retry_after_seconds
            async with budget.share(10):
                assert budget.used_bytes == 100
        assert budget.used_bytes == 0

    asyncio.run(scenario())


def test_a_body_above_the_whole_budget_waits_for_all_of_it() -> None:
    async def scenario() -> None:
        budget = BodyBudget(100, wait_seconds=1)
        async with budget.share(1000):
            assert budget.used_bytes == 100
        assert budget.used_bytes == 0

    asyncio.run(scenario())


def test_a_cancelled_waiter_takes_nothing_with_it() -> None:
    async def scenario() -> None:
        budget = BodyBudget(100, wait_seconds=5)
        async with budget.share(100):
            waiting = asyncio.ensure_future(budget.share(10).__aenter__())
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        assert budget.used_bytes == 0
        async with budget.share(100):
            pass

    asyncio.run(scenario())


def test_a_returned_buffer_is_lent_again_and_idle_ones_are_bounded() -> None:
    buffers = BodyBuffers(idle_limit_bytes=40 << 20)
    first = buffers.take(30 << 20)
    assert len(first) >= 30 << 20
    buffers.give_back(first)
    assert buffers.take(29 << 20) is first
    assert buffers.take(29 << 20) is not first
    assert buffers.take(1 << 20) is not first
    for _ in range(3):
        buffers.give_back(buffers.take(200 << 20))
    assert len(buffers.take(200 << 20)) == 200 << 20
