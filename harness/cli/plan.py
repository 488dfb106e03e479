"""``attnbench plan``: how many seeds a comparison needs."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from rich.console import Console
from rich.table import Table

from harness.cli.output import bare_table, console, say, tell_skipped
from harness.errors import UsageError
from harness.experiments.estimate import Recorded, SeedPlan, recorded_spread
from harness.experiments.model import parse_model, recipes_of
from harness.experiments.replicates import SHARE, Unit, unit_of
from harness.json_file import write_json
from harness.options.readers import Amount
from harness.options.train import PlanOptions
from harness.records import journal
from harness.registry import Registry
from harness.stats import LEAST_REPLICATES, difference_found, sd_of_differences
from harness.train.recipe import changes
from harness.train.task import Task
from harness.train.task import task as find_task

COUNTS = range(3, 31)
SHOWN = (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30)
PLAIN = Unit(1.0, 4)
LEAST_LEVEL = 1e-9
"""Of a comparison; further down the quantiles of t and their powers are not computed any more."""
SUSPICIOUS = 0.1
"""Ten points of accuracy: nobody plans for a difference that shows at a glance."""


def _effect(amount: Amount, metric: str) -> float:
    """A difference of a metric; refused where it is of an accuracy and likely to be in points."""
    effect, text = amount.value, amount.text
    shares = unit_of(metric) is SHARE
    if shares and effect >= 1:
        raise UsageError(f"--effect: given {text}; one point of accuracy is 0.01 or 1%")
    if shares and effect >= SUSPICIOUS and not amount.percent:
        # With --sd the unit is the user's own, and 0.5 is half a point; here it would be fifty.
        raise UsageError(
            f"--effect: given {text}, which is {100 * effect:g} points of accuracy; expected "
            f"{text}% for {text} points, or {100 * effect:g}% if you mean that"
        )
    return effect


def _recorded(options: PlanOptions, task: Task, out: Console) -> Recorded:
    """What the runs of two models on a task show; said on a line or four."""
    assert options.records is not None
    registry, unit = Registry(options.given), unit_of(task.metric)
    first, second = (parse_model(name, registry) for name in options.models)
    names = str(first), str(second)
    wanted = None
    if options.recipe:
        one, other = recipes_of(task, [first, second], options.recipe)
        wanted = one, other
    if not journal.exists(options.records):
        raise UsageError(f"--from: no folder {options.records}; give a journal")
    found = journal.read(options.records)
    tell_skipped(out, found.warnings)
    recorded = recorded_spread(found.records, names, task.name, task.metric, wanted)
    s, r = recorded.spread, recorded.spread.correlation
    lines = [
        f"{first} and {second} on {task.name}, {s.count} paired seeds: sd of "
        f"{recorded.metric} {unit.size(s.sd_first)} and {unit.size(s.sd_second)}",
        f"sd of the differences {unit.size(s.sd.value)}, 95 % interval [{unit.size(s.sd.low)}, "
        f"{unit.size(s.sd.high)}]",
    ]
    if not math.isnan(r.value):
        interval = "" if math.isnan(r.low) else f", 95 % interval [{r.low:.2f}, {r.high:.2f}]"
        lines.append(f"correlation over seeds {r.value:.2f}{interval}")
    if recorded.others:
        used = [
            ", ".join(changes(recipe, task.recipe)) or "the common recipe"
            for recipe in recorded.recipes
        ]
        said = "; ".join(f"{model}: {what}" for model, what in zip(names, used, strict=True))
        lines.append(
            f"these are of {used[0] if len(set(used)) == 1 else said}; {recorded.others} pairs "
            "under other recipes, vectors, code or machines not used (--recipe chooses)"
        )
    for line in lines:
        say(out, line)
    return recorded


def run_plan(options: PlanOptions) -> int:
    """Print the plan; returns the exit code."""
    out, unit, metric, recorded = console(), PLAIN, "", None
    if options.task is not None:
        task = find_task(options.task)
        unit, metric = unit_of(task.metric), task.metric
        recorded = _recorded(options, task, out)
        s = recorded.spread
        # Of independent groups the root mean square of both deviations.
        pooled = math.sqrt((s.sd_first**2 + s.sd_second**2) / 2)
        sd = s.sd.value if options.paired else pooled
    else:
        assert options.sd is not None  # its options were checked
        sd = options.sd.value
        if options.correlation is not None:
            sd = sd_of_differences(sd, options.correlation)
    effect = _effect(options.effect, metric)
    plan = SeedPlan(effect, sd, options.power, options.alpha, options.paired, options.comparisons)
    if plan.level < LEAST_LEVEL:
        raise UsageError(
            f"given --alpha {plan.alpha:g} and --comparisons {plan.comparisons:,}; expected "
            f"{LEAST_LEVEL:g} or more for each comparison, of less no power can be computed"
        )
    _print_plan(out, plan, unit, estimated=recorded is not None)
    uncertain = None
    if recorded is not None and plan.paired:
        ends = recorded.spread.sd.low, recorded.spread.sd.high
        uncertain = [replace(plan, sd=end).needed() for end in ends]
        say(
            out,
            f"the deviation is itself uncertain: between the ends of its 95 % interval it would be "
            f"{uncertain[0]} to {uncertain[1]} seeds",
        )
    out.print(_table(plan, unit))
    write_json(
        options.json_file,
        {
            **asdict(plan),
            "level": plan.level,
            "needed": plan.needed(),
            "needed_alone": plan.needed(plan.alpha),
            "needed_between": uncertain,
            "recorded": None if recorded is None else asdict(recorded),
            "power_by_count": {n: plan.power_with(n) for n in COUNTS},
        },
    )
    return 0


def _print_plan(out: Console, plan: SeedPlan, unit: Unit, estimated: bool) -> None:
    of = "of the paired differences" if plan.paired else "of either model's values"
    needed = plan.needed()
    what = "paired seeds" if plan.paired else "seeds for each model"
    say(
        out,
        f"[bold]{needed} {what}[/] find a difference of {unit.size(plan.effect)} with "
        f"{100 * plan.power:g}% power (sd {unit.size(plan.sd)} {of}, "
        f"two-sided alpha {plan.alpha:g})",
        markup=True,
    )
    lines = []
    if plan.comparisons > 1:
        lines.append(
            f"for {plan.comparisons} comparisons judged together each is planned at alpha / "
            f"{plan.comparisons} = {plan.level:.3g}: enough for Bonferroni, and for Holm whatever "
            f"the others show; Holm needs as few as {plan.needed(plan.alpha)} where all others are "
            "found"
        )
    if needed == LEAST_REPLICATES:
        lines.append(f"with fewer than {LEAST_REPLICATES} compare only describes")
    if plan.paired and not estimated:
        lines.append(
            "sd must be that of differences between models with the same seed; --correlation "
            "takes it from the values', --from from recorded runs"
        )
    for line in lines:
        say(out, line)


def _table(plan: SeedPlan, unit: Unit) -> Table:
    table = bare_table(numbers=("seeds", "power", f"found with {100 * plan.power:g}% power"))
    needed = plan.needed()
    for count in sorted({*SHOWN, needed}):
        found = difference_found(plan.sd, count, plan.power, plan.paired, plan.level)
        mark = " only described" if count < LEAST_REPLICATES else ""
        style = "bold" if count == needed else ""
        cells = str(count), f"{plan.power_with(count):.1%}", f"{unit.size(found)}{mark}"
        table.add_row(*cells, style=style)
    return table
