"""The Shardkeep service: bytes in a blob store, records in a database, a checkpoint committed when it is whole."""
