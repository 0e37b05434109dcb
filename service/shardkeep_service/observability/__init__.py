"""Observability: logs, request ids and the fault hook of the tests."""
