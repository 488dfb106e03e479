"""The published numbers, re-analysed."""
