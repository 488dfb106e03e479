"""``attnbench plan``: how many seeds a comparison needs."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.cli.comparing import read_journal
from harness.cli.comparing_options import recipes_of
from harness.cli.output import check_json, console, write_json
from harness.cli.planning_options import Plan, check, check_units, given_sd, read_effect
from harness.experiments.estimate import Recorded, recorded_spread
from harness.experiments.model import parse_model
from harness.experiments.wording import Unit, unit_of
from harness.registry import Registry
from harness.stats import LEAST_REPLICATES, difference_found, power_of
from harness.train.recipe import changes
from harness.train.task import Task
from harness.train.task import task as find_task

COUNTS = range(3, 31)
SHOWN = (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30)
PLAIN = Unit(1.0, 4)


def run_plan(values: dict[str, Any], json_file: str | None) -> int:
    """Print the plan; returns the exit code."""
    check_json(json_file)
    check(values)
    out, unit, metric, recorded = console(), PLAIN, "", None
    if values["from"] is not None:
        task = find_task(values["task"])
        unit, metric = unit_of(task.metric), task.metric
        registry = Registry(values["given"])
        first, second = (parse_model(name, registry) for name in values["models"])
        names = str(first), str(second)
        wanted = None
        if values["recipe"]:
            one, other = recipes_of(task, [first, second], {**values, "choose": None})
            wanted = one, other
        records = read_journal(Path(values["from"]), out)
        recorded = recorded_spread(records, names, task.name, task.metric, wanted)
        sd = recorded.spread.sd.value if values["paired"] else _pooled(recorded)
        _print_recorded(out, recorded, names, task, unit)
    else:
        sd = given_sd(values)
        check_units(values)
    plan = Plan(
        read_effect(values["effect"], metric), sd, values["power"], values["alpha"],
        values["paired"], values["comparisons"],
    )  # fmt: skip
    _print_plan(out, plan, unit, estimated=recorded is not None)
    uncertain = None
    if recorded is not None and plan.paired:
        ends = recorded.spread.sd.low, recorded.spread.sd.high
        uncertain = [replace(plan, sd=end).needed() for end in ends]
        out.print(
            f"the deviation is itself uncertain: between the ends of its 95 % interval it would be "
            f"{uncertain[0]} to {uncertain[1]} seeds",
            highlight=False, soft_wrap=True,
        )  # fmt: skip
    out.print(_table(plan, unit))
    write_json(json_file, {
        **asdict(plan), "level": plan.level, "needed": plan.needed(),
        "needed_alone": plan.needed(plan.alpha), "needed_between": uncertain,
        "recorded": None if recorded is None else asdict(recorded),
        "power_by_count": {n: _power(plan, n) for n in COUNTS},
    })  # fmt: skip
    return 0


def _pooled(recorded: Recorded) -> float:
    """Root mean square of both deviations."""
    return math.sqrt((recorded.spread.sd_first**2 + recorded.spread.sd_second**2) / 2)


def _power(plan: Plan, count: int) -> float:
    return power_of(plan.effect, plan.sd, count, plan.paired, plan.level)


def _print_recorded(
    out: Console, recorded: Recorded, models: tuple[str, str], task: Task, unit: Unit
) -> None:
    s = recorded.spread
    lines = [
        f"{models[0]} and {models[1]} on {task.name}, {s.count} paired seeds: sd of "
        f"{recorded.metric} {unit.size(s.sd_first)} and {unit.size(s.sd_second)}",
        f"sd of the differences {unit.size(s.sd.value)}, 95 % interval [{unit.size(s.sd.low)}, "
        f"{unit.size(s.sd.high)}]",
    ]
    r = s.correlation
    if not math.isnan(r.value):
        interval = "" if math.isnan(r.low) else f", 95 % interval [{r.low:.2f}, {r.high:.2f}]"
        lines.append(f"correlation over seeds {r.value:.2f}{interval}")
    if recorded.others:
        used = {
            model: ", ".join(changes(recipe, task.recipe)) or "the common recipe"
            for model, recipe in zip(models, recorded.recipes, strict=True)
        }
        said = "; ".join(f"{model}: {what}" for model, what in used.items())
        if len(set(used.values())) == 1:
            said = used[models[0]]
        lines.append(
            f"these are of {said}; {recorded.others} pairs under other recipes, vectors or "
            "machines not used (--recipe chooses)"
        )
    for line in lines:
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _print_plan(out: Console, plan: Plan, unit: Unit, estimated: bool) -> None:
    of = "of the paired differences" if plan.paired else "of either model's values"
    needed = plan.needed()
    what = "paired seeds" if plan.paired else "seeds for each model"
    out.print(
        f"[bold]{needed} {what}[/] find a difference of {unit.size(plan.effect)} with "
        f"{plan.power:.0%} power (sd {unit.size(plan.sd)} {of}, two-sided alpha {plan.alpha:g})",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
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
        out.print(line, highlight=False, markup=False, soft_wrap=True)


def _table(plan: Plan, unit: Unit) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("seeds", "power", f"found with {plan.power:.0%} power"):
        table.add_column(column, justify="right")
    needed = plan.needed()
    for count in sorted({*SHOWN, *([needed] if needed in COUNTS else [])}):
        found = difference_found(plan.sd, count, plan.power, plan.paired, plan.level)
        mark = " only described" if count < LEAST_REPLICATES else ""
        table.add_row(
            str(count), f"{_power(plan, count):.1%}", f"{unit.size(found)}{mark}",
            style="bold" if count == needed else "",
        )  # fmt: skip
    return table
