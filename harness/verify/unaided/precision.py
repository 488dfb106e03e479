"""A module's own float64 as its oracle, and how well-conditioned what it computes is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from harness.verify.budget import FACTOR, FLOOR, GRADIENT_FLOOR, error
from harness.verify.compare import OUTPUT, UNIT, Computed, off_kinks, shaken, trained
from harness.verify.unaided.subject import (
    LONG,
    SMALL,
    Finding,
    Lengths,
    PosedBatch,
    Refused,
    Subject,
    Void,
    numbers,
    of,
)

SHAKES = 4
HOPELESS = 0.25
"""If rounding x and weights moves the output by this share of its size, nothing can be told."""
STEP = {"f64": 1e-9, "f32": 3e-5}
"""Relative steps of x that arithmetic in this dtype follows, and the next lower one hardly."""
LARGE_STEP = 1e-2
LOWER = {
    "f64": ("f32", "f16", "bf16"),
    "f32": ("f16", "bf16"),
    "tf32": ("bf16",),
    "f16": ("bf16",),
    "bf16": (),
}
NAMES = {
    "f64": "float64",
    "f32": "float32",
    "fast32": "a library's fast float32",
    "tf32": "TF32",
    "f16": "half precision",
    "bf16": "bfloat16",
}


def own(
    subject: Subject,
    module: torch.nn.Module,
    point: PosedBatch,
    shakes: int = SHAKES,
    training: bool = True,
) -> tuple[Computed, dict[str, float]]:
    """What the module's own float64 says at a point, and how far one rounding moves that.

    Parameters
    ----------
    module : Module
        Its weights are the twin's.
    training : bool
        Whether gradients are asked for.

    Returns
    -------
    tuple of (Computed, dict)
        The dict has the largest change of ``output`` and of each gradient over `shakes` changes of
        x and of every weight by one rounding of the subject's dtype.

    Raises
    ------
    Void
        If it does not run in float64.
    """
    double, unit = subject.double(), UNIT[subject.judged_as]
    exact = point.to(torch.float64)
    doing = "float64, which would be its oracle,"
    twin = double.twin(module)
    try:
        expected = double.answer(exact, doing, twin, training=training)
    except Refused as reason:
        raise Void(str(reason)) from reason
    want = numbers(expected, exact)
    moved = dict.fromkeys(want, 0.0)
    for draw in range(shakes):
        generator = torch.Generator().manual_seed(draw)
        other = double.twin(module)
        with torch.no_grad():
            for weight in trained(other).values():
                weight.copy_(shaken(weight, unit, generator))
        x = shaken(exact.x, unit, generator)
        got = double.answer(exact, doing, other, x, training)
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
        shakes = 1 if point.x.shape[1] >= LONG else SHAKES
        expected, moved = own(subject, subject.module(), point, shakes)
        told_if_hopeless(subject, moved, point)
        subject.remembered[drawn] = expected, moved
    found: tuple[Computed, dict[str, float]] = subject.remembered[drawn]
    return found


def told_if_hopeless(subject: Subject, moved: Mapping[str, float], point: PosedBatch) -> None:
    """Raise `Void` if rounding alone moves the output by more than `HOPELESS`."""
    if moved[OUTPUT] > HOPELESS:
        raise Void(
            f"ill-conditioned: rounding x and weights to {NAMES[subject.dtype]} moves the output "
            f"by {moved[OUTPUT]:.2g} of its size, so nothing can be told ({point.where})"
        )


def allowed(moved: float, dtype: str, gradient: str, point: PosedBatch) -> float:
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
    for lengths in (*SMALL, (LONG,)):
        found, _, _ = off_kinks(partial(_drawn, subject, lengths), 0)
        yield from found


def _drawn(subject: Subject, lengths: Lengths, seed: int) -> tuple[list[Finding], bool]:
    """Findings at one point; whether another one must tell, as a kink or a jump may lie here."""
    point = subject.point(lengths, seed)
    expected, moved = known(subject, point.drawn)
    module = subject.module()
    short = max(lengths) < LONG
    found = list(_rough(subject, module, point, moved[OUTPUT])) if short else []
    if subject.dtype != "f64":
        got = numbers(subject.answer(point, "a plain call", module), point)
        found += against(subject, got, numbers(expected, point), moved, point)
    return found, not all(one.ok for one in found)


def against(
    subject: Subject,
    got: Mapping[str, np.ndarray],
    want: Mapping[str, np.ndarray],
    moved: Mapping[str, float],
    point: PosedBatch,
    doing: str = "",
) -> Iterator[Finding]:
    """Each number against its own float64's."""
    doing = doing or f"{NAMES[subject.judged_as]} in place of float64"
    for name, value in got.items():
        gradient = of(name)
        off = error(value, want[name])
        budget = allowed(moved[name], subject.judged_as, gradient, point)
        lower = less(off, moved[name], subject.judged_as, point)
        what = f"{doing} changed the {name}"
        yield Finding(what, off, budget, gradient, point.where, lower)


def less(off: float, moved: float, dtype: str, point: PosedBatch) -> str:
    """In which precision an error of this size would be ordinary, as a hint."""
    for one in LOWER[dtype]:
        if off <= allowed(moved * UNIT[one] / UNIT[dtype], one, "", point):
            return f"it computes in less than {NAMES[dtype]}: this is what {NAMES[one]} costs"
    return ""


def _rough(
    subject: Subject, module: torch.nn.Module, point: PosedBatch, moved: float
) -> Iterator[Finding]:
    """Whether its float64 is smooth along steps of x that lower precisions hardly notice.

    Numbers that are rounded to less on the way stand still, or jump.
    """
    if subject.dtype not in STEP or subject.declares("straight-through"):
        return
    exact, double = point.to(torch.float64), subject.double()
    generator = torch.Generator().manual_seed(len(point.where))
    direction = torch.randn(exact.x.shape, generator=generator).to(exact.x)

    def at(step: float) -> np.ndarray:
        stepped = replace(exact, x=exact.x * (1 + step * direction))
        return double.values(stepped, "a small step of x", double.twin(module))

    middle, far = at(0), at(LARGE_STEP)
    bend = moved / UNIT[subject.judged_as]
    for dtype in [one for one in STEP if UNIT[one] >= UNIT[subject.dtype]]:
        unit = bend * UNIT[dtype]
        budget = 4 * allowed(unit, dtype, "", point)
        # What it computes may bend: by less than the budget within the step.
        step = min(STEP[dtype], 0.5 * math.sqrt(budget) / max(1.0, bend))
        up, down = at(step), at(-step)
        rough = error(up + down, 2 * middle)
        what = f"steps of {step:.0e} of x, there and back,"
        lower = less(rough, unit, dtype, point)
        yield Finding(f"{what} changed the output", rough, budget, "", point.where, lower)
        moves = far != middle
        still = float((moves & (up == middle)).sum() / max(1, moves.sum()))
        what = f"the share of the output that a step of {step:.0e} of x does not move grew"
        hint = f"it rounds to less than {NAMES[dtype]}; if on purpose, declare straight-through"
        yield Finding(what, still, 0.5, "", point.where, hint)
