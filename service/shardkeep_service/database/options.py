"""How a process uses its database: how many connections, and how long anything may wait or run."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_CONNECTIONS = 40
"""As many as threads that serve requests, of which each holds at most one."""


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """The time-outs are PostgreSQL's, by whose server they are kept; SQLite takes the number of connections only.

    `connections` open as they are needed and stay open. A thread that finds none free waits `wait_seconds`, then gets
    `DatabaseBusy`. `idle_seconds` is how long a transaction may stand still before the server ends it, so that a
    replica that hangs holds no lock for long.
    """

    connections: int = DEFAULT_CONNECTIONS
    wait_seconds: float = 30.0
    lock_timeout_seconds: float = 10.0
    statement_timeout_seconds: float = 60.0
    idle_seconds: float = 60.0
    application_name: str = "shardkeep"
    """What `pg_stat_activity` shows."""
