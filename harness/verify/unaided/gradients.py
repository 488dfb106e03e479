"""Gradients against finite differences in float64: of x and of every weight."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch

from harness.verify.batches import ragged
from harness.verify.compare import off_kinks
from harness.verify.unaided.subject import (
    Finding,
    Lengths,
    Point,
    Subject,
    Void,
    told,
    trained,
)

BATCHES: tuple[tuple[Lengths, int], ...] = ((ragged(2), 1), (ragged(7), 2), (ragged(65), 1))
"""Lengths, and how many directions are tried there."""
TOLERANCE = 1e-5
"""Relative to the rate; beside it what the differences say of their own error."""
KINK = 1e-3
"""Differences that are less sure than this lie at a kink or a jump, and are drawn anew."""
ROUNDING = 2.0**-50
DECLARED = ("straight-through", "stop-gradient")


@dataclass(frozen=True)
class Rate:
    """A directional derivative by differences, and how far it may be off."""

    value: float
    unsure: float


def rate(loss: Callable[[float], float], noise: float) -> Rate:
    """Central differences with the step that suits the noise, and with twice that step.

    Parameters
    ----------
    loss : callable
        At a step along the direction.
    noise : float
        Absolute error of the loss.
    """
    middle = max(abs(loss(0.0)), noise / ROUNDING)
    step = min(1e-2, max(1e-6, (noise / middle) ** (1 / 3)))
    near = (loss(step) - loss(-step)) / (2 * step)
    far = (loss(2 * step) - loss(-2 * step)) / (4 * step)
    return Rate(near, abs(far - near) + noise / step)


def gradients(subject: Subject) -> Iterator[Finding]:
    """Each gradient times a direction is the rate at which a step along it moves the output."""
    double = subject.double()
    if any(double.declares(word) for word in DECLARED):
        return
    for lengths, directions in BATCHES:
        for one in range(directions):
            found, kink, _ = off_kinks(partial(_drawn, double, lengths), one)
            if kink:
                raise Void(
                    f"finite differences say nothing: every point drawn is at a kink or a jump of "
                    f"the output (N={max(lengths)}, f64)"
                )
            yield from found


def _drawn(subject: Subject, lengths: Lengths, seed: int) -> tuple[list[Finding], bool]:
    return differences(subject, subject.point(lengths, seed), seed)


def differences(
    subject: Subject, point: Point, seed: int, module: torch.nn.Module | None = None
) -> tuple[list[Finding], bool]:
    """Of one point, along one direction of x and of each weight; whether that is at a kink.

    Parameters
    ----------
    subject : Subject
        In float64.
    module : Module, optional
        To look at in place of a fresh one.
    """
    module = module or subject.module()
    x = point.x.clone().requires_grad_()
    tensors = {"x": x, **trained(module)}

    def loss() -> torch.Tensor:
        with told("a plain call", point):
            output = module(x, point.real.clone())
        return (output * point.cotangent).sum()

    whole = loss()
    found = torch.autograd.grad(whole, list(tensors.values()), allow_unused=True)
    size = float(whole.detach().abs()) + float(point.cotangent.abs().sum())
    noise = max(ROUNDING * size, _noise(loss, x, point))
    findings, kink = [], False
    for (name, tensor), gradient in zip(tensors.items(), found, strict=True):
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(tensor.shape, generator=generator).to(tensor)
        if name == "x":
            direction = direction * point.real[..., None]
        start = tensor.detach().clone()

        def at(
            step: float,
            tensor: torch.Tensor = tensor,
            start: torch.Tensor = start,
            direction: torch.Tensor = direction,
        ) -> float:
            with torch.no_grad():
                tensor.copy_(start + step * direction)
            return float(loss().detach())

        one = rate(at, noise)
        at(0.0)
        says = 0.0 if gradient is None else float((gradient * direction).sum())
        length = 0.0 if gradient is None else float(gradient.norm())
        scale = max(abs(one.value), length, 1e-6 * size)
        kink = kink or one.unsure > KINK * scale
        told_of = "is None" if gradient is None else f"says {says:.3g}"
        findings.append(
            Finding(
                f"a step along {name} moves the output at a rate of {one.value:.3g} and its "
                f"gradient {told_of}: off",
                abs(says - one.value) / scale,
                TOLERANCE + one.unsure / scale,
                name,
                point.where,
                "a lost factor, a detached part or a wrong backward; what is so on purpose is "
                "declared",
            )
        )
    return findings, kink


def _noise(loss: Callable[[], torch.Tensor], x: torch.Tensor, point: Point) -> float:
    """How rough the loss is along steps of x far below any that would bend it."""
    start = x.detach().clone()
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x)
    steps = []
    for step in (-1e-9, 0.0, 1e-9):
        with torch.no_grad():
            x.copy_((start + step * direction) * point.real[..., None])
        steps.append(float(loss().detach()))
    with torch.no_grad():
        x.copy_(start)
    return abs(steps[0] + steps[2] - 2 * steps[1])
