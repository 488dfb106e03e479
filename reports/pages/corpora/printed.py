"""What papers print for a model beside what it reaches here, and what is known to differ."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from matplotlib.figure import Figure

from harness.experiments.allowed import WITHOUT_KEY, one_word_told, one_word_without_key
from harness.experiments.conclusion import Conclusion
from harness.experiments.replicates import BEST_ON_TEST
from harness.registry import builtins
from harness.train.task import known_tasks, tasks
from reports.core.forest import Line, Panel, forests
from reports.core.printed_values import PrintedAccuracy, printed_accuracy, row_of
from reports.core.recipes import whole_words
from reports.core.tables import Saved
from reports.core.trained import ModelRuns, TaskRuns, mean_text
from reports.pages.corpora.tables import head, unseen

LEGEND = "; hollow: printed"
BY_TEST = sorted(
    name
    for name, task in tasks().items()
    if any(recipe.usual.choose == "best-on-test" for recipe in task.recipes.values())
)
CAPTION = (
    "What models reach on the test sets, with 95 % t-intervals, and what papers print for them. "
    f"By the recipes paper and released it is the {BEST_ON_TEST} where the released programs do "
    f"so: on {', '.join(BY_TEST)}."
)
COMPONENTS = re.compile(r"(\d+)d(?![a-z0-9])")
"""In the name of a table of word vectors: ``top10k_100d_int8``."""
TOKENS = re.compile(r"\d+B(?![a-z0-9])")
"""Of what text they are, in such a name: ``sick_840B_300d``."""
BOTH = "concat"
"""Readout of models that give two vectors side by side: their own width is half of the recipe's."""
RELEASED = "_released"
"""Behind the name of a form that is the released program's."""
BY_DEV = "by dev's epoch"
"""What is reached where dev chooses the epoch, beside the best over time on the test set."""
HOW = {"dev": "dev", "best-on-test": "the test set"}
CALLED = {"choose": "epoch by", "tokens": "vectors of GloVe"}
"""Names of what differs that don't say it."""
LESS: Mapping[str, str] = {"sst5_phrases": "sst5"}
"""Tasks with the dev and test examples of another, and more training examples than that."""


@dataclass(frozen=True)
class Beside:
    """A model by one recipe, what was trained on its task by that, and what a paper prints."""

    of: TaskRuns
    model: ModelRuns
    printed: PrintedAccuracy
    unseen: float | None = None  # the mean without test examples that were trained on
    where: str = ""  # the machine, where several are shown together

    @property
    def gap(self) -> float:
        """`PrintedAccuracy.gap` of what is reached here."""
        return self.printed.gap(self.model.mean, self.model.unit)

    @property
    def _there(self) -> dict[str, Any]:
        """How the printed model was trained, by the paper; what that leaves open, by the task's
        recipe of the paper's name.

        Where a paper chooses the epoch on the test set nothing of the training set was held out.
        """
        found = {name: value for name, value in self.printed.setup.items() if value is not None}
        name, of = found.pop("recipe", ""), self.model.task
        names = (of, *(more for more, less in LESS.items() if less == of))
        named = (task.recipes.get(name) for one in names for task in known_tasks(one))
        recipe = next((one for one in named if one is not None), None)
        if recipe is not None:
            found = _trained(vars(recipe.recipe_for(self.model.mechanism))) | found
        examples = self.model.runs[0].get("examples") or {}
        if found.get("choose") == "best-on-test" and {"train", "dev"} <= examples.keys():
            found.setdefault("examples", examples["train"] + examples["dev"])
        return found

    @property
    def known(self) -> dict[str, tuple[Any, Any]]:
        """What moves the level: here and there, where records and paper tell both, not alike."""
        run, there = self.model.runs[0], self._there
        recipe = run.get("recipe") or {}
        vectors = COMPONENTS.search(str(run.get("vectors")))
        tokens = TOKENS.search(str(run.get("vectors")))
        steps = self.model.steps
        width, mechanism = recipe.get("width"), builtins().get(self.model.mechanism)
        if width and mechanism is not None and mechanism.options.get("readout") == BOTH:
            width //= 2
        takes_heads = mechanism is not None and mechanism.takes_heads
        layers = mechanism.options.get("layers") if mechanism is not None else None
        here = {
            "vectors": int(vectors[1]) if vectors else recipe.get("word_width"),
            "tokens": tokens and tokens[0],
            "width": width,
            "layers": layers,  # of a form of its own: a variant is not asked
            "steps": None if steps is None else round(steps),
            "examples": (run.get("examples") or {}).get("train"),
            "choose": recipe.get("choose"),
            **_trained(recipe),
        }
        here["heads"] = here["heads"] if takes_heads else None
        both = {name: (mine, there.get(name)) for name, mine in here.items()}
        return {
            name: (mine, other)
            for name, (mine, other) in both.items()
            if None not in (mine, other) and not _alike(name, mine, other)
        }

    @property
    def keyless(self) -> float | None:
        """Share of the test texts of one word, where the model's masks leave these no key."""
        return one_word_without_key(self.model.model, self.model.runs)

    @property
    def known_text(self) -> str:
        """``vectors 100-d / 300-d; steps 1,694 / 80,000``: here and there."""
        said = []
        for name, ends in self.known.items():
            unit = "-d" if name == "vectors" else ""
            here, there = (
                HOW.get(end, end) if isinstance(end, str) else f"{end:,}{unit}" for end in ends
            )
            said.append(f"{CALLED.get(name, name)} {here} / {there}")
        return "; ".join(filter(None, [one_word_told(self.model.model, self.model.runs), *said]))


def _trained(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What of a recipe is shown where a paper's is another; None for what a record has not."""
    kept = {name: recipe.get(name) for name in ("heads", "batch")}
    rate = recipe.get("rate")
    found = None if rate is None else f"{recipe.get('optimiser', 'adamw')} {rate:g}"
    return {**kept, "optimiser": found}


def _alike(name: str, here: Any, there: Any) -> bool:
    """Whether both are the same; steps are whole epochs here, so they are within one in fifty."""
    if name == "optimiser" and " " not in there:  # of which no rate is printed
        here = here.partition(" ")[0]
    return bool(abs(here - there) <= there / 50 if name == "steps" else here == there)


def beside(
    tasks: Iterable[Sequence[TaskRuns]], conclusions: Sequence[Conclusion] = ()
) -> list[Beside]:
    """Every model in its own configuration that a paper prints, by every recipe of its task.

    Without what was trained by cut word vectors: it asks for a cause.
    """
    return [
        Beside(of, one, printed, unseen(one, conclusions))
        for recipes in tasks
        for of in recipes
        for one in of.models
        if not one.variant
        and whole_words(one.runs[0])
        and (printed := printed_accuracy(of.name, one.metric, one.mechanism)) is not None
    ]


def told_once(found: Iterable[Beside]) -> list[Beside]:
    """Without those that repeat some replicates of another and gave the same: it names both places.

    The same to nine digits.
    """
    kept: list[tuple[Beside, dict[str, None]]] = []
    for one in sorted(found, key=lambda b: -len(b.model.values)):
        whole = (places for other, places in kept if _within(one.model, other.model))
        if (places := next(whole, None)) is None:
            kept.append((one, {one.where: None}))
        else:
            places[one.where] = None
    return [replace(one, where="; again ".join(places)) for one, places in kept]


def _within(one: ModelRuns, other: ModelRuns) -> bool:
    """Whether all replicates of a model stand among another's of its task and recipe."""
    if (one.task, one.model, one.recipe) != (other.task, other.model, other.recipe):
        return False
    there = other.replicates
    return all(math.isclose(v, there.get(r, math.nan)) for r, v in one.replicates.items())


def difference(model: ModelRuns, other: ModelRuns) -> float:
    """What one paper prints for a model less what it prints for the other; nan if none does."""
    first, second = (printed_accuracy(m.task, m.metric, m.mechanism) for m in (model, other))
    if first is None or second is None or first.place != second.place or model.variant:
        return math.nan
    return first.summary.mean - second.summary.mean


def _label(one: Beside) -> tuple[object, ...]:
    """What tells a row from others; runs by older code, of the same recipe, have the same."""
    return one.model.task, one.model.model, one.model.recipe, one.model.best_on_test, one.where


def table(found: Sequence[Beside]) -> Saved:
    """Numbers, and texts."""
    rows, flat = [], []
    alike = Counter(_label(b) for b in found)
    for b in found:
        one, unit, by_dev = b.model, b.model.unit, b.model.by_dev
        day = [f"code of {max(str(r.get('at')) for r in one.runs)[:10]}"] * (alike[_label(b)] > 1)
        mean, low, high = (unit.scale * value for value in one.interval)
        rows.append(
            {
                "": f"{head(b.of)}: {one.model}",
                "recipe": ", ".join([one.recipe, *[BEST_ON_TEST] * one.best_on_test]),
                "paper": f"{b.printed.place}{b.printed.note}",
                "printed": b.printed.text,
                "here [95 %]": mean_text(unit, one.interval),
                "unseen": "" if b.unseen is None else unit.number(b.unseen),
                "gap": f"{b.gap:+.{b.printed.digits}f}",
                BY_DEV: "" if by_dev is None else unit.number(by_dev),
                "over": ", ".join([one.counted, *[b.where] * bool(b.where), *day]),
                "known to differ": b.known_text or "the paper does not tell",
            }
        )
        flat.append(
            {
                "task": one.task,
                "model": one.model,
                "recipe": one.recipe,
                "paper": b.printed.place,
                "printed_mean": b.printed.summary.mean,
                "printed_sd": b.printed.summary.sd,
                "printed_replicates": b.printed.summary.count,
                "measured_mean": mean,
                "measured_low": low,
                "measured_high": high,
                "measured_replicates": len(one.values),
                "unseen": None if b.unseen is None else unit.scale * b.unseen,
                "gap": b.gap,
                "by_dev": None if by_dev is None else unit.scale * by_dev,
                **({} if b.keyless is None else {"texts_without_key": b.keyless}),
                **{f"{name}_here": here for name, (here, _) in b.known.items()},
                **{f"{name}_there": there for name, (_, there) in b.known.items()},
            }
        )
    return flat, rows


def _most_first(found: Sequence[Beside]) -> list[Beside]:
    """In their order, but of several of one mechanism, task and recipe that of most replicates
    first; of equals the first, which most models were trained like.
    """

    def of(one: Beside) -> tuple[str, str, str]:
        return one.model.task, one.model.mechanism, one.model.recipe

    place: dict[tuple[str, str, str], int] = {}
    for one in found:
        place.setdefault(of(one), len(place))
    return sorted(found, key=lambda one: (place[of(one)], -len(one.model.values)))


def gaps(found: Sequence[Beside]) -> str:
    """By task and recipe the mean gap over what is printed, each number once.

    Of several forms of a model by that of most replicates, then by the released program's.
    Without those that `Beside.keyless` tells: of these the gap is that of a form which no paper
    printed, as the programs have a gate.
    """
    by: dict[tuple[str, str], dict[str, Beside]] = {}
    left: dict[str, None] = {}

    def first(one: Beside) -> tuple[int, bool]:
        return -len(one.model.values), not one.model.mechanism.endswith(RELEASED)

    for one in sorted(_most_first(found), key=first):
        of = (one.model.task, one.model.recipe)
        if one.keyless is None:
            by.setdefault(of, {}).setdefault(row_of(one.model.mechanism), one)
        else:
            left[f"{one.model.model} on {of[0]} ({of[1]})"] = None
    said = []
    for (task, recipe), models in sorted(by.items()):
        some = [*models.values()]
        each, digits = [b.gap for b in some], some[0].printed.digits
        mean, unit = statistics.fmean(each), some[0].model.unit.of_differences
        count = f"{len(some)} model{'s' * (len(some) > 1)}"
        if len(some) > 1:  # one above what is printed makes up for another below it
            count += f", {min(each):+.{digits}f} to {max(each):+.{digits}f}"
        said.append(f"{task} {mean:+.{digits}f}{unit} ({recipe}; {count})")
    forms = "of several forms of one by the most often trained, then by the program's"
    whole = f"Here less printed, mean over the models, {forms}: {', '.join(said)}." if said else ""
    without = (
        f"Left out, as texts of one word have {WITHOUT_KEY}: {', '.join(left)}." if left else ""
    )
    return f"{whole} {without}".strip()


def figure(found: Sequence[Beside]) -> Figure:
    """A panel per corpus, a row per model and recipe: reached here, and hollow what is printed."""
    panels: dict[str, dict[str, Line]] = {}
    xlabels: dict[str, str] = {}
    for b in _most_first(found):
        one = b.model
        mean, low, high = (one.unit.scale * value for value in one.interval)
        row = f"{one.mechanism}, {one.recipe}".removesuffix(", common").replace(", common, ", ", ")
        line = Line(
            f"{one.task}: {row}",
            one.mechanism,
            mean,
            low,
            high,
            True,
            printed=b.printed.summary.mean,
        )
        panels.setdefault(one.task, {}).setdefault(row, line)
        xlabels[one.task] = one.unit.named(one.metric)
    drawn = [Panel(task, f"test {xlabels[task]}", lines) for task, lines in panels.items()]
    return forests(drawn, "filled: here, 95 % t-interval; hollow: printed", centre=None)
