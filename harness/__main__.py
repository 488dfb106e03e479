"""``python -m harness`` and the console script ``attnbench``."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def _foreign_packages() -> str | None:
    """Name a package of ours that Python would take from somewhere else, or None."""
    root = Path(__file__).resolve().parents[1]
    for name in ("harness", "reference_impls", "suites", "reports"):
        spec = importlib.util.find_spec(name)
        origin = spec.origin if spec else None
        if origin is None:
            return f"package {name!r} is missing; install attnbench with: pip install -e ."
        if Path(origin).resolve().parents[1] != root:
            return f"{origin} hides attnbench's own {name!r}; rename it or run from elsewhere"
    return None


def main() -> None:
    """Run the command line and exit with its code."""
    if problem := _foreign_packages():
        print(f"attnbench: {problem}", file=sys.stderr)
        raise SystemExit(2)
    from harness.cli import run

    raise SystemExit(run())


if __name__ == "__main__":
    main()
