"""A module's own float64 as its oracle, and how well-conditioned what it computes is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
import torch

from harness.verify.budget import FACTOR, FLOOR, GRADIENT_FLOOR, error
from harness.verify.compare import UNIT, Computed, off_kinks
from harness.verify.unaided.subject import (
    LONG,
    Finding,
    Lengths,
    Point,
    Refused,
    Subject,
    Void,
    numbers,
    of,
    trained,
)

SHAKES = 4
HOPELESS = 0.25
"""If rounding x and weights moves the output by this share of its size, nothing can be told."""
STEP = {"f64": 1e-9, "f32": 3e-5}
"""Relative step of x far below what the next lower precision would notice."""
LARGE_STEP = 1e-2
LOWER = {"f64": ("f32", "f16", "bf16"), "f32": ("f16", "bf16"), "f16": ("bf16",), "bf16": ()}
NAMES = {"f64": "float64", "f32": "float32", "f16": "half precision", "bf16": "bfloat16"}


def shaken(a: torch.Tensor, unit: float, generator: torch.Generator) -> torch.Tensor:
    """Each number changed by at most one rounding, at random."""
    draw = torch.rand(a.shape, generator=generator, dtype=torch.float64).to(a) * 2 - 1
    return a * (1 + unit * draw)


def own(
    subject: Subject, module: torch.nn.Module, point: Point, dtype: str | None = None
) -> tuple[Computed, dict[str, float]]:
    """What the module's own float64 says at a point, and how far one rounding moves that.

    Parameters
    ----------
    module : Module
        Its weights are the twin's.
    dtype : str
        Whose rounding; the subject's by default.

    Returns
    -------
    tuple of (Computed, dict)
        The dict has the largest change of ``output`` and of each gradient over `SHAKES` changes of
        x and of every weight by one rounding of the dtype (one change of a long x).
    """
    double, unit = subject.double(), UNIT[dtype or subject.dtype]
    exact = point.to(torch.float64)
    doing = "float64, which would be its oracle,"
    twin = double.twin(module)
    try:
        expected = double.answer(exact, doing, twin)
    except Refused as reason:
        raise Void(str(reason)) from reason
    want = numbers(expected, exact)
    moved = dict.fromkeys(want, 0.0)
    for draw in range(1 if exact.x.shape[1] >= LONG else SHAKES):
        generator = torch.Generator().manual_seed(draw)
        other = double.twin(module)
        with torch.no_grad():
            for weight in trained(other).values():
                weight.copy_(shaken(weight, unit, generator))
        got = double.answer(exact, doing, other, shaken(exact.x, unit, generator))
        for name, value in numbers(got, exact).items():
            off = error(value, want[name])
            moved[name] = max(moved[name], off if math.isfinite(off) else 0.0)
    return expected, moved


def known(subject: Subject, drawn: tuple[Lengths, int]) -> tuple[Computed, dict[str, float]]:
    """`own` of a fresh module at the point of these lengths and seed; found out once.

    Raises
    ------
    Void
        If rounding alone moves the output by more than `HOPELESS`.
    """
    if drawn not in subject.remembered:
        point = subject.point(*drawn)
        expected, moved = own(subject, subject.module(), point)
        if moved["output"] > HOPELESS:
            raise Void(
                f"ill-conditioned: rounding x and weights to {NAMES[subject.dtype]} moves the "
                f"output by {moved['output']:.2g} of its size, so nothing can be told "
                f"({point.where})"
            )
        subject.remembered[drawn] = expected, moved
    found: tuple[Computed, dict[str, float]] = subject.remembered[drawn]
    return found


def allowed(moved: float, dtype: str, gradient: str, point: Point) -> float:
    """Budget of a module whose yardstick is how far one rounding of its inputs moves it.

    Parameters
    ----------
    gradient : str
        Of what it is the gradient; empty for values. That of a weight is a sum over all tokens,
        whose terms are rounded one by one.
    """
    floor = FLOOR[dtype] * (GRADIENT_FLOOR if gradient else 1)
    if gradient not in ("", "x"):
        floor *= max(1.0, math.sqrt(float(point.real.sum())) / 4)
    return FACTOR * moved + floor


def precision(subject: Subject) -> Iterator[Finding]:
    """Against its own float64, within the error budget; and that this is float64."""
    for lengths in (*subject.batches, (LONG,)):
        found, _, _ = off_kinks(partial(_drawn, subject, lengths), 0)
        yield from found


def _drawn(subject: Subject, lengths: Lengths, seed: int) -> tuple[list[Finding], bool]:
    """Findings at one point; whether another one must tell, as a kink or a jump may lie here."""
    point = subject.point(lengths, seed)
    expected, moved = known(subject, point.drawn)
    module = subject.module()
    short = max(lengths) < LONG
    found = list(_rough(subject, module, point, moved["output"])) if short else []
    if subject.dtype != "f64":
        got = numbers(subject.answer(point, "a plain call", module), point)
        found += against(subject, got, numbers(expected, point), moved, point)
    return found, not all(one.ok for one in found)


def against(
    subject: Subject,
    got: Mapping[str, np.ndarray],
    want: Mapping[str, np.ndarray],
    moved: Mapping[str, float],
    point: Point,
) -> Iterator[Finding]:
    """Each number against its own float64's."""
    for name, value in got.items():
        gradient = of(name)
        off = error(value, want[name])
        budget = allowed(moved[name], subject.dtype, gradient, point)
        lower = less(off, moved[name], subject.dtype, point)
        what = f"{NAMES[subject.dtype]} in place of float64 changed the {name}"
        yield Finding(what, off, budget, gradient, point.where, lower)


def less(off: float, moved: float, dtype: str, point: Point) -> str:
    """In which precision an error of this size would be ordinary, as a hint."""
    for one in LOWER[dtype]:
        if off <= allowed(moved * UNIT[one] / UNIT[dtype], one, "", point):
            return f"it computes in less than {NAMES[dtype]}: this is what {NAMES[one]} costs"
    return ""


def _rough(
    subject: Subject, module: torch.nn.Module, point: Point, moved: float
) -> Iterator[Finding]:
    """Whether its float64 is smooth where a step of x is below any lower precision.

    Numbers that are rounded to less on the way stand still, or jump.
    """
    if subject.dtype not in STEP or subject.declares("straight-through"):
        return
    exact, double = point.to(torch.float64), subject.double()
    twin = double.twin(module)
    generator = torch.Generator().manual_seed(len(point.where))
    direction = torch.randn(exact.x.shape, generator=generator).to(exact.x)

    def at(step: float) -> np.ndarray:
        stepped = Point(
            exact.x * (1 + step * direction), exact.real, exact.cotangent, point.where, point.drawn
        )
        return double.values(stepped, "a small step of x", twin)

    budget = 4 * allowed(moved, subject.dtype, "", point)
    # What it computes may bend: by less than the budget within the step.
    bend = moved / UNIT[subject.dtype]
    step = min(STEP[subject.dtype], 0.5 * math.sqrt(budget) / max(1.0, bend))
    middle, up, down, far = at(0), at(step), at(-step), at(LARGE_STEP)
    rough = error(up + down, 2 * middle)
    lower = less(rough, moved, subject.dtype, point)
    what = f"steps of {step:.0e} of x, there and back,"
    yield Finding(f"{what} changed the output", rough, budget, "", point.where, lower)
    moves = far != middle
    still = float((moves & (up == middle)).sum() / max(1, moves.sum()))
    yield Finding(
        f"the share of the output that a step of {step:.0e} of x does not move grew",
        still,
        0.5,
        "",
        point.where,
        f"it rounds to less than {NAMES[subject.dtype]} on the way; if it does so on purpose, let "
        "it declare straight-through",
    )
