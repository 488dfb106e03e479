"""What ends a command with one line: a mistake of the user's, or of a mechanism."""

from __future__ import annotations


class UsageError(Exception):
    """Bad input from the user; shown as one line, exit code 2, never a traceback."""


class NotVerified(Exception):
    """A mechanism is not right, so nothing is done with it; the message says why (exit code 1)."""
