"""What ``docs/results/speed.md`` says of GPUs before one was there: predictions, named as such."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from harness.records.ratios import time_frame
from reports.core.predicted import BOARDS, Board, Phase, board_of, predicted, widths
from reports.core.source import DeviceRecords
from reports.core.tables import markdown, under

LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768, 65536)
SHOWN = (512, 4096, 16384, 65536)
BATCH, HEADS = 4, 8
PHASES: tuple[Phase, ...] = ("forward", "training")
GOALS: Mapping[Phase, float] = {"forward": 0.85, "training": 0.90}
"""Most of FlashAttention 2's time, from `LONG` tokens on."""
LONG = 4096
MEASURED = "core_mtsa.fused"


def measured(
    devices: Iterable[DeviceRecords], board: Board, width: int, phase: Phase
) -> dict[int, float]:
    """Median seconds of the core by length, on devices of a board's name."""
    found: dict[int, float] = {}
    for device in devices:
        if board_of(str(device.fingerprint.get("model"))) is not board:
            continue
        times = time_frame(device.records)
        mine = times[
            (times["name"] == MEASURED)
            & (times["status"] == "ok")
            & (times["dtype"] == "bf16")
            & (times["phase"] == phase)
            & (times["batch"] == BATCH)
            & (times["heads"] == HEADS)
            & (times["d_out"] == HEADS * width)
        ]
        median = mine.groupby("length", as_index=False)["seconds"].median()
        found |= {
            int(n): float(t) for n, t in zip(median["length"], median["seconds"], strict=True)
        }
    return found


def table(devices: Iterable[DeviceRecords]) -> str:
    """Milliseconds of the core, over FlashAttention 2 and 3; below, what was measured."""
    columns = ["board, pass", "width", *(f"N = {n:,}" for n in SHOWN), "largest at the end"]
    rows, devices = [], list(devices)
    for board in BOARDS:
        for phase in PHASES:
            for width in widths(board):
                found = {n: predicted(board, width, n, BATCH, HEADS, phase) for n in SHOWN}
                cells = []
                for one in found.values():
                    over = [one.seconds / one.flash2, one.seconds / one.flash3]
                    known = [f"{ratio:.2f}x" for ratio in over if not math.isnan(ratio)]
                    cells.append(f"{1e3 * one.seconds:.3g} ms ({', '.join(known)})")
                head = [f"{board.name}, {phase}", str(width)]
                rows.append([*head, *cells, found[SHOWN[-1]].bound])
                there = measured(devices, board, width, phase)
                if there:
                    beside = [
                        f"{1e3 * there[n]:.3g} ms ({there[n] / one.seconds:.2f}x of predicted)"
                        if n in there
                        else ""
                        for n, one in found.items()
                    ]
                    rows.append([f"{head[0]}, measured", head[1], *beside, ""])
    return markdown(under(columns, rows), (0, 1, 2 + len(SHOWN)))


def sentence() -> str:
    """Where the core is predicted to be within its goals."""
    said = []
    for phase, goal in GOALS.items():
        ratios = {
            f"{board.name} {width}": max(
                one.seconds / one.flash2
                for n in LENGTHS
                if n >= LONG
                for one in [predicted(board, width, n, BATCH, HEADS, phase)]
            )
            for board in BOARDS
            for width in widths(board)
        }
        within = [name for name, ratio in ratios.items() if ratio <= goal]
        beyond = [f"{name} ({ratio:.2f}x)" for name, ratio in ratios.items() if ratio > goal]
        text = f"{phase} at most {goal:g}x of FlashAttention 2: {', '.join(within) or 'none'}"
        said.append(text + (f"; not {', '.join(beyond)}" if beyond else ""))
    return f"Predicted from {LONG:,} tokens on, board and width of heads: {'. '.join(said)}."
