"""The real corpora, where there are some."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.train.data.directory import VARIABLE

REAL = Path(os.environ.get(VARIABLE) or "no-such-folder")
"""The data directory of the environment variable, before any test changes it."""


def real(*names: str) -> pytest.MarkDecorator:
    """Skip where the real data directory has not got these files."""
    missing = [name for name in names if not (REAL / name).is_file()]
    reason = f"set {VARIABLE} to the data directory; missing: {', '.join(missing)}"
    return pytest.mark.skipif(bool(missing), reason=reason)
