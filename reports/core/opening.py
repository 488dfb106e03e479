"""What every notebook begins with: its records, one device of them, and where figures go."""

from __future__ import annotations

from collections.abc import Sequence

from reports.core.page import Output
from reports.core.source import DeviceRecords, Source, find


def opened(
    journal: object,
    device: object,
    out: object,
    page: object,
    kinds: Sequence[str],
    footed: Sequence[str] = (),
) -> tuple[Source, DeviceRecords | None, Output]:
    """Find the records of a page.

    Parameters
    ----------
    journal, device, out, page : str
        As a notebook's parameters say, see `reports.pages.scaling.page.begin`.
    kinds : sequence of str
        Records that the page is about: without `device` it is of the newest that has any.
    footed : sequence of str
        Records whose device, commit and dates stand under the figures; `kinds` if empty.
    """
    source = find(str(journal))
    chosen = source.device(str(device), *kinds)
    footer = chosen.footer(*(footed or kinds)) if chosen else ""
    return source, chosen, Output.of(out, page, footer)
