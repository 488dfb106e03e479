"""What a declared family of comparisons allows to say: differences, tests, verdicts, sentences.

From records alone, without torch. Two models on one task are the smallest family: of one
comparison, which needs no correction; more are judged with Holm's over all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.experiments.costs import TrainingCost, costs_of, coverage, over_budget
from harness.experiments.estimate import UNLIKE, Sought, sought, together_sought
from harness.experiments.examples import (
    ByExamples,
    Said,
    by_examples,
    kept_of,
    without_seen,
    without_stuck,
)
from harness.experiments.once import told_once
from harness.experiments.overall import Overall, overall, tied_on
from harness.experiments.preregistration import (
    Order,
    declared_late,
    designs,
    file_of,
    judged_elsewhere,
    left_out,
)
from harness.experiments.replicates import (
    Measured,
    Record,
    Ruled,
    Unit,
    Units,
    by_test,
    first_line,
    is_paired,
    late_text,
    measured,
    pairs_of,
    ruled,
    sides_of,
    unit_of,
)
from harness.experiments.warnings import (
    DECIDED,
    NOT_COUNTED,
    VOIDS,
    WIDE_MARGIN,
    flaws_of,
    is_wide,
    warnings_of,
)
from harness.records.schema import run_keys
from harness.stats import Chances, MeanDifference, Ties, chances, too_few
from harness.train.task import gathered


@dataclass(frozen=True)
class Comparison:
    """Two models on one task, as far as their runs are there."""

    key: str  # of the design
    design: Record  # its record: models, task, metric, recipes, seeds, folds, margin, match
    title: str
    first: str  # first, second: models; the first is judged against the second
    second: str
    task: str
    metric: str
    higher_is_better: bool
    choose: str  # {"dev", "best-on-test"}
    seeds: tuple[int, ...]  # declared
    units: Units  # {"seeds", "folds", "repeated folds"}: what is counted
    margin: float | None
    # Test metric of each finished pair; with folds (fold, first, second), means over seeds.
    # Unpaired also of a seed of which one run is finished; nan stands for the other.
    values: tuple[tuple[int, float, float], ...]
    pairs: int  # pairs, finished: declared pairs of runs, and those of which both runs are done
    finished: int
    difference: MeanDifference | None  # None without a pair
    # How probable *better*, *equal* and *worse* are; no verdict goes by it. None for fewer than
    # five replicates, or without spread.
    chances: Chances | None
    equivalence_p: float | None  # of the two one-sided tests against the margin; None without one
    # ``better``, ``worse``, ``practically equal``, ``undecided``, ``descriptive only``, or
    # ``unfinished``.
    verdict: str
    sentence: str
    # What it could have found and what would decide it, of one that is undecided.
    sought: Sought | None
    # What kept predictions say of it; None without them, and for data drawn for each seed.
    examples: ByExamples | None
    warnings: tuple[str, ...]
    # Why the models' training can't be compared, in short; such a verdict is not counted.
    flaws: tuple[str, ...]
    # Whether one of its runs is older than what was declared, repeats one that is, or is not of its
    # design file.
    exploratory: bool
    runs: tuple[Record, ...]  # the run records, those that failed too
    coverage: str  # one line, or empty for tasks without words
    together: int  # how many comparisons it was declared and is judged with; 1 by itself
    # adjusted_p, adjusted_equivalence_p: by Holm over these; None by itself.
    adjusted_p: float | None
    adjusted_equivalence_p: float | None

    @property
    def replicate(self) -> str:
        """What a value belongs to: ``seed`` or ``fold``."""
        return "seed" if self.units == "seeds" else "fold"

    @property
    def paired(self) -> bool:
        """Whether differences are of one seed or fold, as was declared."""
        return self.units != "seeds" or is_paired(self.design)

    @property
    def sides(self) -> tuple[list[Record], list[Record]]:
        """The run records of the first model, and those of the second."""
        return sides_of(pairs_of(self.design, self.runs))

    @property
    def costs(self) -> dict[str, TrainingCost]:
        """`TrainingCost` by model; none for a model without a finished run."""
        return costs_over([self])

    @property
    def standing(self) -> tuple[bool, bool, bool, int]:
        """Of several comparisons of one question the one with the largest is told.

        One that was declared before its runs stands before an exploratory one, one of a design file
        before a command's, those declared together, which share the baseline's runs, before single
        ones; then one of many replicates before one of few.
        """
        planned = bool(self.design.get("plan"))
        return not self.exploratory, planned, self.together > 1, len(self.values)

    @property
    def complete(self) -> bool:
        """Whether every declared pair is finished."""
        return self.finished == self.pairs

    @property
    def said(self) -> str:
        """The verdict, and whether one that decides is counted: see `flaws`."""
        return self.as_said(self.verdict)

    def as_said(self, verdict: str) -> str:
        """The same of another verdict on these runs."""
        return verdict + NOT_COUNTED * bool(self.flaws and verdict in DECIDED)

    @property
    def unit(self) -> Unit:
        """How the metric is written."""
        return unit_of(self.metric)


@dataclass(frozen=True)
class Conclusion:
    """A family of comparisons as far as its runs are there."""

    key: str  # of the declared family, or of the design that was declared by itself
    record: Record  # its record
    baseline: str
    models: tuple[str, ...]
    tasks: tuple[str, ...]
    # By task, in the order of the models; verdicts, p and sentences allow for their number.
    comparisons: tuple[Comparison, ...]
    # By task the models that can't be told apart; none of a task with fewer than three models.
    ties: Mapping[str, Ties]
    # Over tasks; None for one task, or as long as only one has pairs of every model.
    overall: Overall | None
    # The same without the test examples that stand in the training set; None without any.
    overall_unseen: Overall | None
    # And without pairs of which a run learned nothing; None without any.
    overall_learned: Overall | None
    warnings: tuple[str, ...]

    @property
    def is_pair(self) -> bool:
        """Whether it was declared as two models on one task."""
        return self.record["kind"] == "design"

    @property
    def title(self) -> str:
        """``mtsa.fused and multi_head.sdpa on trec``, ``7 models against ... on trec, cr``."""
        if self.is_pair:
            return self.comparisons[0].title
        count = len(self.models)
        models = self.models[0] if count == 1 else f"{count} models"
        return f"{models} against {self.baseline} on {', '.join(gathered(self.tasks))}"

    def of_task(self, task: str) -> list[Comparison]:
        """The comparisons of a task."""
        return [c for c in self.comparisons if c.task == task]

    @property
    def complete(self) -> bool:
        """Whether every declared pair is finished."""
        return all(c.complete for c in self.comparisons)

    @property
    def exploratory(self) -> bool:
        """Whether one of its comparisons is."""
        return any(c.exploratory for c in self.comparisons)

    @property
    def runs(self) -> tuple[Record, ...]:
        """The run records, each once, those that failed too."""
        return _runs_of(self.comparisons)

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict; of several how many there are of each kind, then what was decided.

        Beside *undecided* what it could have found, of several how many seeds each would take.
        """
        if self.is_pair:
            (one,) = self.comparisons
            return (one.sentence, *([one.sought.said(one.unit)] if one.sought else []))
        counts = Counter(c.said for c in self.comparisons)
        few = "descriptive only"
        behind = {"undecided": together_sought([c.sought for c in self.comparisons if c.sought])}
        if unlike := sum(bool(c.flaws and c.verdict == few) for c in self.comparisons):
            behind[few] = f" ({unlike} of {UNLIKE})"
        said = ", ".join(f"{count} {v}{behind.get(v, '')}" for v, count in counts.items())
        if self.overall is not None:
            said += self.overall.said
        if self.exploratory:
            late = [f"{c.first} on {c.task}" for c in self.comparisons if c.exploratory]
            said = f"{late_text(late, len(self.comparisons))}: {said}"
        return (
            f"{self.title}: {said}",
            *(c.sentence for c in self.comparisons if c.verdict in DECIDED),
        )


def costs_over(comparisons: Iterable[Comparison]) -> dict[str, TrainingCost]:
    """`Comparison.costs` over all runs of several, which may share some."""
    runs: dict[str, dict[str, Record]] = {}
    for c in comparisons:
        for model, side in zip((c.first, c.second), c.sides, strict=True):
            runs.setdefault(model, {}).update((run["key"], run) for run in side)
    return costs_of({model: of.values() for model, of in runs.items()})


def _runs_of(comparisons: Iterable[Comparison]) -> tuple[Record, ...]:
    return tuple({run["key"]: run for c in comparisons for run in c.runs}.values())


def conclusions(
    records: Iterable[Record], said: Said | None = None, elsewhere: Iterable[Record] = ()
) -> list[Conclusion]:
    """All conclusions of a journal, of each question the newest declaration, oldest first.

    A declaration of which no run was ever recorded (an option that does not exist, say) is none.

    Parameters
    ----------
    records : iterable of mapping
        Of any kind.
    said : callable, optional
        See `conclude`.
    elsewhere : iterable of mapping
        Runs of other machines, see `Order`; nothing is concluded of them.
    """
    everything = list(records)
    order = Order(everything, elsewhere)
    begun = {r["key"] for r in everything if r["kind"] == "run"}
    newest: dict[str, Record] = {}
    for record in order.oldest_first(r for r in everything if r["kind"] in ("design", "family")):
        if begun & run_keys(record):
            question = str(record.get("question") or record["key"])
            newest.pop(question, None)
            newest[question] = record
    return [conclude(record, everything, order, said) for record in newest.values()]


def conclude(
    record: Record,
    records: Sequence[Record],
    order: Order | None = None,
    said: Said | None = None,
) -> Conclusion:
    """Judge what was declared, by the runs that are there.

    Parameters
    ----------
    record : mapping
        Of a family, or of a design that was declared by itself.
    records : sequence of mapping
        The whole journal.
    order : Order, optional
        Of the records, where it is known already.
    said : callable, optional
        What a run said of its test examples; without it nothing is told of these.
    """
    order = order or Order(records)
    found = [measured(design, records) for design in designs([record])]
    rules = ruled(found)
    kept = [None if said is None else kept_of(m, said) for m in found]
    shown = by_examples(found, rules, kept)
    judged = tuple(
        _judged(m, len(found), rule, examples, records, order)
        for m, rule, examples in zip(found, rules, shown, strict=True)
    )
    of_task: dict[str, list[Measured]] = {}
    for m in found:
        of_task.setdefault(m.design["task"], []).append(m)
    over = overall(found)
    seen = any(k is not None and k.seen for k in kept)
    stuck = any(k is not None and k.learned for k in kept)
    return Conclusion(
        key=record["key"],
        record=record,
        baseline=judged[0].second,
        models=tuple(dict.fromkeys(c.first for c in judged)),
        tasks=tuple(dict.fromkeys(c.task for c in judged)),
        comparisons=judged,
        ties={task: tied for task, some in of_task.items() if (tied := tied_on(some))},
        overall=over,
        overall_unseen=overall(without_seen(found, kept)) if seen else None,
        overall_learned=overall(without_stuck(found, kept)) if stuck else None,
        warnings=(
            *told_once([(c.first, c.task, c.warnings) for c in judged]),
            *(over.warnings if over is not None else ()),
            *(left_out(record, records, order) if record["kind"] == "family" else ()),
            *over_budget(record.get("plan"), _runs_of(judged)),
        ),
    )


def _judged(
    found: Measured,
    together: int,
    rule: Ruled,
    examples: ByExamples | None,
    records: Sequence[Record],
    order: Order,
) -> Comparison:
    """One of so many comparisons, with both p-values as adjusted for their number."""
    design, values, d = found.design, found.values, found.difference
    several, verdict = together > 1, rule.verdict
    chance = None
    if d is not None and not too_few(d):
        chance = chances(d, design["higher_is_better"], design["margin"])
    first, second = design["models"]
    known = flaws_of(found)
    reasons = [flaw.short for flaw in known]
    # A run that failed may be made up for by more of them, unlike training is not.
    unlike = any(flaw.short not in VOIDS for flaw in known)
    if d is not None and verdict == "practically equal" and is_wide(design, d):
        reasons.append(WIDE_MARGIN)
    flaws, open_ = tuple(dict.fromkeys(reasons)), verdict == "undecided"
    runs = tuple(r for pair in found.pairs for r in pair if r is not None)
    file = file_of(design)
    strangers = file is not None and any(run.get("plan") != file for run in runs)
    exploratory = strangers or declared_late(design, found.pairs, records, order)
    alone = () if design.get("family") else judged_elsewhere(design, records)
    title = f"{first} and {second} on {design['task']}"
    return Comparison(
        key=design["key"],
        design=design,
        title=title + ("" if values.paired else ", unpaired"),
        first=first,
        second=second,
        task=design["task"],
        metric=design["metric"],
        higher_is_better=design["higher_is_better"],
        choose="best-on-test" if by_test(design) else "dev",
        seeds=tuple(design["seeds"]),
        units=values.units,
        margin=design["margin"],
        values=values.rows,
        pairs=len(found.pairs),
        finished=values.finished,
        difference=d,
        chances=chance,
        equivalence_p=found.equivalence_p,
        verdict=verdict,
        sentence=first_line(found, rule, together, flaws, exploratory),
        sought=sought(d, design["margin"], together, unlike) if d and open_ else None,
        examples=examples,
        warnings=(
            *warnings_of(found, records, order),
            *(examples.warnings if examples else ()),
            *alone,
        ),
        flaws=flaws,
        exploratory=exploratory,
        runs=runs,
        coverage=coverage(runs),
        together=together,
        adjusted_p=rule.p if several else None,
        adjusted_equivalence_p=rule.equal_p if several else None,
    )
