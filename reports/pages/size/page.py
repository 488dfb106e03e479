"""What ``size.ipynb`` calls, the first page: should I use it at my size? Device by device."""

from __future__ import annotations

from typing import Any

import pandas as pd

from harness.experiments.conclusion import Comparison
from harness.ratios import Row
from harness.records.schema import digest
from reports.core import sizes
from reports.core.costs import Costs
from reports.core.page import Output, Shown, heading, remark, says, together, warns
from reports.core.parameters import opens
from reports.core.sentences import closing
from reports.core.sizes import Size
from reports.core.source import DeviceRecords, Source, find
from reports.core.style import mechanism_of
from reports.pages.size.answers import (
    Answer,
    accuracy_note,
    accuracy_numbers,
    accuracy_sentence,
    accuracy_table,
    answers,
    differences,
    frontier_sentence,
    trained_as,
)
from reports.pages.size.figures import glance

KINDS = ("time", "anchor", "frontier", "design", "family", "run")
NONE = "Nothing was measured yet: attnbench bench measures, attnbench compare trains."


@opens
def begin(journal: str, like: str, out: str, page: str) -> Sized:
    """Open the notebook.

    Parameters
    ----------
    journal : str
        Folder of the records; the published ones if it is empty or holds none.
    like : str
        TOML file with the reader's sizes; the profile's if empty.
    out : str
        Folder for figures and tables; empty writes none.
    page : str
        What their names begin with.
    """
    return Sized(find(str(journal)), _given(str(like)), Output.of(out, page))


def _given(file: str) -> dict[str, Any]:
    return sizes.read(file)


class Sized:
    """The question, answered for each device; every method shows one piece of the page."""

    def __init__(self, source: Source, given: dict[str, Any], place: Output) -> None:
        self.source, self.given, self.place = source, given, place

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

    def answer(self) -> Shown:
        """Device by device: cost, memory, accuracy, crossover, frontier."""
        devices = [d for d in self.source.devices if d.has(*KINDS)]
        if not devices:
            return says([NONE])
        return together(*(self._device(device) for device in devices))

    def score(self) -> Shown:
        """How many of the published claims hold here."""
        from reports.pages.claims.page import score

        journal = "" if self.source.published else str(self.source.folders[0])
        return together(heading("What became of the papers' claims", 2), score(journal))

    def _device(self, device: DeviceRecords) -> Shown:
        measured = Costs(device, str(self.given.get("baseline", "")))
        size = sizes.size_for(measured.profile, self.given)
        trained = differences(device.records, size)
        pieces = [heading(device.title)]
        problem = sizes.nearest(measured.rows, size)
        if problem is None:
            pieces.append(remark(f"No cost was measured here: {size.command}"))
        else:
            pieces += self._costs(measured, size, problem, device)
        said = [frontier_sentence(device.records, size), accuracy_sentence(trained, size)]
        how = trained_as(device.records, trained)
        pieces.append(says([*said, *([how] if how else [])]))
        if trained:
            pieces.append(self._accuracies(trained, size, device))
        return together(*pieces)

    def _costs(
        self, measured: Costs, size: Size, problem: sizes.Problem, device: DeviceRecords
    ) -> list[Shown]:
        here = [r for r in measured.rows if sizes.problem_of(r) == problem]
        found = answers(here, measured, size)
        pieces = []
        if problem != sizes.wanted(size):
            batch, length, width, dtype, setting = problem
            pieces.append(
                warns(
                    [
                        f"Your size ({size}) was not measured here. Below is the nearest that "
                        f"was: batch {batch}, N = {length:,}, {width} wide, {dtype}, {setting}. To "
                        f"measure yours: {size.command}"
                    ]
                )
            )
        asked = {"batch": problem[0], "length": problem[1], "heads": size.heads,
                 "settings": problem[4], "dtype": problem[3]}  # fmt: skip
        mine = [r for r in here if r.columns["name"] == size.mechanism]
        heads = sorted({int(str(r.columns["heads"])) for r in mine})
        outs = sorted({int(str(r.columns["d_out"])) for r in mine})
        if mine and not {0, size.heads} & set(heads):
            pieces.append(warns([
                f"{size.mechanism} was measured here with {' and '.join(map(str, heads))} heads, "
                f"not with {size.heads}: {size.command}"
            ]))  # fmt: skip
        elif mine and size.width[1] not in outs:
            pieces.append(warns([
                f"{size.mechanism} was measured here to {' and '.join(map(str, outs))} wide, not "
                f"to {size.width[1]}: {size.command}"
            ]))  # fmt: skip
        elif mine:
            said = closing(
                measured.rows, size.mechanism, measured.baseline, asked, measured.memory_ratio
            )
            pieces.append(says(said))
        else:
            pieces.append(says([f"{size.mechanism} was not measured at this size."]))
        pieces.append(self._figure(found, measured, here, device))
        pieces.append(self._table(found, device))
        return pieces

    def _figure(
        self, found: list[Answer], measured: Costs, here: list[Row], device: DeviceRecords
    ) -> Shown:
        batch, length, width, dtype, setting = sizes.problem_of(here[0])
        under = f"batch {batch}, N = {length:,}, {width} wide, {dtype}, {setting}"
        figure = glance(found, measured.baseline, under)
        place = Output(self.place.folder, self.place.page, device.footer("time", "memory"))
        name = f"glance-{digest(dict(device.fingerprint))[:6]}"
        caption = (
            f"Time and peak memory of one call, over those of {measured.baseline}: left of 1 is "
            "better. Filled: training step; hollow: forward pass. Bars are 95 % t-intervals over "
            "blocks; the grey band is the noise floor of the A/A control, and nothing inside it is "
            "claimed."
        )
        return place.figure(name, figure, caption)

    def _table(self, found: list[Answer], device: DeviceRecords) -> Shown:
        columns = [
            "against the baseline", "time, training", "time, forward", "memory, training",
            "faster in training", "longest sequence",
        ]  # fmt: skip
        rows = [
            [a.label, a.text("training"), a.text("forward"), a.memory_text, a.crossover, a.frontier]
            for a in found
        ]
        frame = pd.DataFrame([a.numbers for a in found])
        name = f"answers-{digest(dict(device.fingerprint))[:6]}"
        shown = [i for i in range(len(columns)) if any(row[i] for row in rows)]
        words = [shown.index(i) for i in (0, 4, 5) if i in shown]
        kept = [[row[i] for i in shown] for row in rows]
        return self.place.table(name, frame, [columns[i] for i in shown], kept, words)

    def _accuracies(self, trained: list[Comparison], size: Size, device: DeviceRecords) -> Shown:
        tasks, rows = accuracy_table(trained, size)
        name = f"accuracies-{digest(dict(device.fingerprint))[:6]}"
        columns = [f"less {mechanism_of(size.baseline)}", *tasks]
        frame = pd.DataFrame(accuracy_numbers(trained))
        shown = self.place.table(name, frame, columns, rows, range(len(columns)))
        return together(heading("Accuracy", 4), shown, remark(accuracy_note(trained)))
