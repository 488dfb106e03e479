"""How large the error of an implementation gets when all scores grow. Runs in children.

The batches, the oracle and the measure of error are those of ``attnbench verify``; only the factors
on the scores are more. One length fills a tile and one goes over several.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from harness.build import set_tf32
from harness.registry import Registry
from harness.verify.batches import Batch, ragged
from harness.verify.budget import worst
from harness.verify.check import check_drawn
from reference_impls.mechanism import BadOption

LENGTHS = (65, 257)
OTHER_SCALE = "identity"
"""The variant with the other scale function, where a mechanism has one."""


def errors(
    name: str, dtype: str, device: str, scales: Sequence[float], given: Sequence[str] = ()
) -> dict[str, Any]:
    """Largest error of the output at each factor on the scores.

    Returns
    -------
    dict
        ``by_scale``, a list of [factor, largest error relative to max(1, max|expected|)] (infinite
        where anything is not finite); ``gradient_error``, the largest of all gradients;
        ``margin``, the smallest of budget over error among all of them; ``what`` is meant by it.

    Raises
    ------
    BadOption
        If the mechanism names no weights that scale its scores.
    Unsupported
        From the implementation.
    """
    if device == "cpu":
        torch.set_num_threads(1)
    set_tf32(False)
    mechanism, implementation = Registry(given).find(name)
    if not mechanism.score_weights:
        raise BadOption(f"{mechanism.name} names no weights that scale its scores: not tested")
    configurations = [{}, mechanism.variants.get(OTHER_SCALE, {})]
    by_scale: list[list[float]] = []
    gradients, everything = [0.0], []
    for scale in scales:
        found = [0.0]
        for options in configurations[: 2 if configurations[1] else 1]:
            for n in LENGTHS:
                label = f"scores times {scale:g}, {dict(options) or 'as it is'}, N={n}"
                trial = Batch(label, options, ragged(n), score_scale=scale)
                deviations = check_drawn(mechanism, implementation, trial, dtype, device)
                found += [d.error for d in deviations if not d.gradient]
                gradients += [d.error for d in deviations if d.gradient]
                everything += deviations
        by_scale.append([scale, max(found)])
    least = worst(everything)
    return {
        "by_scale": by_scale,
        "gradient_error": max(gradients),
        "margin": least.margin,
        "what": least.what,
    }
