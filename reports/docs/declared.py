"""What was declared: lists of experiments with their warnings, families, designs without a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from operator import itemgetter
from pathlib import Path

from harness.experiments.allowed import one_word_told
from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.examples import hanging
from harness.experiments.model import form_of
from harness.experiments.over_tasks import (
    OVER_TASKS,
    beside_tests,
    counted_tasks,
    overall_rows,
)
from harness.experiments.preregistration import design_file
from harness.experiments.replicates import BEST_ON_TEST, EXPLORATORY, LATE, counts_of
from harness.experiments.tables import (
    BAYES,
    SEEDS_NEEDED,
    columns,
    headed,
    task_rows,
    tied,
    tied_on,
)
from harness.experiments.warnings import DECIDED, without_order
from harness.json_file import read_toml
from harness.records.schema import run_keys
from harness.train.task import gathered
from reports.claims.declared import precedence_of, says_otherwise
from reports.claims.verdict import Precedence
from reports.core.against import asking, better_forms, better_than, is_form, pair_of
from reports.core.page import Shown, remark, says, table, together
from reports.core.recipes import trained_with, whole_words
from reports.core.source import Source
from reports.core.tables import Cell, under
from reports.core.trained import reads_files
from reports.docs.plain import PlainOutput, text_of
from reports.pages.experiments import UNSEEN, Experiments
from reports.pages.size.accuracy import question, verdict_cell

TITLES = {
    False: "What was declared before it was run",
    True: f"What was {LATE}: {EXPLORATORY}",
}
CENTRAL, BASELINE = ("mtsa_released", "mtsa", "mtsa_nmt"), "multi_head"
"""Forms of MTSA, in the order of the rows, and what each is compared with."""
NOTHING = "none, which attends to nothing"
DECIDES = (
    "mtsa_released is the released program's form, mtsa the text's, mtsa_nmt that of its "
    "Transformer. Of several comparisons of the same two on a corpus one decides, by the first of "
    "these rules that tells them apart: trained equally and not ended at a best last epoch; "
    "declared before its runs; declared by a design file; by today's common recipe, whatever its "
    "patience; in the largest family. "
    "Beside it stand other counted comparisons of a design file with another verdict; beside an "
    "exploratory one all that a design file declared, counted or not. Sst5_phrases is sst5 with "
    "its phrases for training, and one test set. Intervals are of 95 % and allow for one "
    "comparison, verdicts for all of its family; the words of verdicts: "
    "[compare.md](../compare.md#what-is-printed-in-this-order)."
)
HOURS = (
    "Hours: of all runs of an experiment, one after the other, and how many its design file "
    "allows; experiments share runs. Replicates: over how many its comparisons are. Seconds and "
    "memory of training, and seconds of the test split, are medians of runs of which several ran "
    "at a time, some on machines of training alone ([records.md](../records.md)): they say what it "
    "took, and no verdict goes by them; [speed.md](speed.md) measures that."
)

WITHDRAWN = (
    "were withdrawn after their results were known, as they had kept no predictions. No page tells "
    "these results any more; they stand in the repository's history ([records](../records.md"
    "#published-records)), and designs declared since ask for most of them anew. What repeats such "
    "a run is exploratory all the same."
)


def lists(source: Source) -> list[tuple[str, str]]:
    """Title and body of both: declared before its runs, and after some of them."""
    page, found = Experiments(source, PlainOutput()), []
    notes = remark(HOURS), remark(withdrawn(source))
    for exploratory, title in TITLES.items():
        if page.rows(exploratory):
            body = text_of(together(page.table(exploratory), *notes))
            found.append((title, f"{body}\n\n{_beside(page, exploratory)}"))
    return found


def withdrawn(source: Source) -> str:
    """Of how many runs no page tells a result, by machine and task; empty without any."""
    said = []
    for device in source.devices:
        runs = Counter(str(r.get("task")) for r in device.records if r["kind"] == "withdrawn")
        tasks = ", ".join(f"{name} {count}" for name, count in sorted(runs.items()))
        said += [f"{runs.total()} runs of {device.title} ({tasks})"] * bool(runs)
    return f"{'; '.join(said)} {WITHDRAWN}" if said else ""


def central(source: Source) -> tuple[str, str]:
    """Whether MTSA is better than multi-head attention, by task and form of MTSA; and why.

    The answer is of multi-head attention as it is, the why has a row for each of its forms, too.
    """
    asked: dict[tuple[str, int, str], list[tuple[Precedence, Comparison]]] = {}
    for family in source.conclusions:
        for c in family.comparisons:
            mine, other = form_of(c.first), form_of(c.second)
            fits = mine in CENTRAL and is_form(other, BASELINE)
            if fits and c.difference is not None and all(map(whole_words, c.runs)):
                at = c.task, CENTRAL.index(mine), other
                asked.setdefault(at, []).append((precedence_of(family, c, 0), c))
    order = sorted(asked, key=lambda at: (at[0].partition("[")[0], len(at[0]), at))
    best = {at: max(asked[at], key=itemgetter(0)) for at in order}
    files = asking(source.conclusions)
    answers: dict[str, dict[str, str]] = {}
    decided: dict[str, list[str]] = {}
    rows = []
    for at, (rank, c) in best.items():
        better: dict[str, str] = {}
        for _, form in better_forms(c.second, [c.task], source.conclusions):
            better.setdefault(form_of(form.first), _said(form))
        ahead = ", ".join(f"{form} ({said})" for form, said in better.items())
        told, short = _beside_it(rank, c, asked[at])
        weak = [f"a weak baseline here: ahead of it {ahead}"] * bool(better)
        rows.append(_central(c, [*weak, *told, *_untold(c)]))
        if form_of(c.second) != BASELINE:
            continue
        to = {form: one for (task, mine, form), (_, one) in best.items() if (task, mine) == at[:2]}
        others = {
            form: f"{_said(to[form])} against {form}" if form in to else "" for form in better
        }
        forms = ", ".join(said or f"not compared with {form}" for form, said in others.items())
        weak = [f"a weak baseline: {forms}"] * bool(better)
        nothing = _by_nothing(c, source)
        weak += [f"{NOTHING}: {said}" for said in nothing]
        by_test = [BEST_ON_TEST] * (BEST_ON_TEST in trained_with(c.runs))
        flaws = c.flaws * (c.said != c.verdict)
        again = _asked_again(c, files.get(pair_of(c), ()))
        notes = filter(None, [_missing(c), *by_test, *flaws, *weak, *short, *again])
        of_task = answers.setdefault(c.task, {"task": _task(c), **dict.fromkeys(CENTRAL, "")})
        of_task[form_of(c.first)] = Cell.of(
            f"{_said(c)}, {c.unit.told(c.difference)}", notes=tuple(notes)
        )
        if c.verdict in DECIDED and not (c.exploratory or c.flaws):
            caveats = [*["a weak baseline"] * bool(better), *filter(None, others.values())]
            caveats += [f"{NOTHING}, is better too"] * bool(nothing)
            caveats += [*by_test, *_limits(c), *hanging(c.examples), *_unseen_verdict(c)]
            caveats += again * (c.units != "seeds")
            where = c.task + f" ({'; '.join(caveats)})" * bool(caveats)
            decided.setdefault(form_of(c.first), []).append(f"{c.verdict} on {where}")
    counted = "; ".join(
        f"{form} is {', '.join(decided[form])}" for form in CENTRAL if form in decided
    )
    head = f"Of what decides, declared before its runs and counted: {counted or 'nothing'}."
    answer = together(says([head]), table(list(answers.values()), range(4)))
    return text_of(answer), text_of(together(table(rows, (0, 1, 2, 4, 5)), remark(DECIDES)))


def _task(c: Comparison) -> str:
    return f"{c.task} ({c.metric}{'' if c.higher_is_better else ', lower is better'})"


def _beside_it(
    rank: Precedence, c: Comparison, every: Sequence[tuple[Precedence, Comparison]]
) -> tuple[list[str], list[str]]:
    """Beside the comparison that decides: what is left of it, and what design files declared.

    Where it is exploratory all of these that are enough to conclude from, else what is counted and
    says otherwise. At length, and in short.
    """
    told = [*_limits(c), *_unseen(c)]
    short = [*told, *hanging(c.examples)]
    for of_it, one in every:
        enough = of_it.enough and of_it.early and of_it.planned
        if not (says_otherwise(of_it, one, c) or (enough and not rank.early)):
            continue
        file, changed = design_file(one.design), [*_unseen(one), *hanging(one.examples)]
        by, found = ", ".join(trained_with(one.runs)), one.unit.told(one.difference)
        said = "; ".join([one.said, *one.flaws, *changed])
        told.append(f"declared in {file} ({by}): {found}, {said}")
        short.append("; ".join([f"{file}: {one.said}, {found}", *changed]))
    return told, short


def _said(c: Comparison) -> str:
    return f"{EXPLORATORY}: " * c.exploratory + c.said


def _unseen(c: Comparison) -> list[str]:
    """What is said without test examples that stand in the training set, if it is otherwise.

    By its verdict, or by a difference that lies outside the interval with them.
    """
    own = c.examples
    if own is None or own.difference is None or c.difference is None or not own.verdict:
        return []
    moved = not c.difference.low <= own.difference.difference <= c.difference.high
    if own.verdict == c.verdict and not moved:
        return []
    left = f"{c.as_said(own.verdict)}, {c.unit.told(own.difference)}"
    return [f"{UNSEEN} {left}"]


def _unseen_verdict(c: Comparison) -> list[str]:
    """The verdict without such examples, if it is another."""
    if c.examples is None or c.examples.verdict in ("", c.verdict):
        return []
    return [f"{UNSEEN} {c.as_said(c.examples.verdict)}"]


def _untold(c: Comparison) -> list[str]:
    """That nothing is known of it without such examples, where there may be some."""
    known = c.examples is not None and c.examples.verdict
    unknown = reads_files(c.task) and not known
    return [f"{UNSEEN} not told: no predictions"] * unknown


def _limits(c: Comparison) -> list[str]:
    """Where its first model's masks, or both models' errors, leave little to be told apart."""
    keyless = one_word_told(c.first, c.sides[0])
    return [*filter(None, [keyless]), *without_order(c.task, c.sides)]


def _by_nothing(c: Comparison, source: Source) -> list[str]:
    """What no context fusion is to the baseline of a comparison, where both ended better than that.

    Of several comparisons of it that which decides.
    """
    if c.verdict != "better":
        return []
    found = [
        (precedence_of(family, one, 0), one)
        for family, one in better_than(c.second, [c.task], source.conclusions)
        if form_of(one.first) == "none" and one.difference and all(map(whole_words, one.runs))
    ]
    _, best = max(found, key=itemgetter(0), default=(None, None))
    return [] if best is None else [f"{_said(best)}, {best.unit.told(best.difference)}"]


def _asked_again(c: Comparison, files: Collection[str]) -> list[str]:
    """In how many more design files its two models stand against each other on its task."""
    more = len({*files} - {design_file(c.design)})
    same = ", of the same folds" * (c.units != "seeds")
    return [f"asked in {more} more design file{'s' * (more > 1)}{same}"] * bool(more)


def _missing(c: Comparison) -> str:
    """What an undecided comparison could have found."""
    return c.sought.short(c.unit).strip(" ()") if c.sought is not None else ""


def _central(c: Comparison, notes: Sequence[str]) -> dict[str, str]:
    by = [*trained_with(c.runs), *filter(None, [design_file(c.design)])]
    verdict = verdict_cell(c, behind=f" ({missing})" if (missing := _missing(c)) else "")
    return {
        "task": _task(c),
        "form": form_of(c.first),
        "against": form_of(c.second),
        "difference": c.unit.told(c.difference),
        "verdict": Cell.of(str(verdict), notes=(*verdict.notes, *notes)),
        "trained by": ", ".join(by),
        "over": counts_of([(c.replicate, len(c.values))]),
    }


def _beside(page: Experiments, exploratory: bool) -> str:
    """Every experiment's tests, costs and warnings, folded: GitHub unfolds them with a click."""
    folded = "What stands beside each of these, and its warnings"
    lines = ["<details>", f"<summary>{folded}</summary>", "", f"P: {BAYES}.", ""]
    for one in page.rows(exploratory):
        told = "; ".join(filter(None, (one["design file"], one["trained by"], one["device"])))
        lines.append(f"**{_harmless(one['question'])}** ({_harmless(told)})")
        lines += ["", *(f"- {_harmless(text)}" for text in one["beside"])]
        lines += [*(f"- warning: {_harmless(text)}" for text in one["warnings"]), ""]
    return "\n".join([*lines, "</details>"])


def _harmless(text: str) -> str:
    return text.replace("<", "&lt;")


def families(found: Iterable[Conclusion], shown: Sequence[Comparison]) -> Shown:
    """All comparisons of every family of which one stands in no other table.

    Of an exploratory one it is enough that another of the same question does.

    Parameters
    ----------
    shown : sequence of Comparison
        Those of the other tables.
    """
    questions, told = {question(c) for c in shown}, {id(c) for c in shown}
    left = [
        one
        for one in found
        if not one.is_pair
        and any(
            question(c) not in questions or not (c.exploratory or id(c) in told)
            for c in one.comparisons
        )
    ]
    if not left:
        return Shown("")
    how = "p Holm and verdicts allow for all comparisons of a family, intervals for none; "
    return together(*map(_family, left), remark(f"{how}{SEEDS_NEEDED}"))


def _family(one: Conclusion) -> Shown:
    several, pieces = len(one.tasks) > 1, []
    of_columns: dict[tuple[str, ...], list[dict[str, str]]] = {}
    heads: dict[str, list[str]] = {}
    for task in one.tasks:
        some = one.of_task(task)
        heads.setdefault(headed(some), []).append(task)
        cells = task_rows(some)
        for row, c in zip(cells[1:], some, strict=True):
            row[-1] = verdict_cell(c)
        of_task = {"task": task} if several else {}
        of_columns.setdefault(tuple(columns(some)), []).extend(
            of_task | row for row in under(columns(some), cells)
        )
    told = [*filter(None, [design_file(one.record)]), *trained_with(one.runs)]
    said = [f"{', '.join(gathered(tasks))}: {head}" for head, tasks in heads.items()]
    said = [f"{one.title} ({', '.join(told)}). {'; '.join(said)}."]
    for rows in of_columns.values():
        pieces.append(table(rows, (0, len(rows[0]) - 1)))
    for task in one.tasks if one.overall is None else ():
        ties = "; ".join(tied_on(one, task))
        pieces.append(remark(ties and f"{f'{task}, ' * several}{ties}."))
    if one.overall is not None:
        over = under(OVER_TASKS, overall_rows(one.baseline, one.overall))
        pieces.append(remark(f"Over tasks: {counted_tasks(one.overall)}."))
        pieces.append(table(over, (0, len(OVER_TASKS) - 1)))
        found = tied(one.overall.ties, "tasks") if one.overall.ties is not None else []
        beside = [*beside_tests(one), *found]
        pieces.append(remark(f"{'; '.join(beside)}." if beside else ""))
    return together(says(said), *pieces)


def not_run(source: Source, folder: Path) -> str:
    """The designs of a folder that no record is of; sweeps of recipes are no comparisons.

    Without such a folder, outside of a clone, nothing is said.
    """
    run = set()
    for device in source.devices:
        begun = {r["key"] for r in device.records if r["kind"] == "run"}
        for r in device.records:
            if r["kind"] in ("design", "family") and r.get("plan") and begun & run_keys(r):
                run.add(r["plan"]["file"])
    rows = []
    for path in sorted(folder.glob("*.toml")):
        _, found = read_toml(path, "design")
        if "question" in found and path.name not in run:
            against = [f"against {found['baseline']}"] if "baseline" in found else []
            asked = [", ".join(found["models"]), *against, f"on {', '.join(found['tasks'])}"]
            rows.append(
                {
                    "design file": path.name,
                    "question": Cell.of(str(found["question"]), notes=(" ".join(asked),)),
                    "verdict": "not run yet",
                }
            )
    return text_of(table(rows, (0, 1, 2)))
