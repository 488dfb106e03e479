"""Error over magnitudes: where an implementation stops being right. Runs in children."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.verify.batches import Batch
from harness.verify.check import check_drawn, chosen
from reference_impls.mechanism import Unsupported

LENGTH = 33
SCALES = tuple(10.0**power for power in range(-4, 5))
"""Factors on x, and on the weights that scale the scores."""
KINDS = ("inputs", "scores")


def stress(
    name: str,
    dtype: str,
    device: str,
    given: tuple[str, ...] | list[str] = (),
    options: Mapping[str, str] | None = None,
    seed: int = 0,
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
            label, lengths = f"{kind} times {scale:g}", (LENGTH, LENGTH // 2)
            if kind == "inputs":
                batch = Batch(label, {}, lengths, input_scale=scale)
            else:
                batch = Batch(label, mechanism.score_options, lengths, score_scale=scale)
            found = check_drawn(mechanism, implementation, batch, dtype, device, seed)
            values = [d for d in found if not d.gradient]
            gradients = [d for d in found if d.gradient]
            worst = max(gradients, key=lambda f: math.inf if math.isnan(f.error) else f.error)
            points.append(
                {
                    "kind": kind,
                    "scale": scale,
                    "ok": all(f.ok for f in values),
                    **{
                        key: _number(getattr(values[0], key)) if values else None
                        for key in ("error", "budget")
                    },
                    "gradient_ok": all(f.ok for f in gradients),
                    "gradient_error": _number(worst.error),
                    "gradient_budget": _number(worst.budget),
                }
            )
    return {"points": points}


def _number(value: float) -> float | None:
    """A finite number, or null: JSON has neither infinity nor not-a-number."""
    return float(value) if math.isfinite(value) else None
