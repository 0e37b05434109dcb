"""Bodies of several buffers."""

from __future__ import annotations

from shardkeep.connection.bodies import SMALL_PART_BYTES, PartsBody


def test_big_parts_are_sent_as_they_lie_and_small_ones_joined() -> None:
    big = memoryview(bytearray(SMALL_PART_BYTES))
    parts = [memoryview(b"a"), memoryview(b""), memoryview(b"bc"), big, memoryview(b"d")]
    body = PartsBody(parts)
    sent = list(body)
    assert [bytes(part) for part in sent] == [b"abc", bytes(big), b"d"]
    assert sent[1].obj is big.obj
    assert body.size_bytes == SMALL_PART_BYTES + 4


def test_a_body_can_be_sent_again() -> None:
    body = PartsBody([memoryview(b"x" * 10)] * 3)
    assert b"".join(body) == b"".join(body) == b"x" * 30
