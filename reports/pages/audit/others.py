"""Audits beside those of MTSA's Tables 5 and 6: the ledger's, as figures and tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from reports.claims import ANSWERS, Verdict, ledger
from reports.core.page import Output, Shown, heading, says, together
from reports.pages.audit import figures

QUERIES = {
    "shares": ("proportions",),
    "data-sets": ("paired", "wins_everywhere", "average"),
    "relatedness": ("welch", "correlations"),
    "costs": ("ratio",),
    "Table 6 of MTSA": ("implied",),
    "deviations of its Table 5": ("deviation",),
}
"""What has a section of its own."""


class Others:
    """Audit claims of the ledger by kind of question; every method shows one piece of the page."""

    def __init__(self, place: Output) -> None:
        self.place = place

    @cached_property
    def audits(self) -> list[Verdict]:
        """All audit claims with their verdicts; no records are needed."""
        return [v for v in ledger({}) if v.claim.kind == "audit"]

    def _of(self, section: str) -> list[Verdict]:
        return [v for v in self.audits if v.claim.query in QUERIES[section]]

    def accuracies(self) -> Shown:
        """Single accuracies, averages over data sets, relatedness."""
        return together(
            self.shares(),
            heading("Multi-Scale Transformer: sixteen data sets", 2),
            self.data_sets(),
            heading("ReSAN: relatedness on SICK", 2),
            self.relatedness(),
        )

    def shares(self) -> Shown:
        """Accuracies on one test set as shares of its examples: what two proportions allow."""
        return self._intervals(
            "shares",
            "Accuracies as shares of the test examples",
            "95 % intervals, as if on two test sets; grey: undecided",
            "difference (points of accuracy)",
            "Differences of single printed accuracies",
        )

    def data_sets(self) -> Shown:
        """The Multi-Scale paper's Table 3: sixteen data sets, paired; and its averages."""
        found = self._of("data-sets")
        figure = figures.data_sets()
        caption = (
            "MTL-16: against the Transformer every data set gains; against the S-LSTM some do, and "
            "some lose."
        )
        return together(
            says([v.reason for v in found]),
            self.place.figure("data-sets", figure, caption),
            self._table("data-sets", found),
        )

    def relatedness(self) -> Shown:
        """ReSAN's Table 3: SICK, over five runs, and over test pairs."""
        found = [v for v in self._of("relatedness") if v.claim.paper == "resan"]
        return together(says([v.reason for v in found]), self._table("relatedness", found))

    def costs(self) -> Shown:
        """Ratios of printed times, memories and parameters, with what rounding allows."""
        return self._intervals(
            "costs",
            "Ratios of printed costs",
            "bars: what rounding of the printed numbers allows",
            "first over second",
            "Claims on cost, by the papers' own numbers",
        )

    def counting(self) -> Shown:
        """What is settled by counting: parameters, operations, paths, runs, numbers taken over."""
        elsewhere = {query for queries in QUERIES.values() for query in queries}
        found = [v for v in self.audits if v.claim.query not in elsewhere]
        return together(says([v.reason for v in found]), self._table("counting", found))

    def _intervals(self, section: str, title: str, under: str, unit: str, what: str) -> Shown:
        """What is counted in a section, its values with intervals, and the table."""
        found = self._of(section)
        failed = [v for v in found if v.verdict == "not reproduced"]
        sentence = f"Of {len(found)} claims of this kind {_counted(found)}."
        figure = figures.intervals(found, title, under, unit, ratios=section == "costs")
        return together(
            says([sentence, *(f"{v.claim.statement} Not so: {v.reason}" for v in failed)]),
            self.place.figure(section, figure, f"{what}: {_counted(found)}."),
            self._table(section, found),
        )

    def _table(self, name: str, found: Sequence[Verdict]) -> Shown:
        rows = [
            {
                "claim": v.claim.statement,
                "value": v.measured,
                "verdict": v.verdict,
                "why": v.reason,
            }
            for v in found
        ]
        kept = ("statement", "place", "value", "low", "high", "verdict", "reason")
        numbers = (
            {"claim": v.id, **{name: v.as_json()[name] for name in kept}}
            | {"arithmetic": "; ".join(v.steps)}
            for v in found
        )
        return self.place.table(name, numbers, rows, (0, 2, 3))


def _counted(found: Sequence[Verdict]) -> str:
    """``12 are reproduced, 3 are not reproduced, 5 are undecided``."""
    counts = {answer: sum(v.verdict == answer for v in found) for answer in ANSWERS}
    said = [f"{n} {'is' if n == 1 else 'are'} {answer}" for answer, n in counts.items() if n]
    return ", ".join(said)
