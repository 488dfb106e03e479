"""Audits beside those of MTSA's Tables 5 and 6: the ledger's, as figures and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import pandas as pd
from matplotlib.figure import Figure

from reports.claims import ANSWERS, Verdict, ledger
from reports.claims.printed import at, load, number
from reports.core.axes import titled
from reports.core.page import Output, Shown, heading, says, together
from reports.pages.audit import figures as audit_figures
from reports.pages.claims import figures


class Others:
    """Audit claims of the ledger by kind of question; every method shows one piece of the page."""

    def __init__(self, place: Output) -> None:
        self.place = place

    @cached_property
    def audits(self) -> list[Verdict]:
        """All audit claims with their verdicts; no records are needed."""
        return [v for v in ledger({}) if v.claim.kind == "audit"]

    def _by(self, *queries: str) -> list[Verdict]:
        return [v for v in self.audits if v.claim.query in queries]

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
        found = self._by("proportions")
        figure = figures.intervals(
            found,
            "Accuracies as shares of the test examples",
            "95 % intervals, as if on two test sets; grey: undecided",
            "difference (points of accuracy)",
        )
        caption = f"Differences of single printed accuracies: {_counted(found)}."
        return together(
            self._says(found),
            self.place.figure("shares", figure, caption),
            self._table("shares", found),
        )

    def data_sets(self) -> Shown:
        """The Multi-Scale paper's Table 3: sixteen data sets, paired; and its averages."""
        found = self._by("paired", "wins_everywhere", "average")
        figure = _over_data_sets()
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
        found = [v for v in self._by("welch", "correlations") if v.claim.paper == "resan"]
        return together(says([v.reason for v in found]), self._table("relatedness", found))

    def costs(self) -> Shown:
        """Ratios of printed times, memories and parameters, with what rounding allows."""
        found = self._by("ratio")
        figure = figures.intervals(
            found,
            "Ratios of printed costs",
            "bars: what rounding of the printed numbers allows",
            "first over second",
            ratios=True,
        )
        caption = f"Claims on cost, by the papers' own numbers: {_counted(found)}."
        return together(
            self._says(found),
            self.place.figure("costs", figure, caption),
            self._table("costs", found),
        )

    def counting(self) -> Shown:
        """What is settled by counting: parameters, operations, paths, runs, numbers taken over."""
        shown = (
            "proportions",
            "paired",
            "wins_everywhere",
            "average",
            "ratio",
            "welch",
            "correlations",
            "implied",
            "deviation",
        )
        found = [v for v in self.audits if v.claim.query not in shown]
        return together(says([v.reason for v in found]), self._table("counting", found))

    def _says(self, found: Sequence[Verdict]) -> Shown:
        failed = [v for v in found if v.verdict == "not reproduced"]
        sentence = f"Of {len(found)} claims of this kind {_counted(found)}."
        return says([sentence, *(f"{v.claim.statement} Not so: {v.reason}" for v in failed)])

    def _table(self, name: str, found: Sequence[Verdict]) -> Shown:
        rows = [[v.claim.statement, v.measured, v.verdict, v.reason] for v in found]
        frame = pd.DataFrame(
            {
                "claim": v.id,
                "statement": v.claim.statement,
                "place": v.claim.place,
                "value": v.value,
                "low": v.low,
                "high": v.high,
                "verdict": v.verdict,
                "reason": v.reason,
                "arithmetic": "; ".join(v.steps),
            }
            for v in found
        )
        columns = ["claim", "value", "verdict", "why"]
        return self.place.table(name, frame, columns, rows, (0, 2, 3))


def _counted(found: Sequence[Verdict]) -> str:
    """``12 are reproduced, 3 are not reproduced, 5 are undecided``."""
    counts = {answer: sum(v.verdict == answer for v in found) for answer in ANSWERS}
    said = [f"{n} {'is' if n == 1 else 'are'} {answer}" for answer, n in counts.items() if n]
    return ", ".join(said)


def _over_data_sets() -> Figure:
    """Differences of the Multi-Scale Transformer to two others, data set by data set."""
    table = load("multi_scale")["table3"]
    names = [r["name"] for r in table["rows"] if r["name"] != table["average"]]
    columns = {
        name: {c: number(at(table, name, c)).value for c in table["columns"]} for name in names
    }
    ours, *others = "MS-Trans", "Transformer", "SLSTM"
    names.sort(key=lambda name: columns[name][ours] - columns[name][others[1]])
    figure, axes = audit_figures.row_axes(len(names), 0.2, 0.95)
    for other, marker, ink in zip(others, ("o", "D"), ("#0072B2", "#D55E00"), strict=True):
        apart = [columns[name][ours] - columns[name][other] for name in names]
        axes.plot(
            apart,
            range(len(names)),
            marker,
            color=ink,
            markersize=6,
            markerfacecolor=ink if other == others[0] else "white",
            label=f"minus {other} (mean {math.fsum(apart) / len(apart):+.2f})",
        )
    axes.set_yticks(range(len(names)), names, fontsize=8.5)
    axes.set_xlabel("Multi-Scale Transformer minus the other (points)", fontsize=8.5)
    axes.legend(fontsize=8, frameon=False, loc="upper right")
    titled(axes, "Table 3: sixteen data sets", "one printed number each")
    return figure
