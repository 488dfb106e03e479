"""How long the Triton kernels would take on a GPU: predicted from the compiled code, not measured.

`reference_impls.kernels.triton.ranking` counts what a multiprocessor does for a pair of query and
key and writes it to ``counts.toml``; a board says how many of them there are, and how fast. Where
one was measured, that stands beside, in ``speed.md`` and on the page of that GPU.
"""

from __future__ import annotations

import math
import re
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import Any, Literal

import reference_impls
from harness.records.ratios import time_frame
from reports.core.source import DeviceRecords
from reports.core.tables import markdown, under
from reports.core.words import time_text

COUNTS = Path(reference_impls.__file__).parent / "kernels" / "triton" / "counts.toml"
Phase = Literal["forward", "training"]
KERNELS: Mapping[Phase, tuple[str, ...]] = {
    "forward": ("forward",),
    "training": ("forward", "query_gradient", "key_gradient"),
}
BYTES: Mapping[Phase, int] = {"forward": 8 + 2 + 8, "training": 8 + 2 + 8 + 12 + 8 + 14 + 20}
"""Of memory for a token's feature of a head, in bfloat16 but for the inverse denominators: weighing
reads and writes v, s, w and e, the kernels read and write theirs once."""
LAUNCHES: Mapping[Phase, int] = {"forward": 4, "training": 11}
"""Kernels one after the other: maximum, weighing, attending, repairing, and their gradients."""
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
SHOWN = (512, 4096, 16384, 65536)
BATCH, HEADS = 4, 8
PHASES: tuple[Phase, ...] = ("forward", "training")
GOALS: Mapping[Phase, float] = {"forward": 0.85, "training": 0.90}
"""Most of FlashAttention 2's time, from `LONG` tokens on."""
LONG = 4096
MEASURED = "core_mtsa.fused"
OTHERS: Mapping[str, str] = {"core_dot.sdpa_flash": "torch's flash", "core_dot.sdpa_cudnn": "cuDNN"}
"""Kernels of full dot-product attention that are measured beside it."""


@dataclass(frozen=True)
class Board:
    """A GPU as its data sheet has it.

    Attributes
    ----------
    name : str
        Part of what CUDA calls it.
    hertz : float
        At which its matrix units have the rate of the data sheet.
    bytes_per_second : float
        Of memory.
    launch_seconds : float
        From a kernel to the next one.
    flash2, flash3 : float
        Operations per second of FlashAttention, its papers' best: of 2, 73 % of an A100's peak
        (Dao 2023, abstract), 35 % of an H100's (Shah et al. 2024, abstract); of 3, 740 Tera there.
        nan where there is none.
    """

    name: str
    capability: int
    multiprocessors: int
    hertz: float
    bytes_per_second: float
    flash2: float
    flash3: float = math.nan
    launch_seconds: float = 4e-6


BOARDS = (
    Board("H200", 90, 132, 1.83e9, 4.8e12, 0.35 * 989e12, 740e12),
    Board("H100", 90, 132, 1.83e9, 3.35e12, 0.35 * 989e12, 740e12),
    Board("A100", 80, 108, 1.41e9, 2.0e12, 0.73 * 312e12),
)


@dataclass(frozen=True)
class Prediction:
    """Seconds of a pass of the core, and what they are made of.

    `parts`: what each would take by itself, in all kernels: tensor, exponentials, instructions,
    shared, cached, memory, launch. `flash2`, `flash3`: of the full dot-product attention of the
    same heads.
    """

    seconds: float
    parts: Mapping[str, float]
    flash2: float
    flash3: float

    @property
    def bound(self) -> str:
        """The largest part."""
        return max(self.parts, key=lambda name: self.parts[name])


@cache
def counts() -> Mapping[str, Any]:
    """What `audit` counted: by architecture, kernel and width of heads."""
    return tomllib.loads(COUNTS.read_text())


def pairs(tokens: int, rows: int, columns: int) -> int:
    """Pairs of a head that looks back (or ahead), in whole tiles."""
    ends = (min(first + rows, tokens) for first in range(0, tokens, rows))
    return sum(rows * columns * math.ceil(end / columns) for end in ends)


def predicted(
    board: Board, width: int, tokens: int, batch: int, heads: int, phase: Phase
) -> Prediction:
    """MTSA's core in bfloat16, half of the heads looking back and half ahead, nothing padded.

    Parameters
    ----------
    width : int
        Of a head, one that was counted.

    Raises
    ------
    KeyError
        For a width that was not counted.
    """
    sequences, seconds = batch * heads, 0.0
    parts: dict[str, float] = {}
    for kernel in KERNELS[phase]:
        one = counts()[f"sm_{board.capability}"][kernel][str(width)]
        rows, columns = one["tile"][:2]
        thousands = pairs(tokens, rows, columns) * sequences / 1024
        rate = board.multiprocessors * board.hertz
        for name, cycles in one["cycles"].items():
            parts[name] = parts.get(name, 0.0) + cycles * thousands / rate
        programs = sequences * math.ceil(tokens / rows)
        # The last program with all keys, beside those that share its multiprocessor.
        beside = min(one["programs"], math.ceil(programs / board.multiprocessors))
        longest = rows * tokens / 1024 * beside / board.hertz
        seconds += one["predicted"] * max(thousands / rate, longest)
    features = sequences * tokens * width
    parts["memory"] = BYTES[phase] * features / board.bytes_per_second
    parts["launch"] = LAUNCHES[phase] * board.launch_seconds
    operations = 4.0 * tokens**2 * 32 * math.ceil(width / 32) * sequences
    operations *= {"forward": 1.0, "training": 3.5}[phase]
    return Prediction(
        # What only moves numbers comes before and after; the kernels' own reads are in theirs.
        seconds + parts["memory"] + parts["launch"],
        parts,
        operations / board.flash2,
        operations / board.flash3,
    )


def board_of(model: str) -> Board | None:
    """The board of a device's name."""
    return next((board for board in BOARDS if re.search(rf"\b{board.name}\b", model)), None)


def widths(board: Board) -> Sequence[int]:
    """Of heads that were counted for a board."""
    return sorted(map(int, counts()[f"sm_{board.capability}"]["forward"]))


def measured(
    devices: Iterable[DeviceRecords], board: Board, width: int, phase: Phase, name: str = MEASURED
) -> dict[int, tuple[float, float]]:
    """Median seconds of the core by length, or of another, on devices of a board's name.

    And of the device alone, replayed from a CUDA graph, which is what is predicted: NaN where no
    record says it.
    """
    found: dict[int, tuple[float, float]] = {}
    for device in devices:
        if board_of(str(device.fingerprint.get("model"))) is not board:
            continue
        mine = time_frame(device.records)
        of = {"name": name, "status": "ok", "dtype": "bf16", "phase": phase, "batch": BATCH}
        for column, value in {**of, "heads": HEADS, "d_out": HEADS * width}.items():
            mine = mine[mine[column] == value]
        for length in map(int, sorted(set(mine["length"]))):
            of_length = mine[mine["length"] == length]
            cases = {*of_length["case"]}
            told = (one.get("gpu") or {} for one in device.records if one.get("case") in cases)
            alone = [one["device_seconds"] for one in told if "device_seconds" in one]
            median = statistics.median(alone) if alone else math.nan
            found[length] = float(of_length["seconds"].median()), median
    return found


@dataclass(frozen=True)
class Beside:
    """A prediction, and the seconds that were measured on that board; NaN where nobody did.

    ``alone`` are those of the device without the host; ``over`` what they are over those of
    `OTHERS`.
    """

    board: str
    phase: Phase
    width: int
    tokens: int
    predicted: Prediction
    measured: float
    alone: float = math.nan
    over: Mapping[str, float] = field(default_factory=dict)

    @property
    def texts(self) -> tuple[str, str]:
        """Predicted, with what it is over FlashAttention 2 and, where there is one, 3, and its
        largest part; measured.
        """
        one, seconds, there = self.predicted, self.predicted.seconds, self.measured
        others = (one.flash2, one.flash3)
        over = ", ".join(f"{seconds / other:.2f}x" for other in others if not math.isnan(other))
        said = f"{time_text(seconds)} ({over}; {one.bound})"
        if math.isnan(there):
            return said, ""
        told = f"{time_text(there)} ({there / seconds:.2f}x of predicted)"
        if not math.isnan(self.alone):
            told += f"; device alone {time_text(self.alone)} ({self.alone / seconds:.2f}x"
            told += "".join(f"; {ratio:.2f}x of {name}" for name, ratio in self.over.items()) + ")"
        return said, told


def beside(devices: Iterable[DeviceRecords], boards: Sequence[Board] = BOARDS) -> list[Beside]:
    """All that is shown: of each board, pass and width the lengths of `SHOWN`."""
    devices, found = list(devices), []
    for board, phase in product(boards, PHASES):
        for width in widths(board):
            there = measured(devices, board, width, phase)
            others = {
                said: measured(devices, board, width, phase, name) for name, said in OTHERS.items()
            }
            for n in SHOWN:
                one = predicted(board, width, n, BATCH, HEADS, phase)
                took, alone = there.get(n, (math.nan, math.nan))
                over = {name: alone / of[n][1] for name, of in others.items() if n in of}
                over = {name: ratio for name, ratio in over.items() if not math.isnan(ratio)}
                found.append(Beside(board.name, phase, width, n, one, took, alone, over))
    return found


def rows(found: Iterable[Beside]) -> list[dict[str, str]]:
    """Milliseconds of the core, over FlashAttention 2 and 3; below, what was measured."""
    columns = ["board, pass", "width", *(f"N = {n:,}" for n in SHOWN)]
    lines = []
    for (board, phase, width), group in groupby(found, lambda b: (b.board, b.phase, b.width)):
        said, there = zip(*(one.texts for one in group), strict=True)
        lines.append([f"{board}, {phase}", str(width), *said])
        if any(there):
            lines.append([f"{board}, {phase}, measured", str(width), *there])
    return under(columns, lines)


def numbers(found: Iterable[Beside]) -> list[dict[str, Any]]:
    """The same for a file, one record for each."""
    return [
        {
            "board": one.board,
            "pass": one.phase,
            "width": one.width,
            "tokens": one.tokens,
            "predicted_seconds": one.predicted.seconds,
            "flash2_seconds": one.predicted.flash2,
            "flash3_seconds": one.predicted.flash3,
            "largest": one.predicted.bound,
            "measured_seconds": one.measured,
            "device_seconds": one.alone,
        }
        for one in found
    ]


def table(found: Iterable[Beside]) -> str:
    """`rows` in Markdown."""
    return markdown(rows(found), (0, 1))


def heading(found: Iterable[Beside]) -> str:
    """Whose numbers they are: nobody's, until a GPU's records are among them."""
    there = dict.fromkeys(one.board for one in found if not math.isnan(one.measured))
    if not there:
        return "Predicted for GPUs, none of which has run it"
    return f"Predicted for GPUs, and measured on {', '.join(there)}"


def _long(phase: Phase) -> dict[str, list[Prediction]]:
    """By board and width of heads, the predictions of the lengths that the goals are about."""
    return {
        f"{board.name} {width}": [
            predicted(board, width, n, BATCH, HEADS, phase) for n in LENGTHS if n >= LONG
        ]
        for board in BOARDS
        for width in widths(board)
    }


def sentence() -> str:
    """Where the core is predicted to be within its goals, and what it takes of FlashAttention 3."""
    said, third, missed = [], [], True
    for phase, goal in GOALS.items():
        found = _long(phase)
        ratios = {name: max(p.seconds / p.flash2 for p in by) for name, by in found.items()}
        within = [name for name, ratio in ratios.items() if ratio <= goal]
        beyond = [f"{name} ({ratio:.2f}x)" for name, ratio in ratios.items() if ratio > goal]
        text = f"{phase} at most {goal:g}x of FlashAttention 2: {', '.join(within) or 'none'}"
        said.append(text + (f"; not {', '.join(beyond)}" if beyond else ""))
        ratios_3 = [p.seconds / p.flash3 for by in found.values() for p in by]
        over = sorted(ratio for ratio in ratios_3 if not math.isnan(ratio))
        third.append(f"{phase} {over[0]:.2f}x to {over[-1]:.2f}x")
        missed = missed and over[0] > goal
    boards = ", ".join(board.name for board in BOARDS if not math.isnan(board.flash3))
    where = ": where that is installed, and as fast as its paper says, every goal is missed"
    return (
        f"Predicted from {LONG:,} tokens on, board and width of heads: {'; '.join(said)}. Over "
        f"FlashAttention 3 ({boards}) it takes {', '.join(third)}{where * missed}."
    )
