"""What one difference to a paper's setting is worth: runs that differ in it alone, paired."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

from harness.experiments.conclusion import Conclusion
from harness.train.recipe import without_ceilings
from reports.core.against import Against, against, better_forms
from reports.core.page import Output, Shown, remark, says, together
from reports.core.tables import Saved
from reports.core.trained import ModelRuns, TaskRuns
from reports.pages.corpora.printed import CALLED, COMPONENTS, LESS, Beside
from reports.pages.corpora.tables import NUMBERS, head

CAUSES = {
    "vectors": "vectors {}",
    "width": "width {:,}",
    "patience": "all steps",
    "examples": "{:,} training examples",
}
"""What a gap to a printed value is known to come from, by what its fuller setting is called.

Of patience the fuller one trains the paper's steps whatever the dev curve does: as many epochs of
patience as there are epochs.
"""
FORM = "another form of it ended better"
FAR = 0.02
"""Further below print a gap is to have a cause."""
FAR_TEXT = f"More than {100 * FAR:g} points ({FAR:g} of a correlation)"
ALL = "all"
"""In the place of a patience that trains all steps."""
NONE = (
    "No model was trained twice with but one of these changed: word vectors, width, training "
    "examples, all steps or patience."
)


def setting_of(model: ModelRuns) -> dict[str, Any]:
    """Everything that decides a run but model, task, seed and fold."""
    run = model.runs[0]
    recipe = run.get("recipe") or {}
    found = {**without_ceilings(recipe), "vectors": str(run.get("vectors"))}
    if recipe.get("patience") == recipe.get("epochs"):
        found["patience"] = ALL
    if model.task in {*LESS, *LESS.values()}:
        found["examples"] = (run.get("examples") or {}).get("train") or 0
    return found


def called(name: str, setting: Mapping[str, Any]) -> str:
    """``width 600``, ``patience 40``, ``all steps``."""
    value = setting[name]
    if name == "patience" and value != ALL:
        return f"patience {value}"
    return CAUSES[name].format(value)


def _of_one_cause(first: ModelRuns, second: ModelRuns) -> str | None:
    """The name of what the two were trained with unlike, if it is one of the causes and alone."""
    one, other = setting_of(first), setting_of(second)
    unlike = [name for name in one.keys() | other.keys() if one.get(name) != other.get(name)]
    texts = {str(r["data"]) for m in (first, second) for r in m.runs if r.get("data")}
    if len(unlike) != 1 or unlike[0] not in CAUSES:
        return None
    (cause,) = unlike
    # The digest of data counts the vectors among them.
    return None if cause not in ("vectors", "examples") and len(texts) > 1 else cause


def _fullness(model: ModelRuns) -> tuple[float, int, int, int, float, str]:
    """It is largest for what comes nearest to a paper's setting."""
    setting = setting_of(model)
    patience, vectors = setting["patience"], setting["vectors"]
    components = COMPONENTS.search(vectors)
    steps = math.inf if patience == ALL else patience
    size = int(components[1]) if components else 0
    return steps, setting.get("examples", 0), setting["width"], size, _words(model) or 0, vectors


def _words(model: ModelRuns) -> float | None:
    """Share of the running words that have a vector; None where no record tells."""
    told = model.runs[0].get("coverage") or {}
    return told["covered_running"] / told["running_words"] if told.get("running_words") else None


def causes(tasks: Iterable[Sequence[TaskRuns]]) -> list[tuple[str, TaskRuns, Against]]:
    """Every two settings of one model that differ in one cause, over the replicates of both.

    Returns
    -------
    list of (str, TaskRuns, Against)
        The cause, and the pair with what was trained by the fuller setting first: all steps, more
        examples, the wider, vectors of more components; of as many, those of more words.
    """
    found, corpora = [], dict[str, list[TaskRuns]]()
    for recipes in tasks:
        corpora.setdefault(LESS.get(recipes[0].name, recipes[0].name), []).extend(recipes)
    for every in corpora.values():
        settings = [(of, one) for of in every for one in of.models]
        settings.sort(key=lambda both: _fullness(both[1]), reverse=True)
        for (of, fuller), (_, other) in combinations(settings, 2):
            cause = _of_one_cause(fuller, other) if fuller.model == other.model else None
            if cause is not None and (pair := against(fuller, other)):
                found.append((cause, of, pair))
    return found


def over(machines: Sequence[Iterable[Sequence[TaskRuns]]]) -> list[tuple[str, TaskRuns, Against]]:
    """What each machine shows by itself, and only then what two of them do: `causes`.

    Of what was repeated on a further machine, and gave the same, once.
    """

    def asked(one: tuple[str, TaskRuns, Against]) -> tuple[str, ...]:
        cause, _, pair = one
        both = (called(cause, setting_of(m)) for m in (pair.model, pair.other))
        return pair.model.task, pair.model.model, *both

    found = [one for tasks in machines for one in causes(tasks)]
    told = {asked(one) for one in found}
    everywhere: dict[str, list[TaskRuns]] = {}
    for tasks in machines:
        for recipes in tasks:
            everywhere.setdefault(recipes[0].name, []).extend(recipes)
    across = {(asked(one), one[2].text): one for one in causes(everywhere.values())}
    return found + [one for (of, _), one in across.items() if of not in told]


def apart_of(*both: ModelRuns) -> bool:
    """Whether no machine trained both."""
    one, other = ({r.get("fingerprint") for r in m.runs} for m in both)
    return not one & other


def _told(cause: str, model: ModelRuns) -> str:
    """`called`; of word vectors also how many of the running words have one."""
    said = called(cause, setting_of(model))
    words = _words(model)
    if cause != "vectors" or words is None:
        return said
    return f"{said} ({100 * words:.0f} % of the words)"


def table(found: Sequence[tuple[str, TaskRuns, Against]]) -> Saved:
    """Numbers, and texts."""
    rows, flat = [], []
    for cause, of, pair in found:
        both = (pair.model, pair.other)
        one, other = (_told(cause, m) for m in both)
        apart = apart_of(*both)
        steps = ["unknown" if m.steps is None else f"{m.steps:,.0f}" for m in both]
        rows.append(
            {
                "": f"{head(of)}: {pair.model.model}",
                "recipe": pair.model.recipe,
                "with": one,
                "in place of": other,
                "difference [95 %]": pair.text,
                "p": f"{pair.difference.p:.2g}",
                "over": ", ".join([pair.counted, *["on two machines"] * apart]),
                "steps": " / ".join(steps),
            }
        )
        flat.append(
            {
                "task": pair.model.task,
                "model": pair.model.model,
                "recipe": pair.model.recipe,
                "cause": cause,
                "with": one,
                "in_place_of": other,
                "machines": 1 + apart,
                "steps_with": pair.model.steps,
                "steps_in_place_of": pair.other.steps,
                **{name: getattr(pair.difference, name) for name in NUMBERS},
                "replicates": len(pair.values.rows),
            }
        )
    return flat, rows


def unexplained(
    printed: Sequence[Beside],
    found: Iterable[tuple[str, TaskRuns, Against]],
    every: Sequence[Conclusion] = (),
) -> list[str]:
    """Which models are far below print by a paper's recipe; by others where nothing was trained by
    that, or on as many examples.

    Those without one known difference measured, with what is known to differ, and whether `every`
    conclusion knows another form of the model that ended higher, by whatever recipe; and those that
    stay as far below with all that the fuller settings of what was measured gave.
    """
    nearer = {(one.model.task, one.model.mechanism) for one in printed if _by_paper(one)}
    larger = [one.model for one in printed if one.model.task in LESS]
    nearer |= {(LESS[m.task], m.mechanism) for m in larger}
    of_model: dict[tuple[str, str], list[tuple[str, Against]]] = {}
    for cause, _, pair in found:
        at = pair.model.task, pair.model.model
        of_model.setdefault(at, []).append(("steps" if cause == "patience" else cause, pair))
    unmeasured: dict[str, None] = {}
    remaining: dict[str, None] = {}
    for one in printed:
        m, far = one.model, -FAR * one.model.unit.scale
        asked = one.keyless is None and (_by_paper(one) or (m.task, m.mechanism) not in nearer)
        if not asked or one.gap >= far:
            continue
        said = f"{m.task}, {m.recipe}, {m.model} {one.gap:+.{one.printed.digits}f}"
        tried = of_model.get((m.task, m.model), ())
        measured = [(cause, pair) for cause, pair in tried if cause in one.known]
        if not measured:
            names = [CALLED.get(name, name) for name in one.known]
            names += [FORM] * any(True for _ in better_forms(m.model, [m.task], every))
            unmeasured[f"{said} ({', '.join(names) or 'not known'})"] = None
        elif one.gap + _given(m, [pair for _, pair in measured]) < far:
            names = [CALLED.get(cause, cause) for cause in dict.fromkeys(c for c, _ in measured)]
            remaining[f"{said} ({', '.join(names)})"] = None
    what = (
        f"{FAR_TEXT} below print, by a paper's recipe or nearly where any was trained by that, "
        "while nothing that is known to differ (in parentheses) was measured for that model: "
    )
    still = (
        f"Not explained, since {FAR_TEXT.lower()} below it even with all that the measured "
        "differences (in parentheses) gave: "
    )
    both = ((what, unmeasured), (still, remaining))
    return [f"{text}{'; '.join(some)}." for text, some in both if some]


def _given(m: ModelRuns, pairs: Iterable[Against]) -> float:
    """What fuller settings than its own gave to a model, in the metric's unit; none took any."""
    mine = setting_of(m)
    gains = (
        pair.difference.difference * (1 if m.higher_is_better else -1)
        for pair in pairs
        if setting_of(pair.other) == mine
    )
    return m.unit.scale * sum(max(gain, 0.0) for gain in gains)


def _by_paper(one: Beside) -> bool:
    return one.model.recipe.partition(",")[0] in ("paper", "released")


def section(
    machines: Sequence[Sequence[Sequence[TaskRuns]]],
    printed: Sequence[Beside],
    every: Sequence[Conclusion],
    place: Output,
) -> Shown:
    """The table with what it says, and what has no cause yet."""
    found = over(machines)
    left = says(unexplained(printed, found, every))
    if not found:
        return together(left, remark(NONE))
    return together(
        place.table("causes", *table(found), (0, 1, 2, 3, 6)),
        remark(
            "What one of the known differences is worth: the same model, trained with it and "
            "without, all else alike but the steps that patience left (medians), paired by seed; "
            "vectors differ in their size and in how many of the words have one. Every interval is "
            "by itself."
        ),
        left,
    )
