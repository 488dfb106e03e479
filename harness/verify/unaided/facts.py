"""What a module computes, told and not judged: symmetries in float64, and how far a row sees."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch

from harness.registry import Registry
from harness.verify.budget import error
from harness.verify.unaided.subject import LONG, Refused, Subject, of_mechanism, told

N = 7
EXACT = 1e-9
"""What differs by less is called the same."""


def facts(name: str, given: Sequence[str] = ()) -> list[tuple[str, str]]:
    """Each question and its answer in words; runs in a child.

    Parameters
    ----------
    name : str
        ``mechanism`` or ``mechanism.implementation``.
    given : sequence of str
        What ``--with`` named.
    """
    torch.set_num_threads(1)
    mechanism, implementation = Registry(given).find(name)
    subject = of_mechanism(mechanism, implementation, "f64", "cpu")
    try:
        return _answers(subject)
    except Refused as reason:
        return [("can't be told", str(reason))]


def _answers(subject: Subject) -> list[tuple[str, str]]:
    point = subject.point((N,))

    def at(x: torch.Tensor) -> np.ndarray:
        return subject.values(replace(point, x=x), "a plain call")

    x, base, order = point.x, at(point.x), [3, 0, 6, 1, 5, 2, 4]
    rows = "the same rows, in that order" if subject.tokens else "the same sentence vector"
    off = error(at(x[:, order]), base[:, order] if subject.tokens else base)
    found = [(f"tokens in another order: {rows}", _says(off))]
    for side in ("later", "earlier") if subject.tokens else ():
        off = max(_from_a_side(side, between, x, base, at) for between in range(1, N))
        found.append((f"a row does not depend on {side} tokens", _says(off)))
    shift = torch.linspace(-1, 1, x.shape[-1], dtype=x.dtype).to(x.device)
    other = x.flip(1).flip(2)
    affine = error(at(x + other) + at(torch.zeros_like(x)), base + at(other))
    return [
        *found,
        ("the same vector added to every token changes nothing", _says(error(at(x + shift), base))),
        ("x times a is the output times a power of a", _degree(base, at(2 * x), at(8 * x))),
        ("affine in x: a matrix and a bias", _says(affine)),
        *(_sight(subject, n) for n in (N, LONG)),
    ]


def _says(off: float) -> str:
    return "yes" if off < EXACT else f"no: off by {off:.2g}"


def _from_a_side(
    side: str,
    between: int,
    x: torch.Tensor,
    base: np.ndarray,
    at: Callable[[torch.Tensor], np.ndarray],
) -> float:
    """How far rows move where so many of the first tokens, or of the last, are as they were."""
    kept, others = slice(None, between), slice(between, None)
    if side == "earlier":
        kept, others = slice(N - between, None), slice(None, N - between)
    moved = x.clone()
    moved[:, others] += 1
    return error(at(moved)[:, kept], base[:, kept])


def _degree(base: np.ndarray, twice: np.ndarray, eight: np.ndarray) -> str:
    """The power of a by which a times x grows, if it is the same for 2 and for 8."""
    size = float(np.abs(base).sum())
    degree = math.log2(float(np.abs(twice).sum()) / size) if size else 0.0
    off = max(error(twice, 2**degree * base), error(eight, 8**degree * base))
    return f"yes: power {degree:.3g}" if off < EXACT else "no"


def _sight(subject: Subject, n: int) -> tuple[str, str]:
    """Which tokens the gradient of the first row, and of the last, reaches; of a sentence, all."""
    point = subject.point((n,))
    x = point.x.clone().requires_grad_()
    with told("a plain call", point):
        output = subject.module()(x, point.real.clone())
    if not subject.tokens:
        (slope,) = torch.autograd.grad(output.abs().sum(), x)
        return f"tokens that the output depends on, of {n}", _places(slope)
    ends = [
        _places(torch.autograd.grad(output[0, row].abs().sum(), x, retain_graph=True)[0])
        for row in (0, n - 1)
    ]
    return f"tokens that the first and the last row depend on, of {n}", " and ".join(ends)


def _places(slope: torch.Tensor) -> str:
    """``1 to 7`` or ``1, 3, 5 (and 4 more)``: tokens where a gradient [1, N, D] is not zero."""
    places = [int(i) + 1 for i in (slope[0] != 0).any(-1).nonzero()]
    if not places:
        return "none"
    if len(places) == places[-1] - places[0] + 1:
        return f"{places[0]} to {places[-1]}" if len(places) > 1 else f"{places[0]} alone"
    more = f" (and {len(places) - 3} more)" if len(places) > 3 else ""
    return ", ".join(map(str, places[:3])) + more
