"""The ledger: every claim with its verdict, on every device that has records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reports.claims import audit_counts, audit_tests, looked, measured, recorded, trained
from reports.claims.measured import Measured
from reports.claims.published import Tables, published
from reports.claims.record import Claim, load_claims
from reports.claims.together import corrected
from reports.claims.verdict import Finding, Verdict, region
from reports.printed import load_all

Audit = Callable[[Claim, Tables], Finding]
Query = Callable[[Claim, Measured], Finding]

AUDITS: Mapping[str, Audit] = {
    "welch": audit_tests.welch_test,
    "proportions": audit_tests.proportions,
    "implied": audit_tests.implied_by_p,
    "paired": audit_tests.paired,
    "wins_everywhere": audit_tests.wins_everywhere,
    "correlations": audit_tests.correlations,
    "deviation": audit_tests.deviation,
    "ratio": audit_counts.ratio,
    "difference": audit_counts.difference,
    "share": audit_counts.share,
    "average": audit_counts.average,
    "carried_over": audit_counts.carried_over,
    "shortest_path": audit_counts.shortest_path,
    "operations": audit_counts.operations,
    "layers_per_head": audit_counts.layers_per_head,
    "like_for_like": audit_counts.like_for_like,
    "runs_agree": audit_counts.runs_agree,
    "not_printed": audit_counts.not_printed,
}
"""Queries of audit claims, over the transcribed tables."""

QUERIES: Mapping[str, Query] = {
    "time_ratio": measured.time_ratio,
    "memory_ratio": measured.memory_ratio,
    "slope": measured.slope,
    "accuracy_difference": trained.accuracy_difference,
    "epoch_ratio": trained.epoch_ratio,
    "selected_shares": trained.selected_shares,
    "content_over_stop_words": looked.content_over_stop_words,
    "share_of_stop_words": looked.share_of_stop_words,
    "exact": recorded.exact,
}
"""Queries of exact and measured claims, over the records of one device."""

PAGES = {"exact": "claims", "audit": "audit", "measured": "scaling"}
"""Page of a claim that names none, by its kind."""


def file_of(page: str, device: str) -> str:
    """File of a page where there is one device."""
    return f"{page}.html"


def ledger(
    records_by_device: Mapping[str, Sequence[Mapping[str, Any]]],
    tables: Tables | None = None,
    claims: Sequence[Claim] | None = None,
    page_of: Callable[[str, str], str] = file_of,
) -> list[Verdict]:
    """The verdicts, in the order of the claims; of one claim in the order of the devices.

    Parameters
    ----------
    records_by_device : mapping
        Records by the newest code (`reports.core.source.current`), by the key of their device; each
        device has a verdict of its own, they are never mixed.
    tables : mapping, optional
        Transcribed tables by paper; all of ours without it.
    claims : sequence of Claim, optional
        All of ours without it.
    page_of : callable
        File of the report for the name of a page and the key of a device (empty for none).
    """
    known = load_all() if tables is None else tables
    every = load_claims() if claims is None else claims
    asked = [claim for claim in every if claim.kind not in ("audit", "not testable")]
    findings = {
        key: dict(zip((c.id for c in asked), _findings(asked, Measured(records)), strict=True))
        for key, records in (records_by_device or {"": ()}).items()
    }
    found: list[Verdict] = []
    for claim in every:
        if claim.kind == "not testable":
            found.append(_verdict(claim, Finding(reason=claim.why, answer="not testable here"),
                                  known, "", page_of))  # fmt: skip
        elif claim.kind == "audit":
            found.append(_verdict(claim, AUDITS[claim.query](claim, known), known, "", page_of))
        else:
            found += [
                _verdict(claim, finding[claim.id], known, key, page_of)
                for key, finding in findings.items()
            ]
    return found


def _findings(claims: Sequence[Claim], device: Measured) -> list[Finding]:
    """Of one device, corrected for what is claimed together."""
    return corrected(claims, [QUERIES[claim.query](claim, device) for claim in claims])


def _verdict(
    claim: Claim, finding: Finding, tables: Tables, device: str,
    page_of: Callable[[str, str], str],
) -> Verdict:  # fmt: skip
    printed = published(claim, tables)
    wanted = region(claim.tolerance, printed.value) if claim.tolerance else None
    answer = finding.answer
    if answer is None:
        answer = "undecided" if wanted is None else wanted.judge(finding.low, finding.high)
    page = claim.page or PAGES.get(claim.kind, "")
    return Verdict(
        claim=claim,
        verdict=answer,
        reason=finding.reason,
        value=finding.value,
        low=finding.low,
        high=finding.high,
        published=printed.text,
        published_value=printed.value,
        wanted="" if wanted is None else wanted.says,
        device=device,
        page=page_of(page, device) if page else "",
        keys=finding.keys,
        steps=finding.steps,
    )
