"""Claims that a paper makes together are tested together: Holm over those measured on a device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from harness.stats import ALPHA, holm
from reports.claims.record import Claim
from reports.claims.verdict import Finding


def corrected(claims: Sequence[Claim], findings: Sequence[Finding]) -> list[Finding]:
    """The findings of one device; what is significant only by itself becomes undecided.

    Together are the claims of one ``[[family]]`` whose findings have a p-value: the corpora of a
    table, the rows of an ablation. The intervals stay those of each claim by itself.

    Parameters
    ----------
    claims, findings : sequence
        Side by side, in any order.
    """
    found = list(findings)
    members: dict[int, list[int]] = {}
    for i, (claim, finding) in enumerate(zip(claims, findings, strict=True)):
        if not math.isnan(finding.p):
            members.setdefault(claim.family, []).append(i)
    for places in members.values():
        if len(places) < 2:
            continue
        for i, p in zip(places, holm([findings[i].p for i in places]), strict=True):
            lost = findings[i].p < ALPHA <= p
            said = (
                f"Holm over the {len(places)} claims made together that are measured: p = {p:.2g}"
            )
            found[i] = replace(
                findings[i],
                reason=f"{findings[i].reason} {said}{', no longer significant' if lost else ''}.",
                answer="undecided" if lost else findings[i].answer,
            )
    return found
