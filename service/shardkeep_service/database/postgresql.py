"""PostgreSQL: the URL as the driver takes it, and the settings every connection is opened with.

Options of libpq (`sslmode=verify-full&sslrootcert=...`, several hosts with `target_session_attrs=read-write`) go
through the URL; what the URL says wins.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import URL

from shardkeep_service.database.options import DatabaseOptions

DRIVER: Final = "postgresql+psycopg"
_ALIASES: Final = frozenset({"postgres", "postgresql"})
_CONNECTION: Final = {
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "30000",
}
"""libpq's: a server that vanished without a word is noticed within a minute."""
_RECYCLE_SECONDS: Final = 1_800


def with_driver(url: URL) -> URL:
    """The URL with psycopg 3 as driver, where it names PostgreSQL and no driver."""
    return url.set(drivername=DRIVER) if url.drivername in _ALIASES else url


def engine_options(url: URL, options: DatabaseOptions) -> dict[str, Any]:
    """Arguments of `create_engine`."""
    given = {name: value for name, value in url.query.items() if isinstance(value, str)}
    own = {**_CONNECTION, "application_name": options.application_name}
    return {
        "pool_size": options.connections,
        "max_overflow": 0,
        "pool_timeout": options.wait_seconds,
        "pool_pre_ping": True,
        "pool_use_lifo": True,
        "pool_recycle": _RECYCLE_SECONDS,
        "hide_parameters": True,
        "connect_args": {
            **{name: value for name, value in own.items() if name not in given},
            "options": f"{_session_settings(options)} {given.get('options', '')}".strip(),
        },
    }


def _session_settings(options: DatabaseOptions) -> str:
    """Sent while connecting: no round trip, and what the URL adds comes later and wins.

    Plans are never compiled (`jit`): our statements take milliseconds, and compiling one takes more.
    """
    settings = {
        "lock_timeout": _milliseconds(options.lock_timeout_seconds),
        "statement_timeout": _milliseconds(options.statement_timeout_seconds),
        "idle_in_transaction_session_timeout": _milliseconds(options.idle_seconds),
        "jit": "off",
    }
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def _milliseconds(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
