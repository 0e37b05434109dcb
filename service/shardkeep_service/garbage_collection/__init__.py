"""Garbage collection: purging what was deleted for long enough, and removing the bytes that nobody needs any more."""
