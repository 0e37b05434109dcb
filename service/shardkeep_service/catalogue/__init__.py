"""The catalogue in the bucket: records, from which the database can be rebuilt, and which catalogue owns the bucket."""
