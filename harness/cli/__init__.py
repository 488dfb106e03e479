"""The command line. Everything heavy is imported by the command that needs it."""

from harness.cli.app import app, run

__all__ = ["app", "run"]
