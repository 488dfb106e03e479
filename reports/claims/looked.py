"""Claims about what trained models attend to: records of ``attnbench train --look``."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.claims.measured import Measured, not_measured
from reports.claims.names import alternatives, first_fitting
from reports.claims.record import Claim
from reports.claims.verdict import Finding

LEVEL = 0.95


def content_over_stop_words(claim: Claim, device: Measured) -> Finding:
    """A number per token, nouns and verbs less stop words, over the sentences that have both.

    The interval is over sentences, of one trained model: other seeds are not in it.

    Parameters: ``first`` (names), ``number`` (a kind of `harness.attention.reduce.importance`).
    """
    return _of_newest(claim, device, "contrast", 1.0)


def share_of_stop_words(claim: Claim, device: Measured) -> Finding:
    """The share of stop words that are selected so, in percent, over the sentences that have some.

    Interval and parameters as of `content_over_stop_words`.
    """
    return _of_newest(claim, device, "stop_words", 100.0)


def _of_newest(claim: Claim, device: Measured, field: str, scale: float) -> Finding:
    p = claim.parameters
    looked = [
        r
        for r in device.records
        if r["kind"] == "attention" and r["status"] == "ok" and p["number"] in (r.get(field) or {})
    ]
    models = first_fitting(p["first"], [str(r["model"]) for r in looked])
    if not models:
        name = alternatives(p["first"])[0]
        return not_measured(
            f"no trained {name} was looked at on sentences with parts of speech",
            f"attnbench train {name} --task {p.get('task', 'trec')} --look",
        )
    mine = [r for r in looked if r["model"] == models[0]]
    newest = max(mine, key=lambda r: str(r.get("at")))
    return _spread(newest, newest[field][p["number"]], scale)


def _spread(record: Mapping[str, Any], found: Mapping[str, Any], scale: float) -> Finding:
    from scipy.stats import t

    mean, count = scale * float(found["mean"]), int(found["sentences"])
    key = (str(record["key"]),)
    said = f"{record['model']} on {record['task']}, seed {record['seed']}, {count} sentences"
    if count < 2:
        return Finding(mean, reason=f"{said}: too few to conclude.", keys=key, answer="undecided")
    half = float(t.ppf((1 + LEVEL) / 2, count - 1)) * scale * float(found["sd"]) / math.sqrt(count)
    reason = f"{said}; the interval is over sentences, of this one model."
    return Finding(mean, mean - half, mean + half, reason, key)
