"""What a GPU said of each case beside its time, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, say
from harness.records.gpu import GpuReading
from harness.records.ratios import Row
from reports.core.gpu import COLUMNS, LEGEND, gpu_lines, gpu_remarks


def tell_gpu(readings: Sequence[GpuReading], rows: Sequence[Row], out: Console) -> None:
    """Print the readings of a session on a GPU; nothing where there are none."""
    if not readings:
        return
    table = bare_table("case", numbers=COLUMNS)
    for case, cells in gpu_lines(readings, rows):
        table.add_row(escape(case), *cells)
    out.print(table)
    for line in (LEGEND, *gpu_remarks(readings)):
        say(out, line)
