"""Every published claim as a record (``claims.toml``), a query for each, and the verdicts."""

from __future__ import annotations

from reports.claims.ledger import ledger, score, score_lines, shown
from reports.claims.record import SORTS, Claim, load_claims, whose_text
from reports.claims.verdict import ANSWERS, RATIOS, Answer, Verdict

__all__ = [
    "ANSWERS",
    "RATIOS",
    "SORTS",
    "Answer",
    "Claim",
    "Verdict",
    "ledger",
    "load_claims",
    "score",
    "score_lines",
    "shown",
    "whose_text",
]
