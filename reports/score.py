"""The ledger's score, for the first page: one line per device."""

from __future__ import annotations

from reports.claims import ledger
from reports.claims import score as count
from reports.shown import Shown, says, together, warns
from reports.source import Source


def lines(source: Source) -> tuple[list[str], list[str]]:
    """Sentences, one per device (one alone without any), and the exact claims that fail."""
    verdicts = ledger({device.key: device.records for device in source.devices})
    if not source.devices:
        found = {"": count(verdicts)}
    else:
        found = {f"{d.title}: ": count(verdicts, d.key) for d in source.devices}
    failed = [f"{who}{claim} is exact, and does not hold" for who, s in found.items()
              for claim in s.failed]  # fmt: skip
    return [f"{who}{s}" for who, s in found.items()], failed


def score(source: Source) -> Shown:
    """The lines, and a warning for every exact claim that does not hold."""
    said, failed = lines(source)
    return together(says(said), warns(failed))
