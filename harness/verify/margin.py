"""The error at a benchmark's own shape, on sampled rows, where the oracle costs n*d each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from harness.build import case_inputs, case_module, make, torch_dtype
from harness.case import parse
from harness.registry import Registry, resolve
from harness.verify.budget import Finding, budget, error, worst
from harness.verify.check import named_weights, numpy64
from harness.verify.oracle import Reference, reference

SAMPLES = 2
ROWS = 8
"""Two samples of the batch, eight positions each: 16 query rows, and 16 keys for gradients."""


def sampled(length: int, batch: int, seed: int) -> tuple[list[int], list[int]]:
    """Positions and samples to look at: the ends always, the rest drawn."""
    draw = np.random.default_rng(seed)
    inner = draw.permutation(np.arange(1, max(1, length - 1)))[: max(0, ROWS - 2)]
    rows = sorted({0, length - 1, *(int(i) for i in inner)})
    samples = sorted({0, batch - 1})[:SAMPLES]
    return samples, rows


def check_case(case: str, given: Sequence[str] = (), seed: int = 0) -> dict[str, Any]:
    """Error, budget and margin of a case's values (and gradients, when it trains).

    The cotangent is zero outside the sampled rows, so the oracle needs those rows alone, for the
    gradients of every key and weight as well.

    Returns
    -------
    dict
        ``verdict``, ``error``, ``budget``, ``margin``, ``what``; a mechanism without oracle has
        the verdict "no oracle" and is checked to be finite.

    Raises
    ------
    Unsupported
        From the implementation.
    """
    parsed = parse(case)
    registry = Registry(given)
    p = parsed.problem
    mechanism, implementation, module = case_module(parsed, registry, seed)
    x, mask = case_inputs(parsed, implementation, seed)
    settings = parsed.run_settings()
    torch.backends.cuda.matmul.allow_tf32 = settings.tf32
    torch.backends.cudnn.allow_tf32 = settings.tf32
    samples, rows = sampled(p.length, p.batch, seed)
    tokens = mechanism.output == "tokens"
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
    call = torch.compile(module, mode=settings.compile_mode) if settings.compile_mode else module
    training = p.phase == "training"
    x.requires_grad_(training)
    with torch.set_grad_enabled(training):
        output = call(x, mask)
    if training:
        output.backward(cotangent)
    if not bool(torch.isfinite(output).all()):
        return _row("wrong", Finding("output is not finite", float("inf"), 0.0))
    if mechanism.oracle is None:
        return {"verdict": "no oracle", "error": None, "budget": None, "margin": None, "what": ""}
    weights = named_weights(module)
    options = dict(mechanism.options)
    oracle_options = {**options, **({"heads": p.heads} if mechanism.takes_heads else {})}
    small = x.detach()[samples]
    wanted = reference(
        resolve(mechanism.oracle), numpy64(small), [p.length] * len(samples), weights,
        numpy64(cotangent[samples]), oracle_options, rows,
    )  # fmt: skip
    yardstick = _plain(mechanism, p, module, small, cotangent[samples], rows, options, wanted)
    pick: Any = np.ix_(range(len(samples)), rows) if tokens else slice(None)
    findings = [
        Finding(
            "output",
            error(numpy64(output[samples])[pick], wanted.output[pick]),
            budget(yardstick.get("output"), p.dtype),
        )
    ]
    if training:
        grads = {"x": numpy64(x.grad[samples])} if x.grad is not None else {}
        grads |= {n: numpy64(w.grad) for n, w in module.named_parameters() if w.grad is not None}
        for name, got in grads.items():
            want = wanted.grad_x if name == "x" else wanted.grad_weights[name]
            findings.append(
                Finding(
                    f"grad of {name}", error(got, want), budget(yardstick.get(name), p.dtype, True)
                )
            )
    bad = [f for f in findings if not f.ok]
    return _row("wrong" if bad else "ok", worst(findings))


def _row(verdict: str, finding: Finding) -> dict[str, Any]:
    return {
        "verdict": verdict,
        "error": finding.error,
        "budget": finding.budget,
        "margin": finding.margin,
        "what": finding.what,
    }


def _plain(
    mechanism: Any, p: Any, module: torch.nn.Module, x: torch.Tensor, cotangent: torch.Tensor,
    rows: list[int], options: dict[str, Any], wanted: Reference,
) -> dict[str, float]:  # fmt: skip
    """Errors of the plain yardstick on the same rows, by tensor."""
    if mechanism.plain is None:
        return {}
    plain = make(mechanism, mechanism.plain, p.d_in, p.d_out, p.heads, options)
    plain = plain.to(device=p.device, dtype=torch_dtype(p.dtype)).train(p.phase == "training")
    plain.load_state_dict(module.state_dict())
    x = x.detach().clone().requires_grad_(True)
    index = torch.tensor(rows, device=x.device)
    output = plain(x, None, rows=index)
    tokens = mechanism.output == "tokens"
    output.backward(cotangent[:, rows] if tokens else cotangent)
    want = wanted.output[:, rows] if tokens else wanted.output
    errors = {"output": error(numpy64(output), want)}
    if p.phase == "training":
        if x.grad is not None:
            errors["x"] = error(numpy64(x.grad), wanted.grad_x)
        for name, parameter in plain.named_parameters():
            if parameter.grad is not None:
                errors[name] = error(numpy64(parameter.grad), wanted.grad_weights[name])
    return errors
