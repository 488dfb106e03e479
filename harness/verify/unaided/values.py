"""Checks of one call: what comes back, padding, the other samples of the batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import torch

from harness.verify.batches import ragged
from harness.verify.budget import error
from harness.verify.compare import OUTPUT, Computed
from harness.verify.unaided.precision import allowed, known
from harness.verify.unaided.subject import (
    LONG,
    SMALL,
    Finding,
    PosedBatch,
    Refused,
    Subject,
    numbers,
    of,
    told,
)

FEW = 7
"""Tokens of a short input, with which a long one is compared."""
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
    point: PosedBatch,
    hint: str = "",
) -> Iterator[Finding]:
    """How far each number of `got` is from that of `want`, where rounding alone may differ."""
    _, moved = known(subject, point.drawn)
    for name, value in got.items():
        budget = allowed(moved[name], subject.dtype, of(name), point)
        what = f"{doing} changed the {name}"
        yield Finding(what, apart(value, want[name]), budget, of(name), point.where, hint)


def answer(subject: Subject) -> None:
    """A plain tensor of the promised shape, in the dtype and on the device of x, with a gradient.

    Without gradients too, where some take another way.
    """
    module = subject.module()
    for point in subject.points():
        for wanted in (True, False):
            with told("a plain call", point), torch.set_grad_enabled(wanted):
                output = module(point.x.clone().requires_grad_(wanted), point.real.clone())
            _refuse_other(subject, output, point)
            if wanted and not output.requires_grad:
                raise Refused(
                    "the output carries no gradient, so nothing could be trained "
                    f"({point.where}); it is detached, or computed under no_grad"
                )


def _refuse_other(subject: Subject, output: torch.Tensor, point: PosedBatch) -> None:
    want = list(point.cotangent.shape)
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


def finite(subject: Subject) -> None:
    """Finite values and gradients: of random tokens, few values, large ones, without tokens."""
    for point in (*subject.points(), *subject.steep()):
        signs = point.x.sign()
        contents = {
            "random x": point.x,
            "x of zeros": torch.zeros_like(point.x),
            "x of ones": signs.abs(),
            "x of ones and minus ones": signs,
        }
        for doing, x in contents.items():
            found = subject.answer(point, doing, x=x)
            every = {**numbers(found, point), "gradient of x at padding": found.gradients["x"]}
            for name, value in every.items():
                if not np.isfinite(value).all():
                    told_of = f"{doing}{_by_an_empty_sample(subject, point, x)}"
                    raise Refused(f"{told_of}: the {name} is not finite ({point.where})")


def _by_an_empty_sample(subject: Subject, point: PosedBatch, x: torch.Tensor) -> str:
    """What to add where all is finite once samples without tokens are left out."""
    some = replace(point, x=x).samples(point.real.any(1).nonzero().flatten().tolist())
    found = numbers(subject.answer(some, "samples with tokens"), some)
    every = all(np.isfinite(value).all() for value in found.values())
    return " and a sample without tokens" if every else ""


def padding(subject: Subject) -> Iterator[Finding]:
    """Neither what stands at padding nor how much of it there is reaches a real row."""
    for point in subject.points():
        pad = ~point.real[..., None]
        noise = torch.randn(point.x.shape, generator=torch.Generator().manual_seed(7)) * 10
        contents = {
            "zeros at padding": point.x,
            "random numbers at padding": torch.where(pad, noise.to(point.x), point.x),
            "NaN at padding": point.x.masked_fill(pad, math.nan),
        }
        found = {doing: subject.answer(point, doing, x=x) for doing, x in contents.items()}
        for doing, one in found.items():
            if subject.tokens and np.any(one.output[~point.real.cpu().numpy()]):
                raise Refused(f"rows at padding are not zero, with {doing} of x ({point.where})")
        base = numbers(found.pop("zeros at padding"), point)
        for doing, one in found.items():
            yield from changes(subject, doing, numbers(one, point), base, point, KEYS)
        for count in (3, point.x.shape[1]):
            wider = point.wider(count)
            doing = f"{count} more padded positions"
            more = numbers(subject.answer(wider, doing), wider)
            yield from changes(subject, doing, more, base, point, KEYS)
    # A path for long input must say what the short one says; its gradients would cost much.
    for point, count in (
        (subject.point(ragged(FEW)), LONG - FEW),
        *((p, 3) for p in subject.steep()),
    ):
        wider = point.wider(count)
        doing = f"{count} more padded positions"
        few, more = (numbers(subject.answer(p, doing, training=False), p) for p in (point, wider))
        yield from changes(subject, doing, more, few, point, KEYS)


def reach(subject: Subject) -> None:
    """The last tokens matter, at any length: nothing is cut off."""
    for n in (*map(max, SMALL), LONG):
        if n > 1:
            reached(subject, n)


def reached(subject: Subject, n: int) -> None:
    """Raise `Refused` if what stands in the second half of n tokens moves nothing.

    Or the last one, or the last but one no row but its own, while it does among few tokens.
    """
    point = subject.point((n,))
    for first in sorted({n // 2, n - 1}):
        looks_back = first == n - 1 and not _moves(subject, FEW, FEW - 1)
        if not looks_back and not _moves(subject, n, first):
            raise Refused(
                f"other tokens from place {first + 1} of {n} on left the output exactly as it "
                f"was ({point.where}); nothing may be cut off"
            )

    if not subject.tokens or n <= FEW:
        return
    if _moves(subject, FEW, FEW - 2, FEW - 1) and not _moves(subject, n, n - 2, n - 1):
        raise Refused(
            f"another token at place {n - 1} of {n} moved no row but its own ({point.where}), as "
            f"it does among {FEW} tokens; nothing may be cut off"
        )


def _moves(subject: Subject, n: int, first: int, end: int | None = None) -> bool:
    """Whether other tokens from a place on move anything; up to an end, another row than theirs."""
    point, places = subject.point((n,)), slice(first, end)
    base = subject.values(point, "a plain call")
    for seed in (1, 2, 3):  # a maximum may be elsewhere by chance
        x = point.x.clone()
        x[:, places] = 10 * subject.point((n,), seed).x[:, places]
        moved = subject.values(replace(point, x=x), "other tokens") != base
        if end is not None:
            moved[:, places] = False
        if moved.any():
            return True
    return False


def batch(subject: Subject) -> Iterator[Finding]:
    """A sample's answer does not depend on which others are in its batch, or on their order."""
    hint = "a sample must not see the others of its batch (batch_first of torch's modules?)"
    for point in subject.points():
        count = len(point.x)
        whole = subject.answer(point, "a plain call")
        orders = {"a batch in another order": list(reversed(range(count)))}
        orders |= {f"sample {i + 1} of {count} alone": [i] for i in range(count)}
        for doing, picked in orders.items():
            some = point.samples(picked)
            got = numbers(_of_samples(subject.answer(some, doing)), some)
            want = numbers(_of_samples(whole, picked), some)
            yield from changes(subject, doing, got, want, point, hint)


def _of_samples(found: Computed, picked: list[int] | None = None) -> Computed:
    """What belongs to samples: the gradients of weights are sums over all of them."""
    index = slice(None) if picked is None else picked
    return Computed({OUTPUT: found.output[index]}, {"x": found.gradients["x"][index]})


def forms(subject: Subject) -> Iterator[Finding]:
    """The same x and mask in other forms: in another layout; of another type, or refused."""
    for point in subject.points():
        base = subject.values(point, "a plain call")
        wide = torch.cat([point.x, torch.full_like(point.x, math.nan)], -1)
        laid = {
            "an x that lies transposed in memory": point.x.mT.contiguous().mT,
            "an x that is part of a wider tensor": wide[..., : point.x.shape[-1]],
        }
        for doing, x in laid.items():
            got = subject.values(replace(point, x=x), doing)
            yield from changes(subject, doing, {OUTPUT: got}, {OUTPUT: base}, point)
        for dtype in (torch.uint8, torch.int64):
            doing = f"a mask of {dtype}"
            try:
                got = subject.values(replace(point, real=point.real.to(dtype)), doing)
            except Refused:
                continue  # to refuse it is right
            hint = "take it for what it means, or refuse what is not bool"
            yield from changes(subject, doing, {OUTPUT: got}, {OUTPUT: base}, point, hint)


def memory(subject: Subject) -> Iterator[Finding]:
    """Memory that nobody has written to is never read: here it is full of NaN."""
    before = torch.get_deterministic_debug_mode()
    for point in subject.points():
        base = numbers(subject.answer(point, "a plain call"), point)
        try:
            # Filling is part of deterministic algorithms; what has none may go on as it is.
            torch.set_deterministic_debug_mode("warn")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                doing = "NaN in memory that nobody has written to"
                found = subject.answer(point, doing)
        finally:
            torch.set_deterministic_debug_mode(before)
        yield from changes(subject, doing, numbers(found, point), base, point, "torch.empty?")
