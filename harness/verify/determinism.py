"""Whether the same bits come again, and what torch's deterministic mode costs. Runs in children."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch._inductor.cpp_builder import get_cpp_compiler

from harness.verify.budget import error
from harness.verify.check import chosen
from harness.verify.compare import OUTPUT, Computed, computed
from harness.verify.unaided.subject import Point, Subject
from reference_impls.mechanism import Unsupported

REPEATS = 30
LENGTHS = (96, 96, 64, 33)
WIDTH = 48
"""Large enough for torch to share work among threads, small enough for 30 passes in a second."""
PAIRS = 15
"""Passes with and without the deterministic mode, in turn."""


def determinism(
    name: str,
    dtype: str,
    device: str,
    given: tuple[str, ...] | list[str] = (),
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Repeat one pass, values and gradients, and compare the bits.

    Returns
    -------
    dict
        ``repeats``; the largest difference, relative as an error is, of values and gradients
        between repeats (``again``), of a sample alone against it in a batch (``batch``), of one
        thread against two (``threads``, CPU), of eager against compiled (``compiled``): 0.0 is the
        same bits, null was not tried, and ``reasons`` says why. ``price``: time of a pass in
        torch's deterministic mode over that without, the median of `PAIRS`, and their quartiles
        ``price_low`` and ``price_high``.
    """
    mechanism, implementation = chosen(name, device, given, options)
    if device not in implementation.devices:
        raise Unsupported(f"{name} does not run on {device}")
    whole = {**mechanism.options, **implementation.options}
    sizes = (WIDTH, WIDTH, 4, (LENGTHS,))
    subject = Subject(mechanism, implementation, dtype, device, whole, *sizes)
    module, point = subject.module(), subject.point(LENGTHS)
    first = _asked(module, point)
    found: dict[str, Any] = {"repeats": REPEATS, "reasons": {}}
    found["again"] = max(_apart(_asked(module, point), first) for _ in range(REPEATS - 1))
    found["batch"] = max(_alone(module, point, first, b) for b in range(len(LENGTHS)))
    found["threads"] = _with_threads(module, point, first) if device == "cpu" else None
    found["compiled"] = _compiled(module, point, first, found["reasons"])
    found |= _price(module, point, found["reasons"])
    return found


def _asked(module: Any, point: Point) -> Computed:
    return computed(module, point.x, point.real, point.cotangent)


def _apart(got: Computed, wanted: Computed) -> float:
    """The largest difference of any value or gradient; 0.0 only for the same bits."""
    pairs = [
        (getattr(got, part)[name], value)
        for part in ("values", "gradients")
        for name, value in getattr(wanted, part).items()
    ]
    return max(0.0 if np.array_equal(a, b, equal_nan=True) else error(a, b) for a, b in pairs)


def _alone(module: Any, point: Point, whole: Computed, b: int) -> float:
    """One sample alone: its output, and the gradient of its tokens."""
    wanted = Computed({OUTPUT: whole.output[b : b + 1]}, {"x": whole.gradients["x"][b : b + 1]})
    return _apart(_asked(module, point.samples([b])), wanted)


def _with_threads(module: Any, point: Point, first: Computed) -> float:
    torch.set_num_threads(2)
    try:
        return _apart(_asked(module, point), first)
    finally:
        torch.set_num_threads(1)


def _compiled(
    module: torch.nn.Module, point: Point, first: Computed, reasons: dict[str, str]
) -> float | None:
    if point.x.device.type == "cpu":
        try:
            get_cpp_compiler()
        except Exception as missing:  # torch has no class of its own for it in all its versions
            reasons["compiled"] = f"not tried, no compiler is here: {str(missing).splitlines()[0]}"
            return None
    torch.compiler.reset()
    names = [name for name, _ in module.named_parameters()]
    try:
        got = _asked(torch.compile(module, dynamic=False), point)
    except Exception as failure:
        reasons["compiled"] = f"failed: {type(failure).__name__}: {str(failure).splitlines()[0]}"
        return None
    gradients = {"x": got.gradients["x"], **{n: got.gradients[f"_orig_mod.{n}"] for n in names}}
    return _apart(Computed(got.values, gradients), first)


def _price(module: Any, point: Point, reasons: dict[str, str]) -> dict[str, float | None]:
    """The deterministic mode's time over that without, passes in turn."""
    nothing: dict[str, float | None] = {"price": None, "price_low": None, "price_high": None}
    ratios = []
    try:
        for _ in range(PAIRS):
            with_it, without = (_seconds(module, point, mode) for mode in (True, False))
            ratios.append(with_it / without)
    except RuntimeError as refusal:
        reasons["price"] = f"refused by torch: {str(refusal).splitlines()[0]}"
        return nothing
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"price": middle, "price_low": low, "price_high": high}


def _seconds(module: Any, point: Point, deterministic: bool) -> float:
    """Of the quickest of three passes: on a CPU the thread's own, so that others count nothing."""
    cuda = point.x.is_cuda
    clock = time.perf_counter if cuda else time.thread_time
    torch.use_deterministic_algorithms(deterministic)
    try:
        taken = []
        for _ in range(3):
            begun = clock()
            _asked(module, point)  # copies its answer to the host, so waits for a device
            taken.append(clock() - begun)
        return min(taken)
    finally:
        torch.use_deterministic_algorithms(False)
