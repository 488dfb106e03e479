"""The ledger in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from reports.claims.verdict import ANSWERS, Answer, Verdict


@dataclass(frozen=True)
class Score:
    """How many published claims have which verdict, on one device.

    Attributes
    ----------
    counts : mapping
        Number of claims by verdict.
    unmeasured : int
        Of those not testable here: how many a command could settle.
    failed : tuple of str
        Exact claims that do not hold, checks of ours among them.
    """

    counts: Mapping[Answer, int]
    unmeasured: int
    failed: tuple[str, ...]

    @property
    def total(self) -> int:
        """Number of claims."""
        return sum(self.counts.values())

    def __str__(self) -> str:
        """``Of 170 published claims 60 are reproduced, 20 are not, 30 are undecided ...``."""
        c = self.counts
        text = (
            f"Of {self.total} published claims {c['reproduced']} are reproduced, "
            f"{c['not reproduced']} are not, {c['undecided']} are undecided, "
            f"{c['not testable here']} are not testable here"
        )
        if self.unmeasured:
            text += f" ({self.unmeasured} of these: not measured yet)"
        return f"{text}."


def score(verdicts: Sequence[Verdict], device: str = "") -> Score:
    """Count the verdicts of one device, with those that need none; checks of ours are no claims.

    Parameters
    ----------
    device : str
        Its key; empty where no device has records.
    """
    mine = [v for v in verdicts if v.device in ("", device)]
    published = [v for v in mine if not v.claim.ours]
    counts = Counter(v.verdict for v in published)
    return Score(
        {answer: counts[answer] for answer in ANSWERS},
        sum(v.wants_records for v in published),
        tuple(v.id for v in mine if v.failed_exactly),
    )


def told(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts worth a line: a device that lacks the records is silent where another has them.

    A claim that no device has measured keeps one line, of the first device.
    """
    settled = {v.id for v in verdicts if not v.wants_records}
    found: dict[tuple[str, str], Verdict] = {}
    for v in verdicts:
        if not v.wants_records:
            found[v.id, v.device] = v
        elif v.id not in settled:
            found.setdefault((v.id, ""), v)
    return list(found.values())
