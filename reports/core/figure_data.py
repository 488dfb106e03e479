"""What a figure shows, read back from it: the CSV beside it, and what tests compare.

Whatever is drawn of data has a label; lines without one (matplotlib names them ``_child0``) are
guides, axes and ornaments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection, PolyCollection, QuadMesh
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

COLUMNS = ("panel", "series", "kind", "x", "y", "low", "high", "x_low", "x_high", "value")
Row = dict[str, Any]


def labelled(artist: Any) -> str:
    """Label of an artist of data; empty of an ornament."""
    label = str(artist.get_label() or "")
    return "" if label.startswith("_") else label


def data_of(figure: Figure) -> pd.DataFrame:
    """Every point drawn, in the order of drawing.

    Returns
    -------
    DataFrame
        ``series`` is the label; ``kind`` says what the numbers are: ``point``, ``interval`` (with
        ``low`` and ``high``, of x in ``x_low`` and ``x_high``), ``band`` (its outline), ``bar`` or
        ``cell`` (with ``value``).
        Units stand in the texts of the axes, ``x_axis`` and ``y_axis``.
    """
    rows: list[Row] = []
    for number, axes in enumerate(figure.axes):
        common = {
            "panel": axes.get_title(loc="left") or axes.get_title() or str(number),
            "x_axis": axes.get_xlabel(),
            "y_axis": axes.get_ylabel(),
        }
        rows += [{**common, **row} for row in _of_axes(axes)]
    return pd.DataFrame(rows, columns=[*COLUMNS, "x_axis", "y_axis"])


def _of_axes(axes: Axes) -> Iterator[Row]:
    inside: set[Line2D] = set()
    for container in axes.containers:
        if isinstance(container, ErrorbarContainer):
            yield from _error_bars(container)
            inside.add(container.lines[0])
        elif isinstance(container, BarContainer):
            yield from _bars(container)
    for line in axes.get_lines():
        if line not in inside and (label := labelled(line)):
            yield from _points(label, line)
    for collection in axes.collections:
        label = labelled(collection)
        if label and isinstance(collection, PolyCollection):
            for path in collection.get_paths():
                yield from _each(label, "band", np.asarray(path.vertices, dtype=float))
        elif label and isinstance(collection, PathCollection):
            offsets: Any = np.ma.asarray(collection.get_offsets(), dtype=float)
            yield from _each(label, "point", np.ma.filled(offsets, np.nan))
        elif label and isinstance(collection, QuadMesh):
            yield from _cells(label, collection.get_array())
    for image in axes.images:
        if label := labelled(image):
            yield from _cells(label, image.get_array())


def _points(label: str, line: Line2D) -> Iterator[Row]:
    x, y = np.asarray(line.get_xdata(orig=False)), np.asarray(line.get_ydata(orig=False))
    if label.endswith(INTERVAL) and len(x) == 2 and y[0] == y[1]:
        ends = {"y": float(y[0]), "low": float(min(x)), "high": float(max(x))}
        yield {"series": label.removesuffix(INTERVAL), "kind": "interval", **ends}
    else:
        yield from _each(label, "point", zip(x, y, strict=True))


def _each(label: str, kind: str, points: Iterable[Any]) -> Iterator[Row]:
    for x, y in points:
        yield {"series": label, "kind": kind, "x": float(x), "y": float(y)}


INTERVAL = ": 95 % interval"
"""Ending of the label of a line from one end of an interval to the other."""


def _error_bars(container: ErrorbarContainer) -> Iterator[Row]:
    label = labelled(container)
    line, _, bars = container.lines
    if not label:
        return
    up: dict[float, Row] = {}
    across: dict[float, Row] = {}
    for segment in (one for bar in bars for one in bar.get_segments()):
        if len(segment) < 2:
            continue  # a point without an interval
        (x, y), (x_end, y_end) = segment[0], segment[-1]
        if x == x_end:
            up[x] = {"low": float(y), "high": float(y_end)}
        else:
            across[y] = {"x_low": float(x), "x_high": float(x_end)}
    for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True):
        (row,) = _each(label, "interval", [(x, y)])
        yield {**row, **up.get(x, {}), **across.get(y, {})}


def _bars(container: BarContainer) -> Iterator[Row]:
    if label := labelled(container):
        for bar in container.patches:
            middle = bar.get_x() + bar.get_width() / 2
            yield {"series": label, "kind": "bar", "x": middle, "y": bar.get_height()}


def _cells(label: str, array: Any) -> Iterator[Row]:
    values: Any = np.ma.filled(np.ma.asarray(array, dtype=float), np.nan)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            yield {"series": label, "kind": "cell", "x": x, "y": y, "value": float(value)}
