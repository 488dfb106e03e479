"""Checks that need no oracle: finite, blind to padding, zero at padding, right shape."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from harness.build import make, torch_dtype
from harness.verify.batches import D_IN, D_OUT, HEADS, ragged
from harness.verify.budget import error
from harness.verify.compare import Computed, WrongShape, computed
from reference_impls.mechanism import Implementation, Mechanism

TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 1e-2, "bf16": 5e-2}
"""Another content or amount of padding may change the order of sums, nothing more."""


class Refused(Exception):
    """The module breaks the contract; the message says how."""


def _run(
    module: torch.nn.Module, x: torch.Tensor, real: torch.Tensor, shape: tuple[int, ...]
) -> Computed:
    """What a module computes; only real rows enter the loss: the others are its own affair."""
    if len(shape) == 2:
        return computed(module, x, real, torch.ones(shape).to(x))
    weight = torch.linspace(-1, 1, shape[-1], dtype=x.dtype, device=x.device)
    return computed(module, x, real, weight.expand(shape).masked_fill(~real[..., None], 0))


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
    shape: tuple[int, ...] = (len(lengths), n, D_OUT) if tokens else (len(lengths), D_OUT)
    results = {}
    for content, x in contents.items():
        found = _run(module, x, real, shape)
        rows = found.output[kept] if tokens else found.output
        gradients = {**found.gradients, "x": found.gradients["x"][kept]}
        _require(
            bool(np.isfinite(rows).all()),
            f"real rows are not finite with {content} at padding (N={n}, {dtype})",
        )
        finite = all(np.isfinite(g).all() for g in gradients.values())
        _require(finite, f"gradients are not finite with {content} at padding (N={n}, {dtype})")
        if tokens:
            _require(
                not np.any(found.output[~kept]),
                f"rows at padding are not zero with {content} there (N={n})",
            )
        named = {f"gradient of {name}": value for name, value in gradients.items()}
        results[content] = {"output": rows, **named}
    want = results["zeros"]
    for content in ("random numbers", "NaN"):
        for label, expected in want.items():
            difference = error(results[content][label], expected)
            _require(
                difference <= TOLERANCE[dtype],
                f"lets padding into real rows: {content} at padding changed the {label} "
                f"by {difference:.2g} (N={n}, {dtype}); mask keys and zero x at padding",
            )
            yield difference
    longer = torch.nn.functional.pad(contents["zeros"], (0, 0, 0, 3))
    more = torch.nn.functional.pad(real, (0, 3), value=False)
    whole = (shape[0], n + 3, D_OUT) if tokens else shape
    out = _run(module, longer, more, whole).output
    difference = error(out[:, :n][kept] if tokens else out, want["output"])
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
    except (Refused, WrongShape) as reason:
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
