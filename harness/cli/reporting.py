"""``attnbench report``: find records, execute the notebooks, say where to look."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.cli.output import console, write_json


def make_report(journal: str, out: str, json_file: str | None) -> int:
    """Build the report; returns the exit code.

    0, or 1 if there is nothing to build from or a notebook failed.
    """
    from reports.build import Built, build
    from reports.source import find
    from suites.bench.options import journal_folder

    journal_folder(journal)  # a file of that name is a mistake, not an empty journal
    screen = console()

    def tell(text: str) -> None:
        screen.print(text, highlight=False, markup=False, soft_wrap=True)

    source = find(journal)
    if not source.devices:
        print(f"attnbench: no records in {journal} and none published: nothing to report",
              file=sys.stderr)  # fmt: skip
        write_json(json_file, {"index": None, "pages": [], "failures": []})
        return 1
    tell(source.says)
    for warning in source.warnings:
        tell(f"journal: {warning}")

    def on_page(built: Built) -> None:
        if built.failure:
            print(
                f"attnbench: {built.page.name} could not be made: {built.failure}", file=sys.stderr
            )
        else:
            tell(f"{built.page.name}.html")

    report = build(source, "" if source.published else journal, Path(out), on_page)
    for text in report.missing:
        tell(text)
    tell(f"report: {report.index}")
    write_json(
        json_file,
        {
            "index": str(report.index),
            "published": source.published,
            "devices": [d.title for d in source.devices],
            "pages": [f"{b.page.name}.html" for b in report.pages],
            "missing": list(report.missing),
            "failures": report.failures,
        },
    )
    return 1 if report.failures else 0
