"""What tests are parametrised by: implementations, dtypes, and the few points of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

from harness.registry import builtins
from reference_impls.kernels.native import loader
from reference_impls.mechanism import Unsupported

T = TypeVar("T")
DTYPES = ("f64", "f32", "bf16")


def implementations(device: str) -> list[str]:
    """``mechanism.implementation`` of everything built in that runs on a device."""
    return [
        f"{mechanism.name}.{implementation.name}"
        for mechanism in builtins().values()
        for implementation in mechanism.implementations
        if device in implementation.devices
    ]


def has_compiler() -> bool:
    """Whether there is a C++ compiler, as the native kernel looks for it; not whether it works."""
    try:
        loader.compiler()
    except Unsupported:
        return False
    return True


def nightly_but(values: Iterable[T], telling: Callable[[T], bool]) -> list[Any]:
    """Parameters, of which those that are not telling have the marker ``nightly``."""
    return [
        value if telling(value) else pytest.param(value, marks=pytest.mark.nightly)
        for value in values
    ]
