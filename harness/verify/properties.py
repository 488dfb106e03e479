"""Checks that need no oracle: finite, blind to padding, zero at padding, right shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from harness.build import make, torch_dtype
from harness.verify.batches import D_IN, D_OUT, HEADS, ragged
from harness.verify.compare import numpy64
from reference_impls.mechanism import Implementation, Mechanism

TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 1e-2, "bf16": 5e-2}
"""Another content or amount of padding may change the order of sums, nothing more."""


class Refused(Exception):
    """The module breaks the contract; the message says how."""


def _run(
    module: torch.nn.Module, x: torch.Tensor, real: torch.Tensor
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    x = x.detach().clone().requires_grad_(True)
    module.zero_grad(set_to_none=True)
    output = module(x, real)
    if output.ndim == 3:
        weight = torch.linspace(-1, 1, output.shape[-1], dtype=output.dtype, device=output.device)
    else:
        weight = torch.ones(output.shape[-1], dtype=output.dtype, device=output.device)
    # Only real rows enter the loss: what a module does with the others is its own affair.
    loss = output * weight
    if output.ndim == 3:
        loss = loss.masked_fill(~real[..., None], 0)
    loss.sum().backward()
    grads = {n: numpy64(p.grad) for n, p in module.named_parameters() if p.grad is not None}
    grad_x = np.zeros(x.shape) if x.grad is None else numpy64(x.grad)
    return numpy64(output), grad_x, grads


def _difference(a: np.ndarray, b: np.ndarray) -> float:
    if a.size == 0:
        return 0.0
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return math.inf
    return float(np.abs(a - b).max()) / max(1.0, float(np.abs(b).max()))


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(message)


def _check_length(
    module: torch.nn.Module, mechanism: Mechanism, dtype: str, device: str, n: int
) -> Iterator[float]:
    generator = torch.Generator().manual_seed(n)
    lengths = [k for k in ragged(n) if k]
    real = (torch.arange(n)[None, :] < torch.tensor(lengths)[:, None]).to(device)  # [B, N]
    kept = real.cpu().numpy()
    base = torch.randn(len(lengths), n, D_IN, generator=generator).to(device, torch_dtype(dtype))
    noise = torch.randn(base.shape, generator=generator).to(base) * 10
    pad = ~real[..., None]
    contents = {
        "zeros": base.masked_fill(pad, 0),
        "random numbers": torch.where(pad, noise, base),
        "NaN": base.masked_fill(pad, math.nan),
    }
    tokens = mechanism.output == "tokens"
    shape = (len(lengths), n, D_OUT) if tokens else (len(lengths), D_OUT)
    results = {}
    for content, x in contents.items():
        out, grad_x, grads = _run(module, x, real)
        _require(out.shape == shape, f"output is {list(out.shape)}, expected {list(shape)}")
        rows = out[kept] if tokens else out
        _require(
            bool(np.isfinite(rows).all()),
            f"real rows are not finite with {content} at padding (N={n}, {dtype})",
        )
        finite = all(np.isfinite(g).all() for g in [grad_x[kept], *grads.values()])
        _require(finite, f"gradients are not finite with {content} at padding (N={n}, {dtype})")
        if tokens:
            _require(
                not np.any(out[~kept]), f"rows at padding are not zero with {content} there (N={n})"
            )
        results[content] = (rows, grad_x[kept], grads)
    want = results["zeros"]
    for content in ("random numbers", "NaN"):
        got = results[content]
        pairs = [("output", got[0], want[0]), ("gradient of x", got[1], want[1])]
        pairs += [(f"gradient of {k}", got[2][k], want[2][k]) for k in want[2]]
        for label, a, b in pairs:
            difference = _difference(a, b)
            _require(
                difference <= TOLERANCE[dtype],
                f"lets padding into real rows: {content} at padding changed the {label} "
                f"by {difference:.2g} (N={n}, {dtype}); mask keys and zero x at padding",
            )
            yield difference
    longer = torch.nn.functional.pad(contents["zeros"], (0, 0, 0, 3))
    more = torch.nn.functional.pad(real, (0, 3), value=False)
    out, _, _ = _run(module, longer, more)
    rows = out[:, :n][kept] if tokens else out
    difference = _difference(rows, want[0])
    _require(
        difference <= TOLERANCE[dtype],
        f"lets padding into real rows: three more padded positions changed them by "
        f"{difference:.2g} (N={n}, {dtype}); mask keys and zero x at padding",
    )
    yield difference


def check_properties(
    mechanism: Mechanism, implementation: Implementation, dtype: str, device: str
) -> dict[str, Any]:
    """Verify a mechanism that has no oracle.

    Finite values and gradients; neither the content (zeros, random numbers, NaN) nor the amount
    of padding reaches a real row or a gradient; zero rows at padding; the promised shape.

    Returns
    -------
    dict
        ``verdict`` and ``detail``; ``value_error`` is the largest change that padding made.
    """
    options = {**mechanism.options, **implementation.options}
    module = make(mechanism, implementation.factory, D_IN, D_OUT, HEADS, options)
    # Evaluation mode: dropout would make two runs of one module differ.
    module = module.to(device=device, dtype=torch_dtype(dtype)).eval()
    for part in module.modules():
        if isinstance(part, torch.nn.RNNBase):
            part.train()  # cuDNN has no backward pass in evaluation mode
    differences: list[float] = []
    try:
        for n in (1, 2, 7, 65):
            differences += _check_length(module, mechanism, dtype, device, n)
    except Refused as reason:
        return {"verdict": "wrong", "detail": f"{mechanism.name} {reason}"}
    largest = max(differences)
    return {
        "verdict": "ok",
        "detail": "no oracle: finite, blind to padding",
        "comparisons": len(differences),
        "value_error": largest,
        "value_budget": TOLERANCE[dtype],
        "value_margin": TOLERANCE[dtype] / largest if largest else math.inf,
    }
