"""Gradients against finite differences in float64: of x and of every weight."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from harness.verify.batches import ragged
from harness.verify.compare import off_kinks, trained
from harness.verify.unaided.subject import Finding, Lengths, PosedBatch, Subject, Void, told

BATCHES: tuple[tuple[Lengths, int, bool, bool], ...] = (
    (ragged(2), 1, False, False),
    (ragged(7), 2, False, False),
    (ragged(7), 1, True, True),
    (ragged(65), 2, True, False),
)
"""Lengths, how many directions are tried there, whether of all tensors at once, and whether in
training mode, with dropout that drops the same at every step."""
TOLERANCE = 1e-5
"""Relative to the rate; beside it what the differences say of their own error."""
KINK = 1e-3
"""Differences that are less sure than this lie at a kink or a jump, and are drawn anew."""
ROUNDING = 2.0**-50
HINT = "a lost factor, a detached part or a wrong backward; what is meant so is to be declared"
DECLARED = ("straight-through", "stop-gradient")


@dataclass(frozen=True)
class Rate:
    """A directional derivative by differences, and how far it may be off."""

    value: float
    unsure: float


def rate(loss: Callable[[float], float], noise: float, size: float, most: float) -> Rate:
    """Central differences with the step that suits the noise, and with twice that step.

    Parameters
    ----------
    loss : callable
        At a step along the direction.
    noise, size : float
        Absolute error of the loss, and what counts as one in it.
    most : float
        Step at which the loss would bend, whatever it is.
    """
    middle = loss(0.0)
    step = min(most, (noise / size) ** (1 / 3))
    up, down, up2, down2 = (loss(k * step) for k in (1, -1, 2, -2))
    near, far = (up - down) / (2 * step), (up2 - down2) / (4 * step)
    # Both sides' rates differ in proportion to the step, unless there is a kink at the very point.
    bend, bend2 = (up + down - 2 * middle) / step, (up2 + down2 - 2 * middle) / (2 * step)
    return Rate(near, abs(far - near) + abs(bend2 - 2 * bend) + noise / step)


def gradients(subject: Subject) -> Iterator[Finding]:
    """Each gradient times a direction is the rate at which a step along it moves the output."""
    double = subject.double()
    if any(double.declares(word) for word in DECLARED):
        return
    for lengths, directions, joint, training in BATCHES:
        for one in range(directions):
            found, kink, _ = off_kinks(partial(_drawn, double, lengths, joint, training), one)
            if kink:
                raise Void(
                    "finite differences say nothing: at every point drawn the output has a kink or "
                    f"a jump, or is ill-conditioned (N={max(lengths)}, f64)"
                )
            yield from found


def _drawn(
    subject: Subject, lengths: Lengths, joint: bool, training: bool, seed: int
) -> tuple[list[Finding], bool]:
    module = subject.module().train(training)
    return differences(module, subject.point(lengths, seed), seed, joint)


def differences(
    module: torch.nn.Module, point: PosedBatch, seed: int, joint: bool
) -> tuple[list[Finding], bool]:
    """Of one point, along one direction of x and of each weight; whether that is at a kink.

    Parameters
    ----------
    module : Module
        In float64, as the point is. In training mode it draws the same at every step; nothing is
        found of one that does not, by a generator of its own.
    joint : bool
        Whether along one direction of all of them at once, which costs as much as one.
    """
    x = point.x.clone().requires_grad_()
    tensors = {"x": x, **trained(module)}

    def loss() -> torch.Tensor:
        if module.training:
            torch.manual_seed(seed)
        with told("a plain call", point):
            output = module(x, point.real.clone())
        return (output * point.cotangent).sum()

    whole = loss()
    with told("a backward pass", point):
        whole.backward()
    gradients = {name: tensor.grad for name, tensor in tensors.items()}
    if module.training and float(loss().detach()) != float(whole.detach()):
        return [], False
    size = float(whole.detach().abs()) + float(point.cotangent.abs().sum())
    noise = max(ROUNDING * size, _noise(loss, x, point))
    findings, kink = [], False
    for names in [list(tensors)] if joint else [[name] for name in tensors]:
        line = Direction({name: tensors[name] for name in names}, point, seed)
        says, length = line.slope(gradients)
        most = min(1e-2, size / (100 * length) if length else math.inf)
        one = rate(partial(line.at, loss), noise, size, most)
        line.at(loss, 0.0)
        scale = max(abs(one.value), length, 1e-6 * size)
        if one.unsure > KINK * scale:
            kink = True
            continue
        called = "x and all weights" if joint else names[0]
        called += " in training mode" if module.training else ""
        missing = not joint and gradients[names[0]] is None
        findings.append(
            Finding(
                f"a step along {called} moves the output at a rate of {one.value:.3g} and its "
                f"gradient {'is None' if missing else f'says {says:.3g}'}: off",
                abs(says - one.value) / scale,
                TOLERANCE + one.unsure / scale,
                called,
                point.where,
                HINT,
            )
        )
    return findings, kink and all(one.ok for one in findings)


class Direction:
    """A straight line through some tensors, in a random direction.

    Parameters
    ----------
    tensors : mapping of Tensor
        They are moved in place; ``at(loss, 0.0)`` puts them back.
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], point: PosedBatch, seed: int) -> None:
        self._tensors = tensors
        self._start = {name: tensor.detach().clone() for name, tensor in tensors.items()}
        self._along = {}
        for name, tensor in tensors.items():
            generator = torch.Generator().manual_seed(seed)
            direction = torch.randn(tensor.shape, generator=generator).to(tensor)
            self._along[name] = direction * point.real[..., None] if name == "x" else direction

    def at(self, loss: Callable[[], torch.Tensor], step: float) -> float:
        """The loss at a step along it."""
        with torch.no_grad():
            for name, tensor in self._tensors.items():
                tensor.copy_(self._start[name] + step * self._along[name])
        return float(loss().detach())

    def slope(self, gradients: Mapping[str, torch.Tensor | None]) -> tuple[float, float]:
        """The rate that gradients say, and their length; what has none counts as zero."""
        says, square = 0.0, 0.0
        for name, direction in self._along.items():
            gradient = gradients[name]
            if gradient is not None:
                says += float((gradient * direction).sum())
                square += float(gradient.square().sum())
        return says, math.sqrt(square)


def _noise(loss: Callable[[], torch.Tensor], x: torch.Tensor, point: PosedBatch) -> float:
    """How rough the loss is along steps of x far below any that would bend it.

    Small and less small ones: what computes in less than float64 stands still on the smallest.
    """
    start = x.detach().clone()
    generator = torch.Generator().manual_seed(1)
    rough = 0.0
    middle = float(loss().detach())
    for step in (1e-9, 1e-8, 1e-7):
        along = torch.randn(x.shape, generator=generator).to(x) * point.real[..., None]
        sides = 0.0
        for sign in (-1, 1):
            with torch.no_grad():
                x.copy_(start + sign * step * along)
            sides += float(loss().detach())
        rough = max(rough, abs(sides - 2 * middle))
    with torch.no_grad():
        x.copy_(start)
    return rough
