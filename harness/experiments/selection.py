"""What a model with policies selected, from its run records."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

EVERYTHING = 0.99
"""Share of tokens from which on a policy leaves nothing out that would matter."""


def selected_share(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """Share of the test set's tokens selected, as heads or as dependents: the smaller one's mean.

    None for a model without policies.
    """
    shares = [run["selected"] for run in runs if isinstance(run.get("selected"), Mapping)]
    if not shares:
        return None
    return min(statistics.fmean(float(s[kind]) for s in shares) for kind in ("heads", "dependents"))


def selects_everything(model: str, runs: Sequence[Mapping[str, Any]]) -> str:
    """That a model's policies select about all tokens; empty if they do not, or there are none."""
    share = selected_share(runs)
    if share is None or share < EVERYTHING:
        return ""
    return (
        f"{model} selects {100 * share:.1f} % of the tokens: hardly one is left out, so this says "
        "nothing of selecting"
    )
