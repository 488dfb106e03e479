"""The one exception that a user's mistake becomes."""

from __future__ import annotations


class UsageError(Exception):
    """Bad input from the user; shown as one line, exit code 2, never a traceback."""
