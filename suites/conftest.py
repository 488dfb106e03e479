"""What all tests of the harness need."""

from __future__ import annotations

import gc
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("suites", deadline=None, derandomize=True)
settings.load_profile("suites")


@pytest.fixture(autouse=True, scope="session")
def interruptible() -> Iterator[None]:
    """Let ctrl-C through: a shell starts background jobs with it ignored, and children inherit."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def collected_at_the_end() -> Iterator[None]:
    """Then libraries find that nothing of theirs was lost."""
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def only_new_objects_are_collected(collected_at_the_end: None) -> None:
    """Leave what is there to the end: the collector would look through all of torch each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up measurements instead of real ones."""
    from suites.support.sessions import INSTEAD  # what `attnbench bench` runs needs none

    for module, name, value in INSTEAD:
        monkeypatch.setattr(module, name, value)
