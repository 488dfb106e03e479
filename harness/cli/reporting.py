"""``attnbench report``: find records, execute the notebooks, say where to look."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.cli.output import console, write_json
from harness.errors import UsageError


def make_report(
    journal: str, out: str, json_file: str | None, like: str = "", jobs: int = 0
) -> int:
    """Build the report; returns the exit code.

    0, or 1 if there is nothing to build from or a notebook failed.

    Raises
    ------
    UsageError
        If the file of sizes can't be read, or the number of jobs can't be.
    """
    from reports.core.sizes import read
    from reports.core.source import find
    from reports.site import Built, build
    from suites.bench.options import journal_folder

    journal_folder(journal)  # a file of that name is a mistake, not an empty journal
    if jobs < 0:
        raise UsageError(f"--jobs: given {jobs}; expected 0 (one per core) or more")
    if like:
        read(like)  # a mistake in it is known before minutes of work
        like = str(Path(like).resolve())
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
        elif not built.page.front:
            tell(f"{built.page.name}.html")

    place = "" if source.published else journal
    report = build(source, place, Path(out), on_page, like=like, workers=jobs or None)
    for text in report.missing:
        tell(text)
    tell(f"report: {report.index}")
    write_json(
        json_file,
        {
            "index": str(report.index),
            "published": source.published,
            "devices": [d.title for d in source.devices],
            "pages": [f"{b.page.name}.html" for b in report.pages if not b.page.front],
            "missing": list(report.missing),
            "failures": report.failures,
        },
    )
    return 1 if report.failures else 0
