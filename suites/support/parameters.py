"""What tests are parametrised by: implementations, dtypes, and the few points of a matrix."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Any

import pytest

from harness.registry import builtins
from reference_impls.kernels.native import loader
from reference_impls.mechanism import Unsupported

DTYPES = ("f64", "f32", "bf16")


def implementations() -> list[str]:
    """``mechanism.implementation`` of everything built in that runs on a CPU."""
    return [
        f"{mechanism.name}.{implementation.name}"
        for mechanism in builtins().values()
        for implementation in mechanism.implementations
        if "cpu" in implementation.devices
    ]


def has_compiler() -> bool:
    """Whether there is a C++ compiler, as the native kernel looks for it; not whether it works."""
    try:
        loader.compiler()
    except Unsupported:
        return False
    return True


def few(values: Iterable[Any], telling: Container[Any]) -> list[Any]:
    """Values as parameters: those that are not telling are for the nightly session."""
    return [v if v in telling else pytest.param(v, marks=pytest.mark.nightly) for v in values]
