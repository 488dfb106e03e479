"""``attnbench list``: mechanisms, settings, profiles, tasks; or the table of docs/verify.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import harness
from harness.case import settings
from harness.cli.output import bare_table, console
from harness.errors import UsageError
from harness.experiments.replicates import unit_of
from harness.json_file import write_json
from harness.options.measure import ListOptions
from harness.profile import load_profiles
from harness.registry import Registry, builtins
from harness.train.task import HIGHER_IS_BETTER, Task, tasks
from reference_impls.mechanism import Mechanism

GOLDEN = Path(harness.__path__[0]).parent / "suites" / "harness" / "verify" / "golden"
PAPERS_OWN = ("mtsa_paper", "multi_head_paper", "msmsa")
"""Golden folders computed from the papers' equations; the others by the authors' programs."""
BEGIN, END = "<!-- mechanisms: attnbench list --markdown -->", "<!-- end of mechanisms -->"


def run_list(options: ListOptions) -> int:
    """Print mechanisms, settings and profiles; returns the exit code."""
    if options.markdown:
        print(markdown())
        return 0
    registry = Registry(options.given)
    out = console()
    table = bare_table("implementation", "what", "devices", "source", overflow="fold")
    rows = []
    for mechanism in registry.mechanisms.values():
        table.add_row(f"[bold]{mechanism.name}[/]", mechanism.summary, "", mechanism.source)
        for i in mechanism.implementations:
            table.add_row(f"  {mechanism.name}.{i.name}", i.summary, ", ".join(i.devices), "")
            rows.append(
                {
                    "name": f"{mechanism.name}.{i.name}",
                    "mechanism": mechanism.name,
                    "summary": i.summary,
                    "source": mechanism.source,
                    "devices": i.devices,
                    "factory": i.factory,
                    "oracle": mechanism.oracle,
                }
            )
    out.print(table)
    out.print("\n[bold]settings[/]")
    for setting in settings():
        out.print(f"  {setting.name}: {setting.summary}")
    out.print("  K-threads: K CPU threads\n\n[bold]profiles[/]")
    profiles = load_profiles()
    for name, profile in profiles.items():
        out.print(f"  {name}: {profile['summary']}")
    out.print("\n[bold]tasks[/]")
    for task in tasks().values():
        notes = [f"judged by {', '.join(task.metrics)}"]
        notes += [f"needs data: {', '.join(task.files)}"] if task.files else []
        notes += [f"{task.folds} folds"] if task.folds else []
        if task.each:
            notes.append(f"{len(task.choices[task.each])} tasks, one {task.each} each")
        free = [
            f"{name} ({', '.join(task.choices[name])})" if name in task.choices else name
            for name in task.free
        ]
        notes += [f"options: {', '.join(free)}"] if free else []
        notes += [f"recipes: {', '.join(task.recipes)}"] if task.recipes else []
        said = f"  {task.name}: {task.summary} ({'; '.join(notes)})"
        out.print(said, highlight=False, markup=False)
    write_json(
        options.json_file,
        {
            "implementations": rows,
            "settings": [s.name for s in settings()],
            "profiles": list(profiles),
            "tasks": [_task(task) for task in tasks().values()],
        },
    )
    return 0


def _task(task: Task) -> dict[str, Any]:
    """A task's record; the first metric decides which epoch counts and what is compared."""
    metrics = [
        {
            "name": name,
            "unit": unit_of(name).of_values.strip() or "none",
            "higher_is_better": HIGHER_IS_BETTER[name],
        }
        for name in task.metrics
    ]
    told = ("name", "summary", "source", "kind", "split", "files", "folds", "options", "load")
    record = {name: getattr(task, name) for name in told}
    return {**record, "metrics": metrics, "recipe": task.recipe.as_dict()}


def _goldens(mechanism: Mechanism) -> str:
    """How many golden files hold it to account, and whose numbers they are."""
    counts = {"authors'": 0, "paper's form": 0}
    for folder in (*mechanism.goldens, *mechanism.part_goldens):
        whose = "paper's form" if folder in PAPERS_OWN else "authors'"
        counts[whose] += len(list((GOLDEN / folder).glob("*.npz")))
    return ", ".join(f"{count} {whose}" for whose, count in counts.items() if count) or "none exist"


def markdown() -> str:
    """One row per built-in mechanism.

    Raises
    ------
    UsageError
        Where the golden files are not: they are in a clone, not in a wheel.
    """
    if not GOLDEN.is_dir():
        raise UsageError(f"--markdown counts the golden files in {GOLDEN}; run it in a clone")
    lines = [
        "| mechanism | what and where from | implementations beside `plain` | verified against | "
        "golden files |",
        "|---|---|---|---|---|",
    ]
    for m in builtins().values():
        beside = ", ".join(f"`{i.name}`" for i in m.implementations if i.name != "plain")
        count = 1 + len(m.variants)
        checked = f"oracle, {count} configuration{'s' if count > 1 else ''}"
        what = f"{m.summary} ({m.source})"
        lines.append(f"| `{m.name}` | {what} | {beside} | {checked} | {_goldens(m)} |")
    return "\n".join(lines)
