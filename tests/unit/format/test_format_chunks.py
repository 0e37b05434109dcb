from __future__ import annotations

import pytest
from awscrt.checksums import crc64nvme
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from shardkeep.errors import FormatError, IntegrityError
from shardkeep.format.chunks import ChunkRef, chunk_ref, verify_chunk
from shardkeep.format.fingerprints import fingerprint, fingerprint_root


@given(st.lists(st.binary(max_size=100), max_size=5))
def test_a_chunk_is_named_by_all_its_bytes(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert chunk_ref(parts) == ChunkRef(blake3(data).hexdigest(), len(data), crc64nvme(data))


def test_large_parts_are_hashed_in_steps() -> None:
    data = bytes(range(256)) * 2000
    assert chunk_ref([memoryview(data)]) == ChunkRef(blake3(data).hexdigest(), len(data), crc64nvme(data))


def test_a_flipped_bit_is_found() -> None:
    ref = chunk_ref([b"some", b"bytes"])
    verify_chunk(ref, [b"somebytes"])
    with pytest.raises(IntegrityError, match=r"crc64 .* digest"):
        verify_chunk(ref, [b"somebytet"])
    with pytest.raises(IntegrityError, match="size 8 instead of 9"):
        verify_chunk(ref, [b"somebyte"])


@pytest.mark.parametrize("digest", ["", "ab", "g" * 64, "AB" * 32, " " + "a" * 63])
def test_a_digest_is_64_lowercase_hex_digits(digest: str) -> None:
    with pytest.raises(FormatError):
        ChunkRef(digest, 1, 0).digest_bytes()


def test_a_root_covers_all_fingerprints_and_is_no_fingerprint() -> None:
    one, other = fingerprint(b"one"), fingerprint(b"other")
    assert fingerprint_root([one, other]) == fingerprint_root(one + other)
    assert fingerprint_root([one, other]) != fingerprint_root([other, one])
    assert fingerprint_root([one]) != one
    with pytest.raises(ValueError, match="whole number"):
        fingerprint_root(b"short")
