"""Error over magnitudes, from the records of ``attnbench verify --stress``; where it breaks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from reports.core.axes import End, bare, headed, label_ends, panels
from reports.core.curves import Point, draw_lines
from reports.core.style import LINES, Look, look, mechanism_of, text_colour

NONE = (
    "No sweep over magnitudes is here: attnbench verify --stress records the error of mtsa and "
    "multi_head over scales of inputs and scores, in f32, bf16 and f16."
)
FLOOR = 1e-17
"""An error of exactly 0 is drawn here."""


@dataclass(frozen=True)
class Stress:
    """One implementation in one dtype, with ``inputs`` or ``scores`` magnified.

    Points, sorted by scale: ``scale``, ``error`` and ``budget`` (None: not finite), ``ok``.
    """

    name: str
    dtype: str
    kind: str
    points: tuple[Mapping[str, Any], ...]

    @property
    def breaks(self) -> str:
        """Where the output is over budget; empty if nowhere."""
        return ", ".join(power_text(float(p["scale"])) for p in self.points if not p.get("ok"))

    @property
    def gradients_break(self) -> str:
        """Where a gradient is; empty if nowhere."""
        bad = [p for p in self.points if not p.get("gradient_ok")]
        return ", ".join(power_text(float(p["scale"])) for p in bad)

    @property
    def worst(self) -> Mapping[str, Any]:
        """The point with the largest error over budget; one that is not finite before all."""

        def key(p: Mapping[str, Any]) -> float:
            if p["error"] is None or not p["budget"]:
                return math.inf
            return float(p["error"]) / float(p["budget"])

        return max(self.points, key=key)


def stresses(records: Iterable[Mapping[str, Any]]) -> list[Stress]:
    """The newest sweep of each implementation, its options, dtype and kind."""
    newest: dict[tuple[str, str, str], Stress] = {}
    for r in sorted((r for r in records if r["kind"] == "stress"), key=lambda r: str(r.get("at"))):
        options = ",".join(f"{k}={v}" for k, v in (r.get("options") or {}).items())
        name = r["name"] + (f"[{options}]" if options else "")
        for kind in dict.fromkeys(str(p.get("kind")) for p in r["points"]):
            mine = [p for p in r["points"] if p.get("kind") == kind and p.get("scale")]
            points = tuple(sorted(mine, key=lambda p: float(p["scale"])))
            newest[name, r["dtype"], kind] = Stress(name, r["dtype"], kind, points)
    return [newest[key] for key in sorted(newest)]


def figure(found: Sequence[Stress], dtypes: Sequence[str], kind: str) -> Figure:
    """A panel per dtype: error over scale; dotted the budget; a cross where it is not finite."""
    edges, gaps = (0.75, 1.5, 0.5, 0.75), (0.28, 0)
    drawn, ((*row,),) = panels(len(dtypes), len(dtypes), (2.8, 2.4), edges, gaps, sharey=True)
    for number, (axes, dtype) in enumerate(zip(row, dtypes, strict=True)):
        mine = [s for s in found if s.dtype == dtype and s.kind == kind]
        _panel(axes, mine, names=number == len(dtypes) - 1)
        axes.set_title(dtype, fontsize=9, loc="left")
        axes.set_xlabel(f"{kind} times", fontsize=8.5)
    row[0].set_ylabel("error / largest output", fontsize=8.5)
    under = "dotted: budget; cross at the upper edge: not finite"
    headed(drawn, f"Error over the magnitude of {kind}", under)
    return drawn


def power_text(value: float) -> str:
    """``1e-7``, ``0.01``, ``100``, ``1e4``: short, and without mathematical typesetting."""
    if 1e-2 <= value < 1e4:
        return f"{value:g}"
    digits, _, power = f"{value:.0e}".partition("e")
    return f"{digits}e{int(power)}"


def _panel(axes: Axes, found: Sequence[Stress], *, names: bool) -> None:
    ends: list[End] = []
    seen: dict[str, int] = {}
    for s in found:
        style = look(mechanism_of(s.name))
        number = seen[style.colour] = seen.get(style.colour, -1) + 1
        stroke = LINES[number % 2 * 3]  # solid and dotted-dashed differ most from the budget
        good = [p for p in s.points if p["error"] is not None]
        errors = [Point(float(p["scale"]), max(float(p["error"]), FLOOR)) for p in good]
        budgets = [Point(float(p["scale"]), float(p["budget"])) for p in good if p["budget"]]
        drawn = {s.name: errors, f"{s.name}: budget": budgets}
        strokes = {s.name: (style, stroke), f"{s.name}: budget": (Look(style.colour, ""), ":")}
        draw_lines(axes, drawn, strokes, bars=False)
        lost = [float(p["scale"]) for p in s.points if p["error"] is None]
        for scale in lost:
            (cross,) = axes.plot([scale], [0.97], "x", label=f"{s.name}: not finite")
            cross.set(transform=axes.get_xaxis_transform(), color=style.colour)
            cross.set(markersize=6, markeredgewidth=1.8)
        if errors and names:
            ends.append((errors[-1].x, errors[-1].y, s.name, text_colour(style.colour)))
    axes.set_xscale("log")
    axes.set_yscale("log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: power_text(v)))
        axis.set_minor_formatter(NullFormatter())
    bare(axes)
    label_ends(axes, ends, 7.5)
