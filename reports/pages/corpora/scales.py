"""Settings that a row of a figure is drawn against: scales by alpha, K of mirrored summation."""

from __future__ import annotations

import re

from harness.train.task import tasks
from reference_impls.msmsa.scales import CANDIDATES, heads_per_scale
from reference_impls.multi_scale_transformer.presets import DEFAULTS, PRESETS

ALPHAS = (1.0, 0.5, 0.0, -0.5, -1.0)
"""Of Table 6, A to E."""
USUAL = 0.5
"""Of the paper's own models."""
HEADS, LAYERS = 10, 3
"""Of the example below equation 12."""
MODEL = "multi_scale_transformer"
_OPTIONS = re.compile(r"\[(?P<options>[^\]]*)\]")


def heads_by_scale(alpha: float) -> tuple[list[str], list[list[int]]]:
    """Names of the candidate scales, and the heads of each layer that have them."""
    names = [str(scale) for scale in CANDIDATES]
    return names, heads_per_scale(len(CANDIDATES), alpha, HEADS, LAYERS)


def options_of(name: str) -> dict[str, str]:
    """``{"alpha": "0.5"}`` of ``multi_scale_transformer.windowed[alpha=0.5]``."""
    match = _OPTIONS.search(name)
    if match is None:
        return {}
    parts = (part.partition("=") for part in match["options"].split(","))
    return {key.strip(): value.strip() for key, _, value in parts if value}


def alpha_of(model: str) -> float | None:
    """Alpha of a Multi-Scale Transformer; None of others, and where it decides nothing."""
    if not model.startswith(f"{MODEL}."):
        return None
    options = options_of(model)
    if "scales" in options or scale_of(model) is not None:
        return None
    preset = PRESETS.get(options.get("preset", ""))
    if preset is not None:
        if "scales" in preset.options:
            return None
        return float(preset.options.get("alpha", DEFAULTS["alpha"]))
    try:
        return float(options.get("alpha", DEFAULTS["alpha"]))
    except ValueError:  # from a record that no model of ours has made
        return None


def scale_of(model: str) -> str | None:
    """The one scale of a Multi-Scale Transformer all of whose heads have it: ``n/16``."""
    if not model.startswith(f"{MODEL}."):
        return None
    candidates = [c for c in options_of(model).get("candidates", "").split(";") if c]
    return candidates[0] if len(candidates) == 1 else None


def of_scales(model: str) -> bool:
    """Whether its scales are what a model is about: at an alpha, or all heads of one."""
    return alpha_of(model) is not None or scale_of(model) is not None


def layers_of(model: str) -> str:
    """How many layers its name says, empty for the usual number."""
    return options_of(model).get("layers", "")


def k_of(task: str) -> int | None:
    """K of a mirrored summation: what its name says, or the task's own."""
    text = options_of(task).get("k", "")
    if text.isdigit():
        return int(text)
    known = tasks().get(task.partition("[")[0])
    value = None if known is None else known.options.get("k")
    return int(value) if isinstance(value, int) else None
