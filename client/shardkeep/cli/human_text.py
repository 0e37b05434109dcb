"""Numbers, times and names as a person reads them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?", re.IGNORECASE)
_DURATION = re.compile(r"([1-9][0-9]{0,5})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}


def size_text(size_bytes: int | None) -> str:
    """Bytes in units of 1,000, such as `1.5 GB`; `-` where unknown."""
    if size_bytes is None:
        return "-"
    number = float(size_bytes)
    for unit in _UNITS:
        if number < 999.5 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{size_bytes} B" if unit == "B" else f"{number:.3g} {unit}"


def parse_size(text: str) -> int:
    """Bytes of a text such as `5GB` (1,000s), `512MiB` (1,024s) or `1000`; ValueError otherwise."""
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[3] and not match[2]):
        raise ValueError(f"{text!r} is no size; write for example 5GB or 512MiB")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** _POWERS[match[2].lower()])


def parse_duration(text: str) -> int:
    """Seconds of a text such as `30d`, `12h` or `45m`; ValueError otherwise."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no duration; write for example 30d, 12h or 45m")
    return int(match[1]) * _SECONDS[match[2]]


def age_text(then: datetime | None, now: datetime) -> str:
    """How long ago, such as `3 h ago`; `-` where unknown."""
    if then is None:
        return "-"
    seconds = max(0.0, (now - then.astimezone(UTC)).total_seconds())
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit} ago"
    return f"{seconds / 86400:.0f} days ago"


def shape_text(shape: Sequence[int]) -> str:
    """A shape such as `[4096, 11008]`."""
    return f"[{', '.join(map(str, shape))}]"


def region_text(offsets: Sequence[int], sizes: Sequence[int]) -> str:
    """A region as slices, such as `[0:2048, 0:11008]`; `[]` for the one element of a 0-d tensor."""
    return f"[{', '.join(f'{start}:{start + size}' for start, size in zip(offsets, sizes, strict=True))}]"


def metric_text(number: float) -> str:
    """A metric with at most six digits."""
    return f"{number:.6g}"


def ranks_text(ranks: Sequence[int], *, at_most: int = 12) -> str:
    """Ranks as runs, such as `0-3, 7`; cut after `at_most` runs with the number of ranks left out."""
    runs: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in runs[:at_most])
    left = sum(last - first + 1 for first, last in runs[at_most:])
    return f"{shown} and {left} more" if left else shown


def printable(text: str) -> str:
    """The text with control characters, also those that turn text around, as escapes: names come from others."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def counted(count: int, noun: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
