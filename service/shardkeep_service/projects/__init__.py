"""Projects: the namespace of access, deduplication and default retention."""
