"""What ``audit.ipynb`` calls: the papers' tables re-analysed from the printed numbers alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Self

from reports.claims.ledger import ledger
from reports.claims.printed import load
from reports.claims.reanalysis import fold_deviations, implied
from reports.claims.verdict import ANSWERS, Verdict
from reports.core.page import Output, Shown, says, together
from reports.core.parameters import opens
from reports.core.tables import under
from reports.pages.audit import figures
from reports.pages.audit.figures import p_text

QUERIES = {
    "means": ("welch",),
    "shares": ("proportions",),
    "data-sets": ("paired", "wins_everywhere", "average"),
    "costs": ("ratio",),
}
"""Of which claims a section is; all of them, with reasons, stand in the ledger."""


class Audit:
    """The printed tables; every method shows one piece of the page."""

    @classmethod
    @opens
    def begin(cls, journal: str, out: str, page: str) -> Self:
        """Open the notebook, as `reports.core.page.SourcePage` does; no records are read."""
        return cls(Output.of(out, page, "From the papers' printed numbers; nothing was measured."))

    def __init__(self, place: Output) -> None:
        self.place = place
        tables = load("mtsa")
        self.accuracy, self.translation = tables["table5"], tables["table6"]

    def printed(self) -> Shown:
        """Table 5 as printed."""
        lines = [[row["name"], *row["cells"]] for row in self.accuracy["rows"]]
        rows = under(["model", *self.accuracy["columns"]], lines)
        return self.place.table("table5", rows, rows)

    def means(self) -> Shown:
        """MTSA against the runner-up, and against multi-head attention: Welch's tests."""
        return self._intervals(
            "means",
            "Table 5: MTSA and others, by printed means and deviations",
            "95 % Welch intervals; undecided: not shown after Holm",
            "MTSA minus the other (points of accuracy)",
            "Differences of printed means",
        )

    def deviations(self) -> Shown:
        """Whether the printed deviations can be ones over folds."""
        found = fold_deviations(self.accuracy)
        (odd,) = (f for f in found if f.implausible)
        sentence = (
            "Ten disjoint folds of a corpus differ at least by the chance of counting right "
            "answers: sqrt(a (1 − a) / examples in a fold). "
            f"Of {len(found)} printed deviations over folds, too small for that is the "
            f"{odd.printed_points:.1f} of {odd.model} on {odd.data} (counting gives "
            f"{odd.counting_points:.1f}, p = {p_text(odd.p_holm)} after Holm's correction); it may "
            "be over something else, or a misprint."
        )
        caption = (
            f"All but 1 of {len(found)} printed deviations over folds can be chance; "
            f"{odd.model} on {odd.data} is {odd.counting_points / odd.printed_points:.0f} times "
            "smaller than counting alone gives."
        )
        rows = [
            {
                "": f"{f.data}: {f.model}",
                "accuracy (%)": f"{f.accuracy_percent:.1f}",
                "printed deviation": f"{f.printed_points:.1f}",
                "from counting alone": f"{f.counting_points:.2f}",
                "p": p_text(f.p),
                "p (Holm)": p_text(f.p_holm),
            }
            for f in found
        ]
        return together(
            says([sentence]),
            self.place.figure("deviations", figures.deviations(found), caption),
            self.place.table("deviations", found, rows),
        )

    def translation_table(self) -> Shown:
        """Table 6 as printed, and where it contradicts its caption."""
        rows, odd = [], []
        for s in self.translation["setups"]:
            runs = [str(s["runs_in_table"]), str(s["runs_in_caption"])]
            rows.append(
                {
                    "": s["name"],
                    "multi-head (BLEU)": f"{s['multi_head']:.2f}",
                    "MTSA (BLEU)": f"{s['mtsa']:.2f}",
                    "p": f"{s['p']:.3f}",
                    "runs by the table": runs[0],
                    "runs by the caption": runs[1],
                }
            )
            if runs[0] != runs[1]:
                odd.append(
                    f"{s['name']}: the table says {runs[0]} runs, the caption "
                    f"{runs[1]}; both readings are shown."
                )
        return together(self.place.table("table6", rows, rows), says(odd))

    def translation_intervals(self) -> Shown:
        """What difference and p of Table 6 imply."""
        found = implied(self.translation)
        parts = []
        for setup in self.translation["setups"]:
            mine = [r for r in found if r.setup == setup["name"]]
            spans = "; ".join(
                f"[{r.low_bleu:.2f}, {r.high_bleu:.2f}] for {r.reading}" for r in mine if r.paired
            )
            difference = mine[0].difference_bleu
            if all(r.low_bleu > 0 for r in mine):
                parts.append(
                    f"{setup['name']}: a gain of {difference:.2f} BLEU is shown under every "
                    f"reading ({spans})."
                )
            else:
                parts.append(
                    f"{setup['name']}: a gain of {difference:.2f} BLEU is not shown by the printed "
                    f"numbers: p = {setup['p']:.3f} is above .05, and the interval includes zero "
                    f"({spans}), though the text calls both setups significant."
                )
        rows = [
            {
                "": f"{r.setup}: {r.reading}",
                "difference (BLEU)": f"{r.difference_bleu:+.2f}",
                "95 % interval": f"[{r.low_bleu:+.2f}, {r.high_bleu:+.2f}]",
            }
            for r in found
        ]
        caption = (
            "Each row is one reading of Table 6; where the interval is grey, it includes zero and "
            "a gain is not shown."
        )
        return together(
            says(parts, main=True),
            self.place.figure("translation", figures.implied(found), caption),
            self.place.table("translation", found, rows),
        )

    @cached_property
    def audits(self) -> list[Verdict]:
        """All audit claims with their verdicts; no records are needed."""
        return [v for v in ledger(()) if v.claim.kind == "audit"]

    def _of(self, section: str) -> list[Verdict]:
        mine = [v for v in self.audits if v.claim.query in QUERIES[section]]
        # Points of accuracy; ReSAN's correlations stand in the ledger.
        return [v for v in mine if section != "means" or v.claim.paper == "mtsa"]

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
        )

    def costs(self) -> Shown:
        """Ratios of printed times, memories and parameters, with what rounding allows."""
        return self._intervals(
            "costs",
            "Ratios of printed costs",
            "bars: what rounding of the printed numbers allows",
            "first over second",
            "Claims on cost, by the papers' own numbers",
        )

    def _intervals(self, section: str, title: str, under: str, unit: str, what: str) -> Shown:
        """What is counted in a section, and its values with intervals."""
        found = self._of(section)
        failed = [v for v in found if v.verdict == "not reproduced"]
        sentence = f"Of {len(found)} claims of this kind {_counted(found)}."
        figure = figures.intervals(found, title, under, unit, ratios=section == "costs")
        return together(
            says([sentence, *(f"{v.claim.statement} Not so: {v.reason}" for v in failed)]),
            self.place.figure(section, figure, f"{what}: {_counted(found)}."),
        )


def _counted(found: Sequence[Verdict]) -> str:
    """``12 are reproduced, 3 are not reproduced, 5 are undecided``."""
    counts = {answer: sum(v.verdict == answer for v in found) for answer in ANSWERS}
    said = [f"{n} {'is' if n == 1 else 'are'} {answer}" for answer, n in counts.items() if n]
    return ", ".join(said)
