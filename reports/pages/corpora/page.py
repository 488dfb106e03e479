"""What ``corpora.ipynb`` calls: every model that was trained, over corpora, on one device."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cached_property, partial

from harness.experiments import tables as in_words
from harness.experiments.tables import SEEDS_NEEDED
from harness.profile import load_profile
from harness.stats import Ties
from reports.core.against import Against, against, as_declared, beyond_none, judged, tied
from reports.core.forest import forest, ties_shown
from reports.core.page import DevicePage, Output, Shown, remark, says, together, warns
from reports.core.style import mechanism_of
from reports.core.tables import Best
from reports.core.trained import ModelRuns, TaskRuns, tasks_by_recipe
from reports.core.words import file_name
from reports.pages.corpora import causes, edges, figures, patience, printed, tables, tuning
from reports.pages.corpora.figures import USUAL, alpha_of, k_of, layers_of, of_scales, scale_of

MIRRORED = "mirrored_summation"
MISSING = {
    "variants": "No variant of a mechanism was trained here: attnbench compare "
    "'mtsa[source2token=false]' mtsa --task trec --seeds 5 trains one of Table 3's ablations.",
    "ties": "No three models were trained alike on two corpora or more.",
    "mirrored": "Mirrored summation was trained at fewer than two K: attnbench compare mtsa "
    "multi_head --task 'mirrored_summation[k=10]' --seeds 5 is one of them.",
    "single": "No Multi-Scale Transformer of one scale was trained beside one of several: "
    "attnbench compare 'multi_scale_transformer[candidates=3;]' multi_scale_transformer "
    "--task trec.",
    "alpha": "No Multi-Scale Transformer was trained at two alphas: attnbench compare "
    "'multi_scale_transformer[alpha=0.5]' 'multi_scale_transformer[alpha=-0.5]' --task trec.",
}


class Corpora(DevicePage):
    """Accuracies over corpora; every method shows one piece of the page."""

    kinds = ("run",)
    none = (
        "Nothing was trained yet: attnbench sweep, or attnbench compare --all multi_head, trains "
        "over corpora."
    )

    @property
    def empty(self) -> bool:
        """Whether no run is finished."""
        return not self.tasks

    @cached_property
    def recipes(self) -> list[list[TaskRuns]]:
        """Everything that was trained: of each task the recipe that most mechanisms have first."""
        return tasks_by_recipe(self.device.records)

    @cached_property
    def tasks(self) -> list[TaskRuns]:
        """By the recipe that most mechanisms have; of equals the common one."""
        return [recipes[0] for recipes in self.recipes]

    @cached_property
    def corpora(self) -> list[TaskRuns]:
        """Without the made-up task, which has a section of its own."""
        return [task for task in self.tasks if not task.name.startswith(MIRRORED)]

    @cached_property
    def scaled(self) -> list[TaskRuns]:
        """By corpus the recipe that most Multi-Scale Transformers with scales of their own have.

        Table 6 has a recipe of its own: five heads, as many as it has scales.
        """

        def count(task: TaskRuns) -> int:
            return sum(of_scales(m.model) for m in task.models)

        most = [max(recipes, key=count) for recipes in self.recipes]
        return [task for task in most if count(task) and not task.name.startswith(MIRRORED)]

    @cached_property
    def printed(self) -> list[printed.Beside]:
        """What papers print beside what was reached here, by whatever recipe."""
        return printed.beside(self.recipes, self.device.conclusions)

    @cached_property
    def baseline(self) -> str:
        """Mechanism that all others are compared with."""
        return mechanism_of(load_profile("quick", self.device.kind).baseline)

    @cached_property
    def differences(self) -> list[Against]:
        """Every model in its own configuration against the baseline, judged together."""
        return self._judged(
            (one, base)
            for task in self.corpora
            for base in [task.find(self.baseline)]
            for one in task.models
            if not one.variant and one is not base
        )

    @cached_property
    def margins(self) -> dict[str, float]:
        """By task the margin that a comparison declared: smaller differences do not matter."""
        declared = [c for family in self.device.conclusions for c in family.comparisons]
        return {c.task: c.margin for c in declared if c.margin is not None}

    @property
    def tied(self) -> tuple[list[str], Ties | None]:
        """The corpora on which models are ranked, and what can't be told apart over them."""
        return tied(self.corpora, self.baseline)

    @property
    def _others(self) -> int:
        """Runs by other recipes than those of `tasks`."""
        return sum(task.others for task in self.tasks)

    def about(self) -> Shown:
        """Which records these are."""
        others = self._others
        left = (
            f" Runs by other recipes that are not shown beside these: {others}." if others else ""
        )
        made = self.device.made("Trained", *self.kinds)
        return together(says([f"{self.source.says} {made}{left}"]), warns(self._lost()))

    def table(self) -> Shown:
        """Means and deviations, as in MTSA's Table 5."""
        if not self.corpora:
            return remark("No corpus was trained on here.")
        best = self._best()
        models = sorted({m.model for task in self.corpora for m in task.models if not m.variant})
        rows = []
        for model in models:
            row = {"model": model}
            for task in self.corpora:
                one = task.find(model)
                text = tables.mean_cell(one, self.device.conclusions) if one else ""
                shown = Best(text) if one and one is best.get(task.name) else text
                row[tables.head(task, task.trained)] = shown
            rows.append(row)
        family = f", Holm over the {len(self.corpora)} tasks" if len(self.corpora) > 1 else ""
        others = f"{self._others} runs by others: those of comparisons stand in what was declared"
        others = f" ({others})" if self._others else ""
        return together(
            self.place.table("table", tables.numbers(self.corpora, self.device.conclusions), rows),
            remark(
                f"Of each task by the recipe that most models have{others}. "
                "Mean over seeds or folds, standard deviation in parentheses; unseen: the mean "
                "without test examples that stand in the training set, where there are some and "
                "it is known. Bold, exploratory: the highest mean, where its difference "
                f"to the runner-up is significant (paired{family}) and counted, each model by its "
                "own recipe. Which seeds and folds: the CSV."
            ),
            says([f"On {t.name} {whole}." for t in self.corpora for whole in t.selecting]),
        )

    def differences_to_baseline(self) -> Shown:
        """A forest plot per task, then the numbers."""
        if not self.differences:
            return remark(
                f"No model shares seeds with {self.baseline} on any corpus: attnbench compare "
                f"--all {self.baseline} trains them so."
            )
        return together(
            says([tables.counted(self.differences, self.baseline)], main=True),
            says(beyond_none(self.differences)),
            self._by_task("differences", self.differences),
        )

    def ties(self) -> Shown:
        """Which models can't be told apart over corpora."""
        tasks, found = self.tied
        if found is None:
            return remark(MISSING["ties"])
        said = [f"Ranked on {', '.join(tasks)}", *in_words.tied(found, "corpora")]
        return ties_shown(self.place, "ties", found, "over corpora", "corpora", said)

    def beside(self) -> Shown:
        """Printed accuracies beside measured ones, by every recipe; never mixed."""
        return beside([self], self.place)

    def tried(self) -> Shown:
        """Recipes that were tried for the common one."""
        found, left = tuning.tuned(self.source, self.device.key)
        warnings = warns([*left, *edges.of_tuning(found)])
        return together(warnings, tuning.section(found, self.place))

    def ablations(self) -> Shown:
        """Variants of a mechanism against its own configuration."""
        found = self._judged(
            (one, task.find(one.mechanism))
            for task in self.corpora
            for one in task.models
            if one.variant
        )
        return self._by_task("ablations", found) if found else remark(MISSING["variants"])

    def mirrored(self) -> Shown:
        """Error over K, relative to the target's variance."""
        found = [(k_of(t.name), t) for t in self.tasks if t.name.startswith(MIRRORED)]
        lines = figures.by_setting(
            [(k, m) for k, task in found if k is not None for m in task.models], "relative_mse"
        )
        if not any(len(points) > 1 for points in lines.values()):
            return remark(MISSING["mirrored"])
        figure = figures.against_setting(
            lines,
            "K: how many terms are summed",
            "mean squared error / variance of the target",
            "Mirrored summation",
            "1 is a constant predictor; bars: 95 % t-intervals over seeds",
            level=1.0,
        )
        best = {name: min(point.y for point, _ in points) for name, points in lines.items()}
        said = ", ".join(f"{name} {mean:.3g}" for name, mean in best.items())
        caption = f"Test error over the variance of the target, at its best K: {said}."
        return self.place.figure("mirrored", figure, caption)

    def scales(self) -> Shown:
        """Heads per layer and scale as alpha decides, and what alpha does to accuracy."""
        pieces = [self._by_alpha(), self._single_scales()]
        if not self.scaled:
            return together(*pieces)
        how = self.place.figure(
            "heads",
            figures.heads,
            "Heads of each layer by scale (equations 11 and 12, ten heads, three layers): "
            "positive alphas give lower layers the small scales, negative ones the large.",
        )
        return together(how, *pieces)

    def _by_alpha(self) -> Shown:
        pieces = []
        for task in self.scaled:
            own = task.models[0]
            lines = figures.by_setting(
                [(a, m) for m in task.models if (a := alpha_of(m.model)) is not None],
                own.metric,
            )
            if any(len(points) > 1 for points in lines.values()):
                draw = partial(
                    figures.against_setting,
                    lines,
                    "alpha",
                    f"test {own.unit.named(own.metric)}",
                    f"{task.name}: alpha",
                    "bars: 95 % t-intervals over seeds",
                )
                heads = own.runs[0].get("recipe", {}).get("heads", "?")
                caption = (
                    f"{task.name}: {own.metric} by alpha, {heads} heads, with 95 % "
                    "t-intervals over seeds."
                )
                pieces.append(self.place.figure(f"alpha-{file_name(task.name)}", draw, caption))
        return together(*pieces, grid=True) if pieces else remark(MISSING["alpha"])

    def _single_scales(self) -> Shown:
        """Heads of one scale against heads of several, in as many layers (Table 6, F-I and B)."""
        pairs: list[tuple[ModelRuns, ModelRuns | None]] = []
        for task in self.scaled:
            several = {layers_of(m.model): m for m in task.models if alpha_of(m.model) == USUAL}
            single = [m for m in task.models if scale_of(m.model)]
            pairs += [(one, several.get(layers_of(one.model))) for one in single]
        found = self._judged(pairs)
        return self._by_task("single", found) if found else remark(MISSING["single"])

    def _best(self) -> dict[str, ModelRuns]:
        """By task the best model, where it is better than the runner-up, trained alike."""
        found = []
        for task in self.corpora:
            own = [m for m in task.models if not m.variant]
            sign = -1 if own and own[0].higher_is_better else 1
            ranked = sorted(own, key=lambda m: sign * m.mean)
            if len(ranked) > 1 and (one := against(ranked[0], ranked[1])):
                found.append(one)
        # Ranks are by all runs of each, verdicts by those that are paired: a first may be worse.
        return {one.model.task: one.model for one in judged(found) if one.verdict == "better"}

    def _judged(self, pairs: Iterable[tuple[ModelRuns, ModelRuns | None]]) -> list[Against]:
        """Where there is a second model that shares replicates with the first: both compared."""
        found = [row for one, other in pairs if other and (row := against(one, other))]
        return as_declared(found, self.device.conclusions)

    def _by_task(self, name: str, rows: Sequence[Against]) -> Shown:
        """A forest plot per task, then the numbers."""
        pieces, left = [], sum(one.declared is None for one in rows)
        rest = f"; all else is exploratory, judged together by {_holm(left)}" if left else ""
        rest += ", and over replicates alone, not over test examples" * bool(left)
        for task in self.corpora:
            mine = [one for one in rows if one.model.task == task.name]
            if mine:
                pieces.append(self._forest(f"{name}-{file_name(task.name)}", task.name, mine))
        return together(
            together(*pieces, grid=True),
            self.place.table(name, *tables.differences(rows, self.margins), (0, 4, 7)),
            remark(
                "What was declared has the verdict of its own family, by Holm over that, and no "
                f"other{rest}. Accuracies in points. Detectable: a true difference that is found "
                f"with 80 % power as one of so many; {SEEDS_NEEDED}"
            ),
        )

    def _forest(self, name: str, task: str, found: Sequence[Against]) -> Shown:
        other, unit = found[0].other.model, found[0].model.unit
        lines = [figures.line_of(one) for one in found]
        of = unit.of_differences.strip() or found[0].model.metric
        margin = self.margins.get(task)
        band = "; band: the declared margin" if margin is not None else ""
        better = "right" if found[0].model.higher_is_better else "left"
        draw = partial(
            forest,
            lines,
            f"{task}: difference to {other}",
            f"{better} of zero: better; bars: 95 % t-intervals; grey: not shown after Holm, or not "
            f"counted{band}" + printed.LEGEND * any(line.printed == line.printed for line in lines),
            f"{found[0].model.metric} minus that of {other} ({of})",
            None if margin is None else unit.scale * margin,
        )
        caption = f"{task}, difference to {other}: {tables.apart(found)}."
        return self.place.figure(name, draw, caption)

    def _lost(self) -> list[str]:
        return [
            f"{m.model} on {task.name}: {len(m.failed)} runs never finished "
            f"({m.failed[0].get('status')}: {m.failed[0].get('detail') or 'no detail'})"
            for task in self.tasks
            for m in task.models
            if m.failed
        ]


def beside(pages: Sequence[Corpora], place: Output) -> Shown:
    """What papers print beside what was reached on any of the pages' devices, task by task."""
    found, machines = printed_on(pages), [page.recipes for page in pages]
    if not found:
        return remark("Nothing that a paper prints was trained here.")
    return together(
        says([printed.gaps(found)]),
        place.figure("printed", partial(printed.figure, found), printed.CAPTION),
        place.table("printed", *printed.table(found), (0, 1, 2, 8, 9)),
        remark(
            "Gap: here less printed, in points where it is an accuracy. Known to differ: here / "
            "there, by the records and by what the paper or its program says; heads, batch and "
            "optimiser as in the recipe called paper. By the recipes paper and released models "
            "differ from each other as the papers' do, but for dropout, which was tuned for each "
            "model there and is printed of MTSA alone: here all have its. Where the test set chose "
            "the epoch, as in the released programs, the same runs by dev's epoch stand behind the "
            "gap: what is lost is no merit of a model. MTSA says of its numbers on TREC that they "
            "are of a dev set: in its program that is the test set. Unseen: the mean without test "
            "examples that stand in the training set, where there are some and it is known."
        ),
        causes.section(machines, found, pages[0].source.conclusions, place),
        patience.section(machines, place),
    )


def printed_on(pages: Sequence[Corpora]) -> list[printed.Beside]:
    """What papers print beside what was reached, by task and model; what gave the same once."""
    found = [
        replace(one, where=page.device.made_on(one.model.runs) if len(pages) > 1 else "")
        for page in pages
        for one in page.printed
    ]
    return sorted(printed.told_once(found), key=lambda one: (one.of.name, one.model.model))


def _holm(count: int) -> str:
    return f"Holm over {count} comparison{'s' * (count > 1)}"
