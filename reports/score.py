"""The ledger's score, for the first page and the README: one line per device."""

from __future__ import annotations

from reports.claims import ledger
from reports.claims import score as count
from reports.claims.sources import devices_of
from reports.core.page import Shown, says, together, warns


def lines(journal: str) -> tuple[list[str], list[str]]:
    """Sentences, one per device (one alone without any), and the exact claims that fail.

    Parameters
    ----------
    journal : str
        Folder of the records; the published ones if it is empty or holds none.
    """
    source = devices_of(journal)
    verdicts = ledger({device.key: device.records for device in source.devices})
    found = {d.title: count(verdicts, d.key) for d in source.devices} or {"": count(verdicts)}
    said = [f"{who}: {s}" if len(found) > 1 else str(s) for who, s in found.items()]
    failed = [
        f"{claim} is an exact claim, and does not hold{f' on {who}' if who else ''}"
        for who, s in found.items()
        for claim in s.failed
    ]
    return said, failed


def score(journal: str) -> Shown:
    """The lines, and a warning for every exact claim that does not hold."""
    said, failed = lines(journal)
    return together(says(said), warns(failed))
