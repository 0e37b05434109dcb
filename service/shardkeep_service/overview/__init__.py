"""The overview: what is stored, how it grows, how saves go, and what the background work is at."""
