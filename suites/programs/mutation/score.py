"""The score of a unit, the table, and the list of survivors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from suites.programs.mutation.draw import Mutant

WANTED = 0.9
KILLED = ("killed", "incompetent", "timeout", "oom", "crash")
"""Verdicts of mutants that were noticed; all but the first without a check's finding."""


@dataclass(frozen=True)
class Score:
    """What became of a unit's sample.

    Attributes
    ----------
    unit : str
    sampled, equivalent : int
        Drawn, and declared equivalent among them, which were not run.
    verdicts : Counter
        Of the others.
    """

    unit: str
    sampled: int
    equivalent: int
    verdicts: Counter[str]

    @property
    def killed(self) -> int:
        """Noticed ones."""
        return sum(self.verdicts[v] for v in KILLED)

    @property
    def share(self) -> float:
        """Killed ones of those that are not equivalent; 1 where there is none."""
        return self.killed / self.verdicts.total() if self.verdicts.total() else 1.0

    @property
    def enough(self) -> bool:
        """Whether the unit passes."""
        return self.share >= WANTED


def print_table(out: Console, scores: Sequence[Score]) -> None:
    """A line per unit, and one for all."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("package")
    for column in ("sampled", "equivalent", "killed", "survived", "score", "of these:"):
        table.add_column(column, justify="right")
    for column in KILLED[1:]:
        table.add_column(column, justify="right", style="dim")
    total = Score(
        "all",
        sum(s.sampled for s in scores),
        sum(s.equivalent for s in scores),
        sum((s.verdicts for s in scores), Counter()),
    )
    for s in [*scores, total] if len(scores) > 1 else scores:
        colour = "green" if s.enough else "bold red"
        table.add_row(
            s.unit,
            str(s.sampled),
            str(s.equivalent),
            str(s.killed),
            str(s.verdicts["survived"]),
            f"[{colour}]{s.share:.0%}[/]",
            "",
            *(str(s.verdicts[v]) for v in KILLED[1:]),
        )
    out.print(table)


def print_mutant(out: Console, mutant: Mutant, row: Mapping[str, Any]) -> None:
    """Where, what, what was found, and how to run it again."""
    out.print(f"[bold]{mutant.id}[/] {escape(row['file'])}:{mutant.site.row}", highlight=False)
    for line in mutant.diff.splitlines()[2:]:
        colour = {"-": "red", "+": "green"}.get(line[:1], "dim")
        out.print(f"  [{colour}]{escape(line)}[/]", highlight=False, soft_wrap=True)
    by = f" by {row['by']}" if row["by"] else ""
    said = f"{row['verdict']}{by}: {row['detail']} ({row['seconds']:.1f} s, {row['operator']})"
    out.print(f"  {escape(said)}", highlight=False, soft_wrap=True)
    out.print(f"  again: nox -s mutants -- --only {mutant.id}", highlight=False)
