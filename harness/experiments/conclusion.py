"""What a declared family of comparisons allows to say: Holm over all, and a test over tasks.

Two models on one task are the smallest family: of one comparison, which needs no correction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any

from harness.experiments.comparison import Comparison, compare
from harness.experiments.overall import Overall, overall
from harness.experiments.preregistration import Order, designs, left_out, run_keys
from harness.experiments.wording import sentence
from harness.stats import accuracy_verdict as judge
from harness.stats import holm, judged_p


@dataclass(frozen=True)
class Conclusion:
    """A family of comparisons as far as its runs are there.

    Attributes
    ----------
    key : str
        Of the declared family, or of the design that was declared by itself.
    record : mapping
        Its record.
    baseline : str
    models, tasks : tuple of str
    comparisons : tuple of Comparison
        By task, in the order of the models; verdicts, p and sentences allow for their number.
    overall : Overall or None
        Over tasks; None for one task, or as long as only one has pairs of every model.
    warnings : tuple of str
    """

    key: str
    record: Mapping[str, Any]
    baseline: str
    models: tuple[str, ...]
    tasks: tuple[str, ...]
    comparisons: tuple[Comparison, ...]
    overall: Overall | None
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
        return f"{models} against {self.baseline} on {', '.join(self.tasks)}"

    def of_task(self, task: str) -> list[Comparison]:
        """The comparisons of a task."""
        return [c for c in self.comparisons if c.task == task]

    @property
    def complete(self) -> bool:
        """Whether every declared pair is finished."""
        return all(c.complete for c in self.comparisons)

    @property
    def runs(self) -> tuple[Mapping[str, Any], ...]:
        """The run records, each once, those that failed too."""
        return tuple({run["key"]: run for c in self.comparisons for run in c.runs}.values())

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict; of several how many there are of each kind, then what was decided."""
        if self.is_pair:
            return (self.comparisons[0].sentence,)
        counts: dict[str, int] = {}
        for c in self.comparisons:
            counts[c.verdict] = counts.get(c.verdict, 0) + 1
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        decided = ("better", "worse", "practically equal")
        return (
            f"{self.title}: {said}",
            *(c.sentence for c in self.comparisons if c.verdict in decided),
        )


def conclusions(records: Iterable[Mapping[str, Any]]) -> list[Conclusion]:
    """All conclusions of a journal, of each question the newest declaration, oldest first.

    A declaration of which no run was ever recorded (an option that does not exist, say) is none.

    Parameters
    ----------
    records : iterable of mapping
        Of any kind.
    """
    everything = list(records)
    order = Order(everything)
    begun = {r["key"] for r in everything if r["kind"] == "run"}
    newest: dict[str, Mapping[str, Any]] = {}
    for record in order.oldest_first(r for r in everything if r["kind"] in ("design", "family")):
        if begun & run_keys(record):
            question = str(record.get("question") or record["key"])
            newest.pop(question, None)
            newest[question] = record
    return [conclude(record, everything, order) for record in newest.values()]


def conclude(
    record: Mapping[str, Any], records: Sequence[Mapping[str, Any]], order: Order | None = None
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
    """
    order = order or Order(records)
    judged = [compare(design, records, order) for design in designs([record])]
    if len(judged) > 1:
        judged = _adjusted(judged)
    together = overall(judged)
    return Conclusion(
        key=record["key"],
        record=record,
        baseline=judged[0].second,
        models=tuple(dict.fromkeys(c.first for c in judged)),
        tasks=tuple(dict.fromkeys(c.task for c in judged)),
        comparisons=tuple(judged),
        overall=together,
        warnings=(
            *_common(judged),
            *(together.warnings if together is not None else ()),
            *(left_out(record, records, order) if record["kind"] == "family" else ()),
        ),
    )


def _adjusted(alone: Sequence[Comparison]) -> list[Comparison]:
    """Holm over all declared comparisons; one that has no p-value counts with 1.

    Claims of a difference and claims of equality are two kinds, each adjusted by itself.
    """
    p_values = holm(
        [
            1.0 if c.difference is None or c.verdict == "unfinished" else judged_p(c.difference)
            for c in alone
        ]
    )
    equal = holm([1.0 if c.equivalence_p is None else c.equivalence_p for c in alone])
    out = []
    for c, p, equal_p in zip(alone, p_values, equal, strict=True):
        of_equality = None if c.equivalence_p is None else equal_p
        verdict = c.verdict
        if c.difference is not None and verdict != "unfinished":
            verdict = judge(c.difference, c.higher_is_better, of_equality, p)
        said = sentence(c.design, c.difference, verdict, c.units, p, len(alone))
        out.append(
            replace(
                c,
                verdict=verdict,
                sentence=said,
                together=len(alone),
                adjusted_p=p,
                adjusted_equivalence_p=of_equality,
            )
        )
    return out


def _common(judged: Sequence[Comparison]) -> tuple[str, ...]:
    """Warnings of all comparisons: once for a task where all of its comparisons have them."""
    places: dict[str, list[Comparison]] = {}
    for c in judged:
        for warning in c.warnings:
            places.setdefault(warning, []).append(c)
    sizes: dict[str, int] = {}
    for c in judged:
        sizes[c.task] = sizes.get(c.task, 0) + 1
    out: list[str] = []
    alone: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for warning, where in places.items():
        of_task: dict[str, list[Comparison]] = {}
        for c in where:
            of_task.setdefault(c.task, []).append(c)
        whole = [task for task, some in of_task.items() if len(some) == sizes[task]]
        if len(whole) == len(sizes):
            out.append(warning)
            continue
        if whole:
            out.append(f"{', '.join(whole)}: {warning}")
        head, _, body = warning.partition(": ")
        for task, some in of_task.items():
            if task not in whole:
                alone.setdefault((task, head), []).extend((c.first, body) for c in some)
    for (task, head), found in alone.items():
        bodies = dict.fromkeys(body for _, body in found)
        if len(bodies) == 1:  # of one, or the same of several
            names = ", ".join(name for name, _ in found)
            body = next(iter(bodies))
            out.append(f"{names} on {task}: {head}{': ' if body else ''}{body}")
        else:
            out.append(f"{task}: {head}: {_joined(list(bodies))}")
    return tuple(out)


def _joined(bodies: Sequence[str]) -> str:
    """Texts behind each other, what all of them end with said once."""
    backwards = zip(*(reversed(body) for body in bodies), strict=False)
    alike = takewhile(lambda letters: len(set(letters)) == 1, backwards)
    ending = "".join(letters[0] for letters in alike)[::-1]
    cuts = [i for i in (ending.find(", "), ending.find("; ")) if i >= 0]
    shared = ending[min(cuts) :] if cuts else ""
    return "; ".join(body.removesuffix(shared) for body in bodies) + shared
