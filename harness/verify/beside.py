"""What is told beside a verdict: whether the same bits come again, errors over magnitudes.

Runs in children.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._inductor.cpp_builder import get_cpp_compiler

from harness.build import graph_of, warm_for_capture
from harness.json_file import plain
from harness.verify.batches import Batch
from harness.verify.budget import error, parted
from harness.verify.check import Options, check_drawn, chosen
from harness.verify.compare import OUTPUT, Computed, computed, grad_or_zeros, numpy64, trained
from harness.verify.unaided.subject import PosedBatch, Subject
from reference_impls.mechanism import Unsupported

REPEATS = 30
LENGTHS = {"cpu": (96, 96, 64, 33), "cuda": (300, 300, 129, 65)}
WIDTHS = {"cpu": 48, "cuda": 300}
"""By device, of 4 heads: large enough for torch to share work among threads, or for several tiles
of a GPU's kernels and their heads of 75, small enough for 30 passes in a second."""
PAIRS = 15
"""Passes with and without the deterministic mode, in turn."""
STRESSED = (33, 16)
"""Lengths of a batch whose numbers are magnified."""
SCALES = tuple(10.0**power for power in range(-4, 5))
"""Factors on x, and on the weights that scale the scores."""
KINDS = ("inputs", "scores")


def determinism(
    name: str, dtype: str, device: str, given: Sequence[str] = (), options: Options = None
) -> dict[str, Any]:
    """Repeat one pass, values and gradients, and compare the bits.

    Returns
    -------
    dict
        ``repeats``; the largest difference, relative as an error is, of values and gradients
        between repeats (``again``), of a sample alone against it in a batch (``batch``), of one
        thread against two (``threads``, null where that means nothing): 0.0 is the same bits.
        ``price``: time of a pass in torch's deterministic mode over that without, the median of
        `PAIRS`, and their quartiles ``price_low`` and ``price_high``; null where torch refuses,
        and ``price_reason`` says why.
    """
    module, point = _subject(name, dtype, device, given, options)
    first = _asked(module, point)
    threads = None
    if device == "cpu":
        torch.set_num_threads(2)
        try:
            threads = _apart(_asked(module, point), first)
        finally:
            torch.set_num_threads(1)
    return {
        "repeats": REPEATS,
        "again": max(_apart(_asked(module, point), first) for _ in range(REPEATS - 1)),
        "batch": max(_alone(module, point, first, b) for b in range(len(point.x))),
        "threads": threads,
        **_price(module, point),
    }


def compiled(
    name: str, dtype: str, device: str, given: Sequence[str] = (), options: Options = None
) -> dict[str, Any]:
    """Compare eager and compiled.

    Returns
    -------
    dict
        ``compiled``: the largest difference, as `determinism` has them; null where there was
        none to compare, and ``compiled_reason`` says why.
    """
    if device == "cpu":
        try:
            get_cpp_compiler()
        except Exception as missing:  # torch has no class of its own for it in all its versions
            return _not("compiled", f"not tried, no compiler is here: {missing}")
    module, point = _subject(name, dtype, device, given, options)
    first = _asked(module, point)
    torch.compiler.reset()
    try:
        got = _asked(torch.compile(module, dynamic=False), point)
    except Exception as failure:
        return _not("compiled", f"failed: {type(failure).__name__}: {failure}")
    names = {"x": "x", **{n: f"_orig_mod.{n}" for n in first.gradients if n != "x"}}
    gradients = {own: got.gradients[wrapped] for own, wrapped in names.items()}
    return {"compiled": _apart(Computed(got.values, gradients), first)}


def graphed(
    name: str, dtype: str, device: str, given: Sequence[str] = (), options: Options = None
) -> dict[str, Any]:
    """Compare eager and the replay of a CUDA graph of both passes.

    Returns
    -------
    dict
        ``graphed``: the largest difference, as `determinism` has them; null where it can't be
        captured, and ``graphed_reason`` says why.
    """
    module, point = _subject(name, dtype, device, given, options)
    first = _asked(module, point)
    x = point.x.detach().clone().requires_grad_()
    named = {"x": x, **trained(module)}
    held: list[torch.Tensor] = []

    def both_passes() -> None:
        for tensor in named.values():
            tensor.grad = None
        held[:] = [module(x, point.real)]
        held[0].backward(point.cotangent.to(held[0].dtype))

    try:
        warm_for_capture(both_passes)
        graph_of(both_passes).replay()
    except RuntimeError as failure:
        return _not("graphed", f"failed: {failure}")
    slopes = {name: numpy64(grad_or_zeros(tensor)) for name, tensor in named.items()}
    return {"graphed": _apart(Computed({OUTPUT: numpy64(held[0])}, slopes), first)}


def _not(what: str, reason: str) -> dict[str, Any]:
    return {what: None, f"{what}_reason": reason.splitlines()[0]}


def _subject(
    name: str, dtype: str, device: str, given: Sequence[str], options: Options
) -> tuple[torch.nn.Module, PosedBatch]:
    """A module in evaluation mode and what it is asked."""
    mechanism, implementation = chosen(name, device, given, options)
    if device not in implementation.devices:
        raise Unsupported(f"{name} does not run on {device}")
    whole = {**mechanism.options, **implementation.options}
    width = WIDTHS[device]
    subject = Subject(mechanism, implementation, dtype, device, whole, width, width, 4)
    return subject.module(), subject.point(LENGTHS[device])


def _asked(module: Any, point: PosedBatch) -> Computed:
    return computed(module, point.x, point.real, point.cotangent)


def _apart(got: Computed, wanted: Computed) -> float:
    """The largest difference of any value or gradient; 0.0 only for the same bits."""
    pairs = [
        (getattr(got, part)[name], value)
        for part in ("values", "gradients")
        for name, value in getattr(wanted, part).items()
    ]
    return max(0.0 if np.array_equal(a, b, equal_nan=True) else error(a, b) for a, b in pairs)


def _alone(module: Any, point: PosedBatch, whole: Computed, b: int) -> float:
    """One sample alone: its output, and the gradient of its tokens."""
    wanted = Computed({OUTPUT: whole.output[b : b + 1]}, {"x": whole.gradients["x"][b : b + 1]})
    return _apart(_asked(module, point.samples([b])), wanted)


def _price(module: Any, point: PosedBatch) -> dict[str, Any]:
    """The deterministic mode's time over that without, passes in turn."""
    ratios = []
    try:
        for _ in range(PAIRS):
            with_it, without = (_seconds(module, point, mode) for mode in (True, False))
            ratios.append(with_it / without)
    except RuntimeError as refusal:
        return _not("price", f"refused by torch: {refusal}")
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"price": middle, "price_low": low, "price_high": high}


def _seconds(module: Any, point: PosedBatch, deterministic: bool) -> float:
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


def stress(
    name: str, dtype: str, device: str, given: Sequence[str] = (), options: Options = None
) -> dict[str, Any]:
    """Error and budget of the output at every scale of `SCALES`.

    Parameters
    ----------
    name : str
        ``mechanism.implementation``.
    options : mapping of str
        For the mechanism's factory, as texts: a scale function, say.

    Returns
    -------
    dict
        ``points``: ``kind`` ("inputs" or "scores"), ``scale``, ``error``, ``budget`` (null where
        they are not finite), ``ok``; and the same of the worst gradient.
    """
    mechanism, implementation = chosen(name, device, given, options)
    if device not in implementation.devices:
        raise Unsupported(f"{name} does not run on {device}")
    if mechanism.oracle is None:
        raise Unsupported(f"{mechanism.name} has no oracle to be compared with")
    points = []
    for kind in KINDS:
        if kind == "scores" and not mechanism.score_weights:
            continue
        for scale in SCALES:
            label = f"{kind} times {scale:g}"
            if kind == "inputs":
                batch = Batch(label, {}, STRESSED, input_scale=scale)
            else:
                batch = Batch(label, mechanism.score_options, STRESSED, score_scale=scale)
            found = check_drawn(mechanism, implementation, batch, dtype, device)
            values, gradients = parted(found)
            worst = max(gradients, key=lambda f: math.inf if math.isnan(f.error) else f.error)
            points.append(
                {
                    "kind": kind,
                    "scale": scale,
                    "ok": all(f.ok for f in values),
                    # At a kink wherever it is drawn there are no values.
                    "error": values[0].error if values else None,
                    "budget": values[0].budget if values else None,
                    "gradient_ok": all(f.ok for f in gradients),
                    "gradient_error": worst.error,
                    "gradient_budget": worst.budget,
                }
            )
    return {"points": plain(points)}
