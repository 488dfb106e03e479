"""Checks of a module without oracle: its own answers, asked in other ways."""
