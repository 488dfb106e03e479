"""What a model with policies selected, from its run records."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
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


def selecting_everything(
    models: Iterable[tuple[str, Sequence[Mapping[str, Any]]]],
) -> list[str]:
    """Of which models, given with their runs, the policies select about all tokens; a line each."""
    shares = [(model, selected_share(runs)) for model, runs in models]
    return [
        f"{model} selects {100 * share:.1f} % of the tokens: hardly one is left out, so this says "
        "nothing of selecting"
        for model, share in shares
        if share is not None and share >= EVERYTHING
    ]
