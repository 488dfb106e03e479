"""What tests of claims share: made-up devices, and the verdict on one made-up claim."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from reports.claims.ledger import ledger
from reports.claims.verdict import Verdict
from reports.core.source import DeviceRecords
from suites.support.made_up_records import claim

OURS, BASE = "mtsa.algorithm1", "multi_head.sdpa"
SIZE: Mapping[str, Any] = {"batch": 64, "length": 64, "width_in": 300, "phase": "training"}
ABOVE: Mapping[str, Any] = {"positive": True}
"""What a claim tolerates that says which of two is the better one."""
ASKED: Mapping[str, Any] = {
    "first": ["mtsa_released", "mtsa"],
    "second": "multi_head",
    "task": "trec",
}


def devices(**records: Iterable[Mapping[str, Any]]) -> list[DeviceRecords]:
    """Processors that have these records, by their keys."""
    return [DeviceRecords(key, {"device": "cpu"}, tuple(of), ()) for key, of in records.items()]


def judged(
    query: str,
    records: Iterable[Mapping[str, Any]],
    tolerance: Mapping[str, Any] = ABOVE,
    published: float | None = None,
    kind: Any = "measured",
    **parameters: Any,
) -> Verdict:
    """The one verdict on a made-up claim."""
    printed = {} if published is None else {"value": published}
    one = claim(query, kind, parameters=parameters, published=printed, tolerance=tolerance)
    (found,) = ledger(devices(d=records), claims=[one])
    assert found.device == "d"
    return found


def accuracy(records: Iterable[Mapping[str, Any]], **more: Any) -> Verdict:
    """Whether MTSA reaches more than multi-head attention on TREC; or what else is asked."""
    return judged("accuracy_difference", records, **{**ASKED, **more})
