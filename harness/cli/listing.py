"""``attnbench list``."""

from __future__ import annotations

from rich.table import Table

from harness.case import settings
from harness.cli.output import console, write_json
from harness.profile import load_profiles
from harness.registry import Registry
from harness.train.task import tasks


def show(given: list[str], json_file: str | None) -> None:
    """Print mechanisms, settings and profiles."""
    registry = Registry(given)
    out = console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("implementation", "what", "devices", "source"):
        table.add_column(column, overflow="fold")
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
        notes = [f"needs data: {', '.join(task.files)}"] if task.files else []
        notes += [f"{task.folds} folds"] if task.folds else []
        notes += [f"options: {', '.join(task.free)}"] if task.free else []
        notes += [f"recipes: {', '.join(task.recipes)}"] if task.recipes else []
        said = f" ({'; '.join(notes)})" if notes else ""
        out.print(f"  {task.name}: {task.summary}{said}", highlight=False, markup=False)
    write_json(
        json_file,
        {
            "implementations": rows,
            "settings": [s.name for s in settings()],
            "profiles": list(profiles),
            "tasks": list(tasks()),
        },
    )
