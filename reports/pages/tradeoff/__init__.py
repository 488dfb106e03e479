"""Memory, time and accuracy."""
