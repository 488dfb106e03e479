"""The error at a benchmark's own shape, on sampled rows, where the oracle costs n*d each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from harness.build import (
    apply_settings,
    case_inputs,
    case_module,
    compiled,
    make,
    torch_dtype,
)
from harness.case import Case, Problem, literal, parse
from harness.inputs import is_finite
from harness.registry import Registry, resolve
from harness.verify.budget import Deviation, arithmetic_of, worst
from harness.verify.check import named_weights
from harness.verify.compare import (
    OUTPUT,
    Computed,
    Question,
    compare,
    computed,
    grad_or_zeros,
    numpy64,
    off_kinks,
    trained,
)
from harness.verify.fixture import written_out
from harness.verify.unaided.judge import at_shape, settled
from harness.verify.unaided.subject import PosedBatch, Refused, Subject, Void
from reference_impls.mechanism import Mechanism

ROWS = 8
"""Of the first and the last sample of a batch, so 16 query rows, and 16 keys for gradients."""


def sampled(length: int, lengths: Sequence[int], seed: int) -> list[int]:
    """Positions to look at: the padded length's ends, and where a sequence ends; others drawn.

    Parameters
    ----------
    length : int
        N, with padding.
    lengths : sequence of int
        Real tokens of the samples that are looked at; the drawn positions are real in all.
    """
    draw = np.random.default_rng(seed)
    inner = draw.permutation(np.arange(1, max(1, min(lengths) - 1)))[: max(0, ROWS - 2)]
    return sorted({0, length - 1, *(n - 1 for n in lengths), *(int(i) for i in inner)})


def check_case(case: str, given: Sequence[str] = ()) -> dict[str, Any]:
    """Error, budget and margin of a case's values (and gradients, when it trains).

    The cotangent is zero outside the sampled rows, so the oracle needs those rows alone, for the
    gradients of every key and weight as well. A point at a kink is drawn anew.

    Returns
    -------
    dict
        ``verdict`` (ok, wrong), ``error``, ``budget``, ``margin``, ``what``, ``draws``. A mechanism
        without oracle is compared with its own float64, and ``against`` says so; where that says
        nothing, the verdict is "no oracle", and ``what`` says why.

    Raises
    ------
    Unsupported
        From the implementation.
    """
    row, _, draws = off_kinks(lambda s: _check_drawn(parse(case), Registry(given), s), 0)
    return {**row, "draws": draws}


def _check_drawn(parsed: Case, registry: Registry, seed: int) -> tuple[dict[str, Any], bool]:
    """One point: its row, and whether it is over budget because it lies at a kink."""
    apply_settings(parsed)
    p = parsed.problem
    mechanism, implementation, module = case_module(parsed, registry, seed)
    x, mask = case_inputs(parsed, implementation, seed)
    arithmetic = arithmetic_of(parsed, implementation)
    samples = sorted({0, p.batch - 1})
    lengths = [p.length] * len(samples) if mask is None else mask.sum(1)[samples].tolist()
    rows = sampled(p.length, lengths, seed)
    tokens = mechanism.output == "tokens"
    cotangent = _cotangent(p, mechanism.output, samples, rows, x, seed)
    if tokens and mask is not None:
        cotangent *= mask[..., None]
    own = {key: literal(value) for key, value in parsed.options}
    subject = None
    if mechanism.oracle is None:
        options = {**mechanism.options, **implementation.options, **own}
        sizes = (p.d_in, p.d_out, p.heads)
        subject = Subject(mechanism, implementation, p.dtype, p.device, options, *sizes)
        subject = replace(subject, arithmetic=arithmetic)
        module = settled(subject, module)
    call = compiled(module, parsed)
    training = p.phase == "training"
    x.requires_grad_(training)
    with torch.inference_mode(not training):  # as it is timed
        output = call(x, mask)
    if training:
        output.backward(cotangent)
    if not is_finite(output):
        return _row("wrong", Deviation("output is not finite", math.inf, 0.0)), False
    slopes = {}
    if training:
        grads = {name: grad_or_zeros(t) for name, t in trained(module).items()}
        slopes = {n: numpy64(g) for n, g in {"x": grad_or_zeros(x)[samples], **grads}.items()}
    if subject is not None:
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        at, where = x.detach()[samples], f"N={p.length}, {arithmetic}"
        point = PosedBatch(at, real[samples], cotangent[samples], where, ((p.length,), seed))
        got = Computed({OUTPUT: numpy64(output[samples])}, slopes)
        return _by_itself(subject, module, point, got, seed)
    options, _ = written_out(mechanism, {**mechanism.options, **own})
    if mechanism.takes_heads:
        options["heads"] = p.heads
    small = x.detach()[samples]
    asked = Question(
        resolve(str(mechanism.oracle)),
        numpy64(small),
        lengths,
        named_weights(module),
        numpy64(cotangent[samples]),
        options,
        rows,
        bool(mechanism.padding_matters),
    )
    expected = asked.answer()
    kept = None if mask is None else mask[samples]
    plain = _plain(mechanism, p, module.state_dict(), small, kept, cotangent[samples], rows, own)
    pick: Any = np.ix_(range(len(samples)), rows) if tokens else slice(None)
    got = Computed({OUTPUT: numpy64(output[samples])[pick]}, slopes)
    wanted = Computed({OUTPUT: expected.output[pick]}, expected.gradients)
    found = compare(got, wanted, plain, arithmetic)
    verdict = "ok" if all(d.ok for d in found) else "wrong"
    return _row(verdict, worst(found)), asked.at_a_kink(found, expected, arithmetic)


def _by_itself(
    subject: Subject, module: torch.nn.Module, point: PosedBatch, got: Computed, seed: int
) -> tuple[dict[str, Any], bool]:
    """`_check_drawn` of a mechanism without oracle."""
    try:
        found = at_shape(subject, module, point, got, seed)
    except Refused as reason:
        return _row("wrong", Deviation(str(reason), math.inf, 0.0)), False
    except Void as reason:
        nothing = {"error": None, "budget": None, "margin": None}
        return {"verdict": "no oracle", **nothing, "what": str(reason)}, False
    over = [one for one in found if not one.ok]
    at_kink = bool(over) and all(one.gradient for one in over)
    row = _row("wrong" if over else "ok", worst(found))
    return {**row, "against": "its own float64"}, at_kink


def _cotangent(
    p: Problem, output: str, samples: list[int], rows: list[int], x: torch.Tensor, seed: int
) -> torch.Tensor:
    """Random at the sampled rows of the sampled sequences, zero elsewhere."""
    tokens = output == "tokens"
    cotangent = torch.zeros(p.output_shape(output), dtype=x.dtype, device=x.device)
    generator = torch.Generator().manual_seed(seed + 2)
    for b in samples:
        part = (len(rows), p.d_out) if tokens else (p.d_out,)
        values = torch.randn(part, generator=generator).to(cotangent)
        if tokens:
            cotangent[b, rows] = values
        else:
            cotangent[b] = values
    return cotangent


def _row(verdict: str, deviation: Deviation) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "error": deviation.error,
        "budget": deviation.budget,
        "margin": deviation.margin,
        "what": deviation.what,
    }


def _plain(
    mechanism: Mechanism,
    p: Problem,
    state: Mapping[str, torch.Tensor],
    x: torch.Tensor,
    mask: torch.Tensor | None,
    cotangent: torch.Tensor,
    rows: list[int],
    own: Mapping[str, Any],
) -> Computed | None:
    """What the plain yardstick says of the same rows."""
    if mechanism.plain is None:
        return None
    plain = make(mechanism, mechanism.plain, p.d_in, p.d_out, p.heads, {**mechanism.options, **own})
    training = p.phase == "training"
    plain = plain.to(device=p.device, dtype=torch_dtype(p.dtype)).train(training)
    plain.load_state_dict(state)
    part = cotangent[:, rows] if mechanism.output == "tokens" else cotangent
    return computed(plain, x, mask, part, training, rows=torch.tensor(rows, device=x.device))
