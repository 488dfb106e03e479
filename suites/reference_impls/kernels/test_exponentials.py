"""The exponentials that the Triton kernels write in PTX, executed in numpy: no GPU runs them here.

What an instruction may be off by is what the PTX ISA says: ex2.approx two units in the last place,
rcp.approx one, subnormal numbers in and out are zero. Both ends of it are tried.
"""

from __future__ import annotations

import ast
import importlib
import struct
import textwrap
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
parts: Any = importlib.import_module("reference_impls.kernels.triton.parts")

LEAST = 2.0**-126
"""The smallest normal number."""
OFF = {"ex2.approx.ftz.f32": 2.0, "rcp.approx.ftz.f32": 1.0}
UNIT = 2.0**-23
Array = np.ndarray


def normal(x: Array) -> Array:
    return np.where(np.abs(x) < LEAST, 0, x)


def single(x: Array) -> Array:
    return x.astype(np.float32)


def instructions(kernel: Any) -> list[tuple[str, str, list[str]]]:
    """What the one inline assembly of a kernel does: operation, where to, operands."""
    calls = [
        node
        for node in ast.walk(ast.parse(textwrap.dedent(kernel.src)))
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "inline_asm_elementwise"
    ]
    (text,) = [ast.literal_eval(call.args[0]) for call in calls]
    lines = [line.strip() for line in text.strip(" {}").split(";")]
    split = [line.split(None, 1) for line in lines if line and not line.startswith(".reg")]
    found = [(operation, [one.strip() for one in rest.split(",")]) for operation, rest in split]
    return [(operation, to, operands) for operation, (to, *operands) in found]


def executed(kernel: Any, x: Array, way: int) -> Array:
    """What it gives for float32, each approximation off by as much as it may be, up or down."""
    held: dict[str, Array] = {"$1": x.astype(np.float32)}

    def value(operand: str) -> Array:
        if operand.startswith("0f"):
            (number,) = struct.unpack(">f", bytes.fromhex(operand[2:]))
            return np.asarray(number, np.float32)
        return held[operand]

    exactly: dict[str, Callable[..., Any]] = {
        "mul.f32": np.multiply,
        "add.f32": np.add,
        "ex2.approx.ftz.f32": lambda a: np.exp2(normal(a).astype(np.float64)),
        "rcp.approx.ftz.f32": lambda a: 1 / normal(a).astype(np.float64),
    }
    for operation, to, operands in instructions(kernel):
        with np.errstate(over="ignore", divide="ignore", under="ignore"):
            result = exactly[operation](*map(value, operands))
            if operation in OFF:
                result = normal(single(result * (1 + way * OFF[operation] * UNIT)))
        held[to] = single(result)
    return held["$0"].astype(np.float64)


@pytest.mark.parametrize("way", [-1, 0, 1])
def test_the_exponential_is_within_three_units_and_one_for_each_of_x(way: int) -> None:
    x = np.concatenate([-np.geomspace(1e-30, 200, 200_001), [0.0], np.linspace(0, 88, 10_001)])
    x = x.astype(np.float32).astype(np.float64)
    got, wanted = executed(parts.exponential, x, way), np.exp(x)
    there = wanted >= LEAST * (1 + 200 * UNIT)
    off = np.abs(got / wanted - 1)[there] / UNIT
    assert (off <= 3 + np.abs(x[there])).all()
    assert off.max() > 20, "the rounding of x log2(e) is no small matter: it is no exp"
    assert (got[wanted < LEAST * (1 - 200 * UNIT)] == 0).all()
    assert executed(parts.exponential, np.array([-np.inf]), way) == 0
    assert np.isinf(executed(parts.exponential, np.array([89, 1e4, np.inf]), way)).all()
    assert np.isnan(executed(parts.exponential, np.array([np.nan]), way)).all()


@pytest.mark.parametrize("way", [-1, 0, 1])
def test_the_sigmoid_is_within_five_units_and_one_for_each_of_x_below_zero(way: int) -> None:
    x = np.concatenate([np.linspace(-87, 200, 200_001), -np.geomspace(1e-30, 1, 1000)])
    x = x.astype(np.float32).astype(np.float64)
    got, wanted = executed(parts.sigmoid, x, way), 1 / (1 + np.exp(-x))
    off = np.abs(got / wanted - 1) / UNIT
    assert (off <= 5 + np.maximum(-x, 0)).all()
    # Below the smallest normal number it is 0, never infinite or NaN.
    beyond = np.array([-np.inf, *np.linspace(-1e4, -88, 1001)])
    assert (executed(parts.sigmoid, beyond, way) == 0).all()
    assert np.isnan(executed(parts.sigmoid, np.array([np.nan]), way)).all()
    assert executed(parts.sigmoid, np.array([np.inf]), way) == pytest.approx(1, abs=2 * UNIT)


def test_what_is_executed_is_what_the_kernels_have() -> None:
    names = [name for name, *_ in instructions(parts.sigmoid)]
    assert names == ["mul.f32", "ex2.approx.ftz.f32", "add.f32", "rcp.approx.ftz.f32"]
    (_, _, (_, constant)), (_, to, _) = instructions(parts.exponential)
    assert to == "$0"
    (log2e,) = struct.unpack(">f", bytes.fromhex(constant[2:]))
    assert log2e == np.float32(np.log2(np.e))
