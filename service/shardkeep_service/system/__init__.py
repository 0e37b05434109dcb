"""The system as its operators see it: versions, database, object store, settings."""
