"""The error at a benchmark's own shape, on sampled rows, where the oracle costs n*d each."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
from harness.registry import Registry, resolve
from harness.verify.budget import Finding, budget, error, worst
from harness.verify.check import named_weights, numpy64, written_out
from harness.verify.kinks import DRAWS, at_a_kink
from harness.verify.oracle import Reference, reference
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


def check_case(case: str, given: Sequence[str] = (), seed: int = 0) -> dict[str, Any]:
    """Error, budget and margin of a case's values (and gradients, when it trains).

    The cotangent is zero outside the sampled rows, so the oracle needs those rows alone, for the
    gradients of every key and weight as well. A point at a kink is drawn anew.

    Returns
    -------
    dict
        ``verdict`` (ok, wrong), ``error``, ``budget``, ``margin``, ``what``, ``draws``; a mechanism
        without oracle has the verdict "no oracle" and is checked to be finite.

    Raises
    ------
    Unsupported
        From the implementation.
    """
    row: dict[str, Any] = {}
    for draw in range(DRAWS):
        row, kink = _check_drawn(parse(case), Registry(given), seed + 1000 * draw)
        row["draws"] = draw + 1
        if not kink:
            break
    return row


def _check_drawn(parsed: Case, registry: Registry, seed: int) -> tuple[dict[str, Any], bool]:
    """One point: its row, and whether it is over budget because it lies at a kink."""
    apply_settings(parsed)
    p = parsed.problem
    mechanism, implementation, module = case_module(parsed, registry, seed)
    x, mask = case_inputs(parsed, implementation, seed)
    arithmetic = "tf32" if parsed.run_settings().tf32 else p.dtype
    samples = sorted({0, p.batch - 1})
    lengths = [p.length] * len(samples) if mask is None else mask.sum(1)[samples].tolist()
    rows = sampled(p.length, lengths, seed)
    tokens = mechanism.output == "tokens"
    cotangent = _cotangent(p, tokens, samples, rows, x, seed)
    if tokens and mask is not None:
        cotangent *= mask[..., None]
    call = compiled(module, parsed)
    training = p.phase == "training"
    x.requires_grad_(training)
    with torch.set_grad_enabled(training):
        output = call(x, mask)
    if training:
        output.backward(cotangent)
    if not bool(torch.isfinite(output).all()):
        return _row("wrong", Finding("output is not finite", math.inf, 0.0)), False
    if mechanism.oracle is None:
        gradients = [t.grad for t in (x, *module.parameters()) if t.grad is not None]
        if not all(bool(torch.isfinite(g).all()) for g in gradients):
            return _row("wrong", Finding("a gradient is not finite", math.inf, 0.0)), False
        nothing = {"error": None, "budget": None, "margin": None, "what": ""}
        return {"verdict": "no oracle", **nothing}, False
    own = {key: literal(value) for key, value in parsed.options}
    options, _ = written_out(mechanism, {**mechanism.options, **own})
    if mechanism.takes_heads:
        options["heads"] = p.heads
    small = x.detach()[samples]
    asked = (
        resolve(mechanism.oracle), numpy64(small), lengths,
        named_weights(module), numpy64(cotangent[samples]), options,
    )  # fmt: skip
    padded = bool(mechanism.padding_matters)
    wanted = reference(*asked, rows, padded)
    kept = None if mask is None else mask[samples]
    yardstick = _plain(mechanism, p, module, small, kept, cotangent[samples], rows, wanted, own)
    pick: Any = np.ix_(range(len(samples)), rows) if tokens else slice(None)
    got = numpy64(output[samples])[pick]
    findings = [
        Finding(
            "output",
            error(got, wanted.output[pick]),
            budget(yardstick.get("output"), arithmetic),
        )
    ]
    if training:
        findings += _gradient_findings(module, x, samples, wanted, yardstick, arithmetic)
    bad = {f.tensor: f.error for f in findings if not f.ok}
    row = _row("wrong" if bad else "ok", worst(findings))
    values_bad = "" in bad or not all(math.isfinite(e) for e in bad.values())
    return row, bool(bad) and not values_bad and at_a_kink(*asked, bad, arithmetic, rows, padded)


def _cotangent(
    p: Problem, tokens: bool, samples: list[int], rows: list[int], x: torch.Tensor, seed: int
) -> torch.Tensor:
    """Random at the sampled rows of the sampled sequences, zero elsewhere."""
    shape = (p.batch, p.length, p.d_out) if tokens else (p.batch, p.d_out)
    cotangent = torch.zeros(shape, dtype=x.dtype, device=x.device)
    generator = torch.Generator().manual_seed(seed + 2)
    for b in samples:
        part = (len(rows), p.d_out) if tokens else (p.d_out,)
        values = torch.randn(part, generator=generator).to(cotangent)
        if tokens:
            cotangent[b, rows] = values
        else:
            cotangent[b] = values
    return cotangent


def _gradient_findings(
    module: torch.nn.Module, x: torch.Tensor, samples: list[int], wanted: Reference,
    yardstick: dict[str, float], dtype: str,
) -> list[Finding]:  # fmt: skip
    grads = {} if x.grad is None else {"x": numpy64(x.grad[samples])}
    grads |= {n: numpy64(w.grad) for n, w in module.named_parameters() if w.grad is not None}
    found = []
    for name, got in grads.items():
        want = wanted.grad_x if name == "x" else wanted.grad_weights[name]
        allowed = budget(yardstick.get(name), dtype, True)
        found.append(Finding(f"grad of {name}", error(got, want), allowed, name))
    return found


def _row(verdict: str, finding: Finding) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "error": finding.error,
        "budget": finding.budget,
        "margin": finding.margin,
        "what": finding.what,
    }


def _plain(
    mechanism: Mechanism, p: Problem, module: torch.nn.Module, x: torch.Tensor,
    mask: torch.Tensor | None, cotangent: torch.Tensor, rows: list[int], wanted: Reference,
    own: dict[str, Any],
) -> dict[str, float]:  # fmt: skip
    """Errors of the plain yardstick on the same rows, by tensor."""
    if mechanism.plain is None:
        return {}
    plain = make(mechanism, mechanism.plain, p.d_in, p.d_out, p.heads, {**mechanism.options, **own})
    training = p.phase == "training"
    plain = plain.to(device=p.device, dtype=torch_dtype(p.dtype)).train(training)
    plain.load_state_dict(module.state_dict())
    x = x.detach().clone().requires_grad_(training)
    tokens = mechanism.output == "tokens"
    with torch.set_grad_enabled(training):
        output = plain(x, mask, rows=torch.tensor(rows, device=x.device))
    want = wanted.output[:, rows] if tokens else wanted.output
    errors = {"output": error(numpy64(output), want)}
    if training:
        output.backward(cotangent[:, rows] if tokens else cotangent)
        if x.grad is not None:
            errors["x"] = error(numpy64(x.grad), wanted.grad_x)
        for name, parameter in plain.named_parameters():
            if parameter.grad is not None:
                errors[name] = error(numpy64(parameter.grad), wanted.grad_weights[name])
    return errors
