"""What tests of several rooms share."""

from __future__ import annotations

import pytest

from suites.support.sessions import INSTEAD


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up measurements instead of real ones."""
    for module, name, value in INSTEAD:
        monkeypatch.setattr(module, name, value)
