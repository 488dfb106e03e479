"""The few telling points of a matrix for every run, all the others for the nightly session."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")


def nightly_but(values: Iterable[T], telling: Callable[[T], bool]) -> list[Any]:
    """Parameters, of which those that are not telling have the marker ``nightly``."""
    return [
        value if telling(value) else pytest.param(value, marks=pytest.mark.nightly)
        for value in values
    ]
