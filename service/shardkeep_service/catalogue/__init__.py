"""The catalogue in the bucket: commit records, from which the database can be rebuilt."""
