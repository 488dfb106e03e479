"""Error over magnitudes: where an implementation stops being right. Runs in children."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from harness.verify.batches import Batch
from harness.verify.check import Options, check_drawn, chosen
from reference_impls.mechanism import Unsupported

LENGTH = 33
SCALES = tuple(10.0**power for power in range(-4, 5))
"""Factors on x, and on the weights that scale the scores."""
KINDS = ("inputs", "scores")


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
            label, lengths = f"{kind} times {scale:g}", (LENGTH, LENGTH // 2)
            if kind == "inputs":
                batch = Batch(label, {}, lengths, input_scale=scale)
            else:
                batch = Batch(label, mechanism.score_options, lengths, score_scale=scale)
            found = check_drawn(mechanism, implementation, batch, dtype, device)
            values = [d for d in found if not d.gradient]
            gradients = [d for d in found if d.gradient]
            worst = max(gradients, key=lambda f: math.inf if math.isnan(f.error) else f.error)
            points.append(
                {
                    "kind": kind,
                    "scale": scale,
                    "ok": all(f.ok for f in values),
                    # At a kink wherever it is drawn there are no values.
                    "error": _number(values[0].error) if values else None,
                    "budget": _number(values[0].budget) if values else None,
                    "gradient_ok": all(f.ok for f in gradients),
                    "gradient_error": _number(worst.error),
                    "gradient_budget": _number(worst.budget),
                }
            )
    return {"points": points}


def _number(value: float) -> float | None:
    """A finite number, or null: JSON has neither infinity nor not-a-number."""
    return float(value) if math.isfinite(value) else None
