"""Checks of one call: what comes back, padding, the other samples of the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np
import torch

from harness.verify.budget import error
from harness.verify.compare import OUTPUT, Computed
from harness.verify.unaided.subject import Finding, Point, Refused, Subject, numbers, told

TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 1e-2, "bf16": 5e-2}
"""Another content or amount of padding may change the order of sums, nothing more."""
KEYS = "mask keys and zero x at padding"


def apart(got: np.ndarray, want: np.ndarray) -> float:
    """`error`, where the same numbers are not finite in both."""
    if got.shape != want.shape or not np.array_equal(np.isfinite(got), np.isfinite(want)):
        return math.inf
    finite = np.isfinite(want)
    return error(got[finite], want[finite])


def changes(
    subject: Subject,
    doing: str,
    got: Mapping[str, np.ndarray],
    want: Mapping[str, np.ndarray],
    point: Point,
    hint: str = "",
) -> Iterator[Finding]:
    """How far each number of `got` is from that of `want`, where rounding alone may differ."""
    for name, value in got.items():
        gradient = name.removeprefix("gradient of ") if name != OUTPUT else ""
        moved = apart(value, want[name])
        yield Finding(
            f"{doing} changed the {name}",
            moved,
            TOLERANCE[subject.dtype],
            gradient,
            point.where,
            hint,
        )


def answer(subject: Subject) -> Iterator[Finding]:
    """A plain tensor of the promised shape, in the dtype and on the device of x."""
    module = subject.module()
    for point in subject.points():
        want = list(point.cotangent.shape)
        with told("a plain call", point), torch.no_grad():
            output = module(point.x.clone(), point.real.clone())
        if type(output) is not torch.Tensor:
            kind = f"a {type(output).__name__} came back"
            names = "[B, N, d_out]" if subject.tokens else "[B, d_out]"
            raise Refused(f"{kind}; expected a torch.Tensor {names} ({point.where})")
        if list(output.shape) != want:
            raise Refused(f"output is {list(output.shape)}, expected {want} ({point.where})")
        for name in ("dtype", "device"):
            if getattr(output, name) != getattr(point.x, name):
                raise Refused(
                    f"x is {getattr(point.x, name)} and a tensor of {getattr(output, name)} "
                    f"came back; expected the {name} of x ({point.where})"
                )
    yield from ()


def finite(subject: Subject) -> Iterator[Finding]:
    """Finite values and gradients: of random tokens, of few values, without tokens."""
    module = subject.module()
    for point in subject.points():
        signs = point.x.sign()
        contents = {
            "random x": point.x,
            "x of zeros": torch.zeros_like(point.x),
            "x of ones": signs.abs(),
            "x of ones and minus ones": signs,
        }
        for doing, x in contents.items():
            for name, value in numbers(subject.answer(module, point, doing, x), point).items():
                if not np.isfinite(value).all():
                    raise Refused(f"{doing}: the {name} is not finite ({point.where})")
    yield from ()


def padding(subject: Subject) -> Iterator[Finding]:
    """Neither what stands at padding nor how much of it there is reaches a real row."""
    module = subject.module()
    for point in subject.points():
        pad = ~point.real[..., None]
        noise = torch.randn(point.x.shape, generator=torch.Generator().manual_seed(7)) * 10
        contents = {
            "zeros at padding": point.x,
            "random numbers at padding": torch.where(pad, noise.to(point.x), point.x),
            "NaN at padding": point.x.masked_fill(pad, math.nan),
        }
        found = {doing: subject.answer(module, point, doing, x) for doing, x in contents.items()}
        for doing, one in found.items():
            if subject.tokens and np.any(one.output[~point.real.cpu().numpy()]):
                raise Refused(f"rows at padding are not zero, with {doing} of x ({point.where})")
        base = numbers(found.pop("zeros at padding"), point)
        for doing, one in found.items():
            yield from changes(subject, doing, numbers(one, point), base, point, KEYS)
        for count in (3, point.x.shape[1]):
            wider = point.wider(count)
            doing = f"{count} more padded positions"
            more = numbers(subject.answer(module, wider, doing), wider)
            yield from changes(subject, doing, more, base, point, KEYS)


def batch(subject: Subject) -> Iterator[Finding]:
    """A sample's answer does not depend on which others are in its batch, or on their order."""
    module = subject.module()
    hint = "a sample must not see the others of its batch (batch_first of torch's modules?)"
    for point in subject.points():
        count = len(point.x)
        whole = subject.answer(module, point, "a plain call")
        orders = {"a batch in another order": list(reversed(range(count)))}
        orders |= {f"sample {i + 1} of {count} alone": [i] for i in range(count)}
        for doing, picked in orders.items():
            some = point.samples(picked)
            got = numbers(_of_samples(subject.answer(module, some, doing)), some)
            want = numbers(_of_samples(whole, picked), some)
            yield from changes(subject, doing, got, want, point, hint)


def _of_samples(found: Computed, picked: list[int] | None = None) -> Computed:
    """What belongs to samples: the gradients of weights are sums over all of them."""
    index = slice(None) if picked is None else picked
    return Computed({OUTPUT: found.output[index]}, {"x": found.gradients["x"][index]})
