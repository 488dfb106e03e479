"""Suites: is it right (verify), what does it cost (bench), does the harness hold (harness)."""
