"""What a transaction may raise because of the database itself."""

from __future__ import annotations


class DatabaseFailed(Exception):
    """The root: the transaction did not happen, or nobody knows (the connection broke during its commit)."""


class DatabaseBusy(DatabaseFailed):
    """Another transaction held the database for longer than the busy timeout; repeat the request."""


class DatabaseFull(DatabaseFailed):
    """No space is left for the database."""


class DatabaseUnavailable(DatabaseFailed):
    """The database does not answer, or failed in a way that may pass by itself."""


class ValueUnstorable(DatabaseFailed):
    """A value of the request fits no column: a NUL in a text, say. Repeating it helps nobody."""
