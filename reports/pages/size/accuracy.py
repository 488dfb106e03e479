"""Accuracies against the baseline's: which comparisons a page shows, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.examples import hanging
from harness.experiments.preregistration import design_file
from harness.experiments.replicates import EXPLORATORY, counts_of
from reports.core import recipes
from reports.core.sizes import Size
from reports.core.style import mechanism_of
from reports.core.tables import Cell


def is_own(model: str, mechanism: str) -> bool:
    """Whether a trained model is a mechanism in its own configuration."""
    return mechanism_of(model) == mechanism and "[" not in model


def _short(model: str) -> str:
    """A mechanism for its own configuration: whatever computes it has its accuracy."""
    return model if "[" in model else mechanism_of(model)


def how_trained(c: Comparison) -> str:
    """What of how both were trained is not the common, as a column's head has it; else empty.

    Of models with a recipe each it is named who gave them these: no two such designs are alike.
    """
    whose = design_file(c.design) or str(c.design.get("family") or c.key)[:6]
    said = recipes.unlike_common(c.runs)
    return ", ".join(f"{one} ({whose})" if one.startswith("several") else one for one in said)


def differences(found: Iterable[Conclusion], size: Size) -> list[Comparison]:
    """The comparison of each model with the baseline's mechanism, by task and how it was trained.

    Of several the one of the highest `Comparison.standing`, then the newer one; whatever computes
    a mechanism.
    """
    baseline = mechanism_of(size.baseline)
    kept: dict[tuple[str, ...], Comparison] = {}
    for c in (c for family in found for c in family.comparisons):
        fits = is_own(c.second, baseline) and (not size.task or c.task == size.task)
        if not fits or c.difference is None:
            continue
        before = kept.get(question(c))
        if before is None or c.standing >= before.standing:
            kept[question(c)] = c
    return list(kept.values())


def question(c: Comparison) -> tuple[str, ...]:
    """Model, task, how both were trained, baseline: what has one cell of `accuracy_table`."""
    return _short(c.first), c.task, how_trained(c), _short(c.second)


def difference_text(c: Comparison) -> str:
    """``trec −0.64 [−1.33, +0.05] points, undecided``: one comparison in short."""
    trained = ", ".join(filter(None, [c.task, how_trained(c)]))
    return f"{trained} {_cell(c, c.unit.of_differences or f' {c.metric}')}"


def verdict_cell(c: Comparison, before: str = "", behind: str = "") -> Cell:
    """The verdict, whether it is exploratory, and beneath it what must be known of it at once:
    what was not trained alike, and that other test examples may give another.

    Parameters
    ----------
    before, behind : str
        What stands there in the same line.
    """
    first = f"{EXPLORATORY}: " if c.exploratory else ""
    why = [*c.flaws, *hanging(c.examples)]
    notes = ("; ".join(why),) if why else ()
    return Cell.of(f"{before}{first}{c.said}{behind}", notes=notes)


def _cell(c: Comparison, more: str = "") -> Cell:
    assert c.difference is not None
    unpaired = "" if c.paired else " (unpaired)"
    missing = c.sought.short(c.unit) if c.sought is not None else ""
    return verdict_cell(c, f"{c.unit.interval(c.difference)}{more}, ", f"{missing}{unpaired}")


def accuracy_table(found: Sequence[Comparison], size: Size, head: str) -> list[dict[str, str]]:
    """A row per model (under `head`) with its difference to the baseline's on each task.

    Only what was trained alike stands in one column. The mechanism asked about is the first row;
    variants (ablations, say) are left to the page of corpora, unless one is asked about.
    """
    by = {question(c): c for c in found if "[" not in c.first or c.first == size.mechanism}
    columns: dict[tuple[str, ...], list[Comparison]] = {}
    for (_, *column), c in by.items():
        columns.setdefault(tuple(column), []).append(c)
    heads = {column: _head(some, column[1]) for column, some in sorted(columns.items())}
    mine = _short(size.mechanism)
    models = sorted({model for model, *_ in by}, key=lambda name: (name != mine, name))
    cells = {key: _cell(c, _unlike(c, columns[key[1:]])) for key, c in by.items()}
    return [
        {head: model, **{text: cells.get((model, *at), "") for at, text in heads.items()}}
        for model in models
    ]


def _unlike(c: Comparison, some: Sequence[Comparison]) -> str:
    """What of a comparison its column's head tells of several: replicates, Holm."""
    over = f" over {_over([c])}" if len({len(one.values) for one in some}) > 1 else ""
    mixed = len({one.together for one in some}) > 1
    return over + (f", {_holm([c]) or 'by itself'}" if mixed else "")


def _holm(some: Sequence[Comparison]) -> str:
    """``Holm over 6``: with how many comparisons each is judged; empty of those by themselves."""
    counts = sorted({c.together for c in some})
    return f"Holm over {' or '.join(map(str, counts))}" if counts[-1] > 1 else ""


def _head(some: Sequence[Comparison], trained: str) -> str:
    """``trec (accuracy, points; 5 seeds; Holm over 6)``, ``trec, paper (...)``."""
    c = some[0]
    better = "" if c.higher_is_better else "lower is better"
    unit = ", ".join(filter(None, [c.metric, c.unit.of_differences.strip(), better]))
    told = "; ".join(filter(None, [_over(some), _holm(some)]))
    return f"{', '.join(filter(None, [c.task, trained]))} ({unit}; {told})"


def _over(some: Sequence[Comparison]) -> str:
    return counts_of((c.replicate, len(c.values)) for c in some)


def accuracy_note(records: Sequence[Mapping[str, Any]], found: Sequence[Comparison]) -> str:
    """How the table must be read: how verdicts were made, and models, which costs were not."""
    together = " and ".join(map(str, sorted({c.together for c in found if c.together > 1})))
    holm = f"; verdicts allow for {together} comparisons (Holm), intervals do not"
    note = f"Differences with 95 % t-intervals over seeds or folds{holm if together else ''}."
    models = {name for c in found for name in (c.first, c.second)}
    trained = [
        r.get("recipe") or {} for r in records if r["kind"] == "run" and r["model"] in models
    ]
    sizes = sorted({(r["width"], r["heads"]) for r in trained if "heads" in r and "width" in r})
    said = " or ".join(f"{width} wide with {heads} heads" for width, heads in sizes)
    return f"{note} Accuracies are of the mechanism, trained {said}." if said else note


def accuracy_numbers(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """All of them, for the CSV."""
    return [
        {
            "task": c.task,
            "trained": how_trained(c),
            "metric": c.metric,
            "model": c.first,
            "baseline": c.second,
            "difference": c.difference.difference,
            "low": c.difference.low,
            "high": c.difference.high,
            "replicates": len(c.values),
            "verdict": c.said,
            "not_counted": "; ".join(c.flaws),
            "exploratory": c.exploratory,
            "detectable": None if c.sought is None else c.sought.detectable,
            "seeds_needed": None if c.sought is None else c.sought.needed,
        }
        for c in found
        if c.difference is not None
    ]
