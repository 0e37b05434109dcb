"""Metrics as they are stored: short names, floats. Checked before anything of a save is staged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from shardkeep.errors import ConfigurationError

_NAME_CHARACTERS: Final = 200


def plain_metrics(metrics: Mapping[str, Any] | None) -> dict[str, float]:
    """Metrics as floats; numbers and one-element tensors are taken. ConfigurationError names anything else."""
    found = {}
    for name, value in (metrics or {}).items():
        _check_name(name)
        if isinstance(value, str | bytes):
            raise ConfigurationError(f"metric {name!r} is no number: {value!r}")
        try:
            found[name] = float(value)
        except (TypeError, ValueError, RuntimeError, OverflowError) as error:
            raise ConfigurationError(f"metric {name!r} is no number: {value!r}") from error
    return found


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ConfigurationError(f"{name!r} cannot name a metric: give a text")
    if len(name) > _NAME_CHARACTERS:
        raise ConfigurationError(
            f"the metric name {name[:40]!r}... has {len(name)} characters; at most {_NAME_CHARACTERS} are taken"
        )
    try:
        name.encode()
    except UnicodeEncodeError as exc:
        raise ConfigurationError(
            f"the metric name {name!r} contains lone surrogates, which UTF-8 cannot store"
        ) from exc
