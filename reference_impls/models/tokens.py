"""Token numbers that translation shares; nothing here imports torch."""

PADDING = 0
"""No token. What precedes the first token of a sentence is this, too."""
END = 1
"""The end of a sentence."""
