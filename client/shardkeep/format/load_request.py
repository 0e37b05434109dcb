"""`LoadRequest`: the regions of named tensors that a client wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from shardkeep.errors import FormatError
from shardkeep.format.buffers import Buffer
from shardkeep.format.columns import Flags, Ints, pack_unsigned, starts_of, unpack_unsigned
from shardkeep.format.container import Container, pack_container
from shardkeep.format.names import check_name
from shardkeep.format.regions import Region
from shardkeep.format.stored_columns import decode_map, pack_flags, unpack_flags
from shardkeep.format.tensor_table import MAX_NDIM, MAX_TENSOR_ELEMENTS, pack_texts, unpack_names

REQUEST_MAGIC = b"SKrq"
MAX_REQUEST_RAW_BYTES = 256 << 20
MAX_REQUEST_ITEMS = 1 << 22


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Item i asks for `regions[i]` of the tensor `names[i]`; None asks for all of it. Names may repeat.

    Where ranks keep buffers or values of their own, `rank` says whose are wanted; None, or a rank without one, gets the
    lowest rank's.
    """

    names: tuple[str, ...]
    regions: tuple[Region | None, ...]
    rank: int | None = None

    def __post_init__(self) -> None:
        if len(self.names) != len(self.regions):
            raise ValueError(f"{len(self.names)} names and {len(self.regions)} regions")

    @classmethod
    def whole(cls, names: Sequence[str], *, rank: int | None = None) -> LoadRequest:
        """All of each of these tensors."""
        return cls(tuple(names), (None,) * len(names), rank)

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True, eq=False)
class RequestColumns:
    """A load request as columns: item i asks for all of `names[i]` where `is_whole[i]`, else for the next region.

    Region k has `ndims[k]` entries in `offsets` and `sizes`, which hold one region after the other.
    """

    names: tuple[str, ...]
    is_whole: Flags
    ndims: Ints
    offsets: Ints
    sizes: Ints
    rank: int | None


class _StoredRequest(msgspec.Struct, forbid_unknown_fields=True):
    names: memoryview
    whole: memoryview
    ndims: memoryview
    offsets: memoryview
    sizes: memoryview
    rank: int | None


_DECODER = msgspec.msgpack.Decoder(_StoredRequest)


def encode_load_request(request: LoadRequest) -> bytes:
    """The request as bytes. FormatError if a name or region cannot be stored."""
    for name in request.names:
        check_name(name)
    columns = request_columns(request)
    stored = _StoredRequest(
        names=memoryview(pack_texts(request.names)),
        whole=memoryview(pack_flags(columns.is_whole)),
        ndims=memoryview(pack_unsigned(columns.ndims)),
        offsets=memoryview(pack_unsigned(columns.offsets)),
        sizes=memoryview(pack_unsigned(columns.sizes)),
        rank=request.rank,
    )
    return pack_container(REQUEST_MAGIC, [msgspec.msgpack.encode(stored)], level=1)


def request_columns(request: LoadRequest) -> RequestColumns:
    """The request as columns. FormatError if a number does not fit."""
    regions = [region for region in request.regions if region is not None]
    try:
        offsets = np.array([offset for region in regions for offset in region.offsets], np.int64)
        sizes = np.array([size for region in regions for size in region.sizes], np.int64)
    except OverflowError as exc:
        raise FormatError("a region is out of range") from exc
    return RequestColumns(
        request.names,
        np.array([region is None for region in request.regions], np.bool_),
        np.array([len(region.sizes) for region in regions], np.int64),
        offsets,
        sizes,
        request.rank,
    )


def decode_load_request(data: Buffer) -> LoadRequest:
    """The request of these bytes; FormatError, or VersionTooNew, for anything else."""
    columns = decode_request_columns(data)
    return LoadRequest(columns.names, _regions(columns), columns.rank)


def decode_request_columns(data: Buffer) -> RequestColumns:
    """As `decode_load_request`, without an object for each region: a tenth of its time."""
    container = Container(data, magic=REQUEST_MAGIC, section_count=1, max_raw_bytes=MAX_REQUEST_RAW_BYTES)
    stored = decode_map(_DECODER, container.section(0), "load request")
    names = unpack_names(stored.names, "names")
    if len(names) > MAX_REQUEST_ITEMS:
        raise FormatError(f"a request of {len(names)} items is above the limit of {MAX_REQUEST_ITEMS}")
    if stored.rank is not None and not 0 <= stored.rank < 1 << 32:
        raise FormatError(f"rank {stored.rank} is out of range")
    is_whole = unpack_flags(stored.whole, len(names), "whole")
    ndims = unpack_unsigned(stored.ndims, int((~is_whole).sum()), "ndims")
    if int(ndims.max(initial=0)) > MAX_NDIM:
        raise FormatError(f"a region has more than {MAX_NDIM} dimensions")
    count = int(ndims.sum())
    offsets = _bounded(unpack_unsigned(stored.offsets, count, "offsets"))
    sizes = _bounded(unpack_unsigned(stored.sizes, count, "sizes"))
    return RequestColumns(names, is_whole, ndims, offsets, sizes, stored.rank)


def _regions(columns: RequestColumns) -> tuple[Region | None, ...]:
    starts = starts_of(columns.ndims).tolist()
    offsets, sizes = columns.offsets.tolist(), columns.sizes.tolist()
    regions: list[Region | None] = []
    row = 0
    for whole in columns.is_whole.tolist():
        if whole:
            regions.append(None)
            continue
        part = slice(starts[row], starts[row + 1])
        regions.append(Region(tuple(offsets[part]), tuple(sizes[part])))
        row += 1
    return tuple(regions)


def _bounded(column: Ints) -> Ints:
    if int(column.max(initial=0)) > MAX_TENSOR_ELEMENTS:
        raise FormatError("a region is out of range")
    return column
