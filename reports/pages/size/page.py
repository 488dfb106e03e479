"""What ``size.ipynb`` calls, the first page: should I use it at my size? Device by device."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.records.schema import digest
from harness.stats import Interval
from reports.claims.ledger import devices_of
from reports.core import sizes
from reports.core.axes import name_rows, note, titled
from reports.core.forest import Line, draw_rows
from reports.core.html import pieces
from reports.core.page import Output, Shown, SourcePage, heading, remark, says, together, warns
from reports.core.source import Source
from reports.core.style import look, mechanism_of, text_colour
from reports.core.tables import under
from reports.pages.claims import Ledger
from reports.pages.size.accuracy import accuracy_note, accuracy_numbers, accuracy_table
from reports.pages.size.answers import Answer, Found, found_at, headline, tells

KINDS = ("time", "anchor", "frontier", "design", "family", "run")
WORDS = ("against the baseline", "faster in training", "longest sequence")
COLUMNS = (WORDS[0], "time, training", "time, forward", "memory, training", *WORDS[1:])
NONE = "Nothing was measured yet: attnbench bench measures, attnbench compare trains."
GLANCE = 8.6
"""Inches, its width."""
STEPS = (
    (0.001, 0.01, 0.1, 1, 10, 100, 1000),
    (2, 0.5, 5, 0.2, 20, 50, 0.05, 0.02, 200, 500),
    (1.5, 3, 0.7, 0.8, 1.2, 1.4, 0.6, 0.9, 1.1, 1.6, 1.8, 2.5, 4, 7, 1.3),
    (0.3, 0.4, 15, 30),
)
"""The roundest first."""


class Sized(SourcePage):
    """The question, answered for each device; every method shows one piece of the page.

    `like` is a TOML file with the reader's sizes; the profile's if empty.
    """

    def __init__(self, source: Source, place: Output, like: str = "") -> None:
        super().__init__(source, place)
        self.given = sizes.read(str(like))

    def question(self) -> Shown:
        """What is asked."""
        if not self.given:
            return remark(
                "At the papers' size. For your own: attnbench report --like FILE.toml, with batch, "
                "length, heads, width, dtype, setting, mechanism, baseline, task; what the file "
                "leaves out stays as here."
            )
        said = ", ".join(f"{name} = {value}" for name, value in self.given.items())
        return remark(f"Asked for: {said}.")

    @cached_property
    def found(self) -> list[Found]:
        """What each device's records say."""
        return [found_at(d, self.given) for d in self.source.devices if d.has(*KINDS)]

    def headline(self) -> Shown:
        """The mechanism asked about against the baseline: a column per device that tells of it."""
        if not self.found:
            return says([NONE])
        telling = [f for f in self.found if tells(f)] or self.found
        size, columns = telling[0].size, [f.device.title for f in telling]
        every = [headline(f) for f in telling]
        rows = {name: [one[name] for one in every] for name in every[0]}
        title = f"{size.mechanism} against {size.baseline}"
        plain = [f"{title}: {', '.join(columns)}"]
        for name, cells in rows.items():
            texts = ["; ".join([*([one] if one else []), *one.notes]) for one in cells]
            plain.append(f"{name}: {' | '.join(texts)}")
        shown = Shown(pieces().answer(title, columns, rows), "\n".join(plain))
        if silent := [f.device.title for f in self.found if f not in telling]:
            of_it = f"Nothing of {title} was measured or compared on {'; '.join(silent)}"
            return together(shown, remark(f"{of_it}. To measure it there: {size.command}"))
        return shown

    def pictures(self) -> Shown:
        """Time and memory of every mechanism, a figure per device."""
        shown = [self._figure(one) for one in self.found if one.answers]
        return together(*shown) if shown else remark("No cost was measured yet.")

    def details(self) -> Shown:
        """What must be known, and the numbers, device by device."""
        return together(*(self._device(one) for one in self.found))

    def score(self) -> Shown:
        """How many of the published claims hold here."""
        journal = "" if self.source.published else str(self.source.folders[0])
        return Ledger(devices_of(journal), self.place).score()

    def _device(self, found: Found) -> Shown:
        shown = [heading(found.device.title), warns(self._warnings(found))]
        if found.answers:
            shown.append(self._table(found))
        if found.trained:
            shown += [heading("Accuracy", 4), self._accuracies(found)]
            shown.append(remark(accuracy_note(found.device.records, found.trained)))
        return together(*shown)

    @staticmethod
    def _warnings(found: Found) -> list[str]:
        size = found.size
        if found.problem is None:
            return [f"No cost was measured here: {size.command}"]
        said = []
        if found.problem != sizes.wanted(size):
            said.append(
                f"Your size ({size}) was not measured here. Shown is the nearest that was: "
                f"{found.where}. To measure yours: {size.command}"
            )
        mine = [r for r in found.here if r.columns["name"] == size.mechanism]
        heads = sorted({int(str(r.columns["heads"])) for r in mine})
        outs = sorted({int(str(r.columns["d_out"])) for r in mine})
        if not mine:
            said.append(f"{size.mechanism} was not measured at this size: {size.command}")
        elif not {0, size.heads} & set(heads):
            said.append(
                f"{size.mechanism} was measured here with {' and '.join(map(str, heads))} heads, "
                f"not with {size.heads}: {size.command}"
            )
        elif size.width[1] not in outs:
            said.append(
                f"{size.mechanism} was measured here to {' and '.join(map(str, outs))} wide, not "
                f"to {size.width[1]}: {size.command}"
            )
        return said

    def _figure(self, found: Found) -> Shown:
        device, baseline = found.device, found.measured.baseline
        place = replace(self.place, footer=device.footer("time", "memory"))
        caption = (
            f"{device.title}: time and peak memory of one call, over those of {baseline}: left of "
            "1 is better. Filled: training step; hollow: forward pass. Bars are 95 % t-intervals "
            "over blocks; the grey band is the noise floor of the A/A control, and nothing inside "
            "it is claimed."
        )
        figure = glance(found.answers, baseline, found.where)
        return place.figure(_named("glance", found), figure, caption)

    def _table(self, found: Found) -> Shown:
        rows = under(COLUMNS, [a.cells for a in found.answers])
        known = [name for name in COLUMNS if any(row[name] for row in rows)]
        words = [i for i, name in enumerate(known) if name in WORDS]
        numbers, kept = (a.numbers for a in found.answers), [{n: r[n] for n in known} for r in rows]
        return self.place.table(_named("answers", found), numbers, kept, words)

    def _accuracies(self, found: Found) -> Shown:
        head = f"less {mechanism_of(found.size.baseline)}"
        rows = accuracy_table(found.trained, found.size, head)
        numbers, name = accuracy_numbers(found.trained), _named("accuracies", found)
        return self.place.table(name, numbers, rows, range(len(rows[0])))


def _named(what: str, found: Found) -> str:
    return f"{what}-{digest(dict(found.device.fingerprint))[:6]}"


def glance(found: Sequence[Answer], baseline: str, under: str) -> Figure:
    """Time and memory over the baseline's, a row per implementation."""
    height = 1.35 + 0.36 * len(found)
    figure = Figure(figsize=(GLANCE, height))
    times, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(
        left=0.2, right=0.985, bottom=0.55 / height, top=1 - 0.62 / height, wspace=0.08
    )
    for y, answer in enumerate(found):
        for phase, shift in (("training", -0.13), ("forward", 0.13)):
            row = answer.rows.get(phase)
            if row is None:
                continue
            if row.status != "ok":
                at, ink = (0.985, y + shift), text_colour(look(answer.mechanism).colour)
                edge = times.get_yaxis_transform()
                text = f"{phase}: {row.status}"
                note(times, text, at, ink=ink, align="right center", within=edge)
            elif row.time is not None:
                draw_rows(times, {y + shift: _line(answer, phase, row.time, phase == "forward")})
        if answer.memory is not None:
            draw_rows(memory, {y: _line(answer, "training", answer.memory)})
    floors = [r.floor for a in found for r in a.rows.values() if not math.isinf(r.floor)]
    if floors:
        times.axvspan(1 / max(floors), max(floors), color="0.5", alpha=0.22, linewidth=0)
    for axes, what in ((times, "time"), (memory, "peak memory")):
        _scale(axes)
        name_rows(axes, [a.label for a in found], f"{what} / {what} of {baseline}", size=8.5)
    for label, answer in zip(times.get_yticklabels(), found, strict=True):
        label.set_color(text_colour(look(answer.mechanism).colour))
    memory.tick_params(axis="y", labelleft=False)
    titled(times, "Time of one call", "filled: training step; hollow: forward pass")
    titled(memory, "Peak memory of a training step", under)
    return figure


def _line(answer: Answer, phase: str, at: Interval, hollow: bool = False) -> Line:
    name = f"{answer.label}, {phase}"
    return Line(name, answer.mechanism, at.ratio, at.low, at.high, decided=True, hollow=hollow)


def ticks(low: float, high: float) -> list[float]:
    """Round ratios on a logarithmic axis, 1 among them, none too near to another."""
    apart = 0.1 * math.log(high / low)
    shown = [1.0]
    for step in itertools.chain(*STEPS):
        near = min(abs(math.log(step / other)) for other in shown)
        if low <= step <= high and near >= apart:
            shown.append(step)
    return sorted(shown)


def _scale(axes: Axes) -> None:
    """Ratios on a logarithmic axis around 1."""
    axes.set_xscale("log")
    axes.margins(x=0.08)
    low, high = axes.get_xlim()
    low, high = min(low, 0.85), max(high, 1.18)
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator(ticks(low, high)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}x"))
    axes.axvline(1, color="0.4", linewidth=1, zorder=0)
