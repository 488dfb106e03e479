"""Every published claim as a record (``claims.toml``), a query for each, and the verdicts."""

from __future__ import annotations

from reports.claims.judging import ledger
from reports.claims.record import Claim, load_claims
from reports.claims.scoring import Score, score, told
from reports.claims.verdict import ANSWERS, RATIOS, Answer, Verdict

__all__ = [
    "ANSWERS",
    "RATIOS",
    "Answer",
    "Claim",
    "Score",
    "Verdict",
    "ledger",
    "load_claims",
    "score",
    "told",
]
