"""What a figure shows, read back from it: the CSV beside it, and what tests compare.

Whatever is drawn of data has a label; lines without one (matplotlib names them ``_child0``) are
guides, axes and ornaments.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.container import BarContainer, ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D

COLUMNS = (
    "panel",
    "series",
    "kind",
    "x",
    "y",
    "low",
    "high",
    "x_low",
    "x_high",
    "value",
    "x_axis",
    "y_axis",
)


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
    rows: list[dict[str, Any]] = []
    for number, axes in enumerate(figure.axes):
        common = {
            "panel": axes.get_title(loc="left") or axes.get_title() or str(number),
            "x_axis": axes.get_xlabel(),
            "y_axis": axes.get_ylabel(),
        }
        rows += [{**common, **row} for row in _of_axes(axes)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _of_axes(axes: Axes) -> Iterator[dict[str, Any]]:
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
                for x, y in np.asarray(path.vertices, dtype=float):
                    yield {"series": label, "kind": "band", "x": float(x), "y": float(y)}
        elif label and isinstance(collection, PathCollection):
            for x, y in np.ma.filled(np.ma.asarray(collection.get_offsets(), dtype=float), np.nan):
                yield {"series": label, "kind": "point", "x": float(x), "y": float(y)}
        elif label and isinstance(collection, QuadMesh):
            yield from _cells(label, collection.get_array())
    for image in axes.images:
        if isinstance(image, AxesImage) and (label := labelled(image)):
            yield from _cells(label, image.get_array())


def _points(label: str, line: Line2D) -> Iterator[dict[str, Any]]:
    x, y = np.asarray(line.get_xdata(orig=False)), np.asarray(line.get_ydata(orig=False))
    interval = label.endswith(INTERVAL)
    if interval and len(x) == 2 and y[0] == y[1]:
        yield {
            "series": label.removesuffix(INTERVAL),
            "kind": "interval",
            "y": float(y[0]),
            "low": float(min(x)),
            "high": float(max(x)),
        }
        return
    for a, b in zip(x, y, strict=True):
        yield {"series": label, "kind": "point", "x": float(a), "y": float(b)}


INTERVAL = ": 95 % interval"
"""Ending of the label of a line from one end of an interval to the other."""


def _error_bars(container: ErrorbarContainer) -> Iterator[dict[str, Any]]:
    label = labelled(container)
    line, _, bars = container.lines
    if not label:
        return
    ends: dict[str, dict[float, tuple[float, float]]] = {"y": {}, "x": {}}
    for bar in bars:
        if isinstance(bar, LineCollection):
            for segment in bar.get_segments():
                if len(segment) < 2:
                    continue  # a point without an interval
                (x, y), (x_end, y_end) = segment[0], segment[-1]
                if x == x_end:
                    ends["y"][float(x)] = (float(y), float(y_end))
                else:
                    ends["x"][float(y)] = (float(x), float(x_end))
    nothing = (math.nan, math.nan)
    for x, y in zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True):
        low, high = ends["y"].get(float(x), nothing)
        left, right = ends["x"].get(float(y), nothing)
        yield {
            "series": label,
            "kind": "interval",
            "x": float(x),
            "y": float(y),
            "low": low,
            "high": high,
            "x_low": left,
            "x_high": right,
        }


def _bars(container: BarContainer) -> Iterator[dict[str, Any]]:
    if label := labelled(container):
        for bar in container.patches:
            middle = bar.get_x() + bar.get_width() / 2
            yield {"series": label, "kind": "bar", "x": middle, "y": bar.get_height()}


def _cells(label: str, array: Any) -> Iterator[dict[str, Any]]:
    values: Any = np.ma.filled(np.ma.asarray(array, dtype=float), np.nan)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            yield {"series": label, "kind": "cell", "x": x, "y": y, "value": float(value)}
