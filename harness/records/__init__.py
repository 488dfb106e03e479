"""Results on disk: an append-only journal of JSON lines, and one tidy table of it."""
