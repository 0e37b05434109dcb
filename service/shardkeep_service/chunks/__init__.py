"""Chunks: negotiate, upload, download, damage."""
