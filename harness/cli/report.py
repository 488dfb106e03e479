"""``attnbench report``: find records, execute the notebooks, say where to look."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.cli.output import console, say
from harness.json_file import write_json
from harness.options.measure import ReportOptions


def run_report(options: ReportOptions) -> int:
    """Build the report; returns the exit code.

    0, or 1 if there is nothing to build from or a notebook failed.

    Raises
    ------
    UsageError
        If the file of sizes can't be read.
    """
    from reports.core.sizes import read
    from reports.core.source import find
    from reports.site import Built, build

    if options.docs:
        return _write_docs(options.check)
    like = ""
    if options.like is not None:
        read(str(options.like))  # a mistake in it is known before minutes of work
        like = str(options.like.resolve())
    screen, journal = console(), str(options.journal)

    source = find(journal)
    if not source.devices:
        print(
            f"attnbench: no records in {journal} and none published: nothing to report",
            file=sys.stderr,
        )
        write_json(options.json_file, {"index": None, "pages": [], "failures": []})
        return 1
    say(screen, source.says)
    for warning in source.warnings:
        say(screen, f"journal: {warning}")

    def on_page(built: Built) -> None:
        if built.failure:
            print(
                f"attnbench: {built.page.name} could not be made: {built.failure}", file=sys.stderr
            )
        elif not built.page.notebook.front:
            say(screen, f"{built.page.name}.html")

    place = "" if source.published else journal
    report = build(source, place, options.out, on_page, like=like, workers=options.jobs or None)
    for text in report.missing:
        say(screen, text)
    say(screen, f"report: {report.index}")
    write_json(
        options.json_file,
        {
            "index": str(report.index),
            "published": source.published,
            "devices": [d.title for d in source.devices],
            "pages": [f"{b.page.name}.html" for b in report.pages if not b.page.notebook.front],
            "missing": list(report.missing),
            "failures": report.failures,
        },
    )
    return 1 if report.failures else 0


def _write_docs(check: bool) -> int:
    """Write the results of the documentation; with `check` only say what is stale."""
    import reports
    from reports.docs.write import write

    found = write(Path(reports.__file__).resolve().parents[1], check=check)
    screen = console()
    for path in found:
        said = f"stale: {path}; attnbench report --docs writes it anew" if check else str(path)
        say(screen, said)
    return int(check and bool(found))
