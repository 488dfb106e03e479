"""Measure tiles of the Triton kernels: python -m reference_impls.kernels.triton.tune [--out FILE].

For each kernel, kind of numbers and width of heads, every candidate of
`reference_impls.kernels.triton.tiles` is compiled and launched once, several at a time and each
where its crash harms no other. What runs is timed on several problems, all tiles in turn and the
level-two cache flushed before each repeat. From the fastest on, by the mean of logarithms over the
problems, tiles are then held against float64, values and gradients, under every kind of mask, at
the papers' heads of 75 and 300 too, until one is right: that is the best. It is written as JSON
beside the tile of the table, with the reason why faster ones were dropped, and by --write into
`measured.toml`, which counts from then on. It needs a CUDA device, and for every candidate a few
seconds of the compiler. Stopped and started again it goes on with the next cell; of one that was
begun the compiler's part is in Triton's cache. Exit code 1: a tile of the table is not right.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.triton import device
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import (
    MEASURED,
    TABLE,
    Kind,
    Numbers,
    Tile,
    candidates,
    table_text,
    tiles_of,
    with_these,
)
from reference_impls.kernels.triton.tiles import tiles as table_of
from reference_impls.kernels.triton.trial import MASKS, asked, problem

if TYPE_CHECKING:
    from reference_impls.kernels.triton.launch import Launch

LENGTHS = (1024, 8192)
CHECKS = 3
"""Tiles that are checked at a time, the fastest first."""
WARM, REPEATS = 3, 30
FLUSHED = 256 * 2**20
"""Bytes that are written before each repeat, several times a level-two cache."""


def launches(kind: Kind, tiles: Sequence[Tile], call: KernelCall, g: Tensor) -> dict[Tile, Launch]:
    """One kernel of the same tensors with each tile; what comes before it has run."""
    from reference_impls.kernels.triton import launch

    given = Inputs(call, precise=call.q.dtype == torch.float32)
    found = launch.Outputs.of(given, save=True)
    before = launch.forward(given, found, True)
    if kind != "forward":
        for one in before:
            one.run()
        before = launch.backward(given, found, g, given.gradients())
        before = before[:-1] if kind == "query_gradient" else [*before[:-2], before[-1]]
    *before, last = before
    for one in before:
        one.run()
    heads, batch, n, _ = call.q.shape
    return {
        tile: replace(
            last,
            programs=heads * batch * tiles_of(n, tile.rows),
            constants={**last.constants, "ROWS": tile.rows, "COLUMNS": tile.columns},
            tile=tile,
        )
        for tile in tiles
    }


def milliseconds(kernels: Mapping[Tile, Launch]) -> dict[Tile, list[float]]:
    """Times of each, `REPEATS` rounds in random order, the cache flushed before every one."""
    flushed = torch.empty(FLUSHED, dtype=torch.int8, device="cuda")
    for kernel in kernels.values():
        for _ in range(WARM):
            kernel.run()
    events: dict[Tile, list[tuple[Any, Any]]] = {tile: [] for tile in kernels}
    draw = random.Random(0)
    for _ in range(REPEATS):
        for tile in draw.sample(list(kernels), len(kernels)):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flushed.zero_()
            start.record()
            kernels[tile].run()
            end.record()
            events[tile].append((start, end))
    torch.cuda.synchronize()
    return {tile: [a.elapsed_time(b) for a, b in pairs] for tile, pairs in events.items()}


def cell(
    kind: Kind,
    numbers: Numbers,
    width: int,
    lengths: Sequence[int],
    on: str = "cuda",
    timed: Callable[[Mapping[Tile, Launch]], Mapping[Tile, Sequence[float]]] = milliseconds,
) -> dict[str, Any]:
    """What is found of one cell of the table: the best tile, times by problem, the dropped ones."""
    capability = device.architecture()
    now = table_of(capability)[kind][numbers][width]
    every = list(dict.fromkeys((now, *candidates(kind, numbers, width, capability))))
    dropped = {t: why for t, why in asked("run", kind, numbers, width, every).items() if why}
    running = [tile for tile in every if tile not in dropped]
    medians: dict[str, dict[Tile, float]] = {}
    for length in lengths:
        for masks in MASKS:
            call, g = problem(numbers, width, length, masks, False, on, "timed")
            times = timed(launches(kind, running, call, g)) if running else {}
            medians[f"{masks} N{length}"] = {t: statistics.median(ms) for t, ms in times.items()}
    # By the mean logarithm over all problems.
    running.sort(key=lambda tile: sum(math.log(times[tile]) for times in medians.values()))
    best, checked = None, {now} & dropped.keys()
    while best is None and running:
        some, running = running[:CHECKS], running[CHECKS:]
        asking = list(dict.fromkeys([*some, *({now} - checked)]))
        found = asked("check", kind, numbers, width, asking)
        checked |= found.keys()
        dropped |= {tile: reason for tile, reason in found.items() if reason}
        best = next((tile for tile in some if tile not in dropped), None)
    return {
        "now": str(now),
        "repeats": REPEATS,
        "checked": len(checked),
        "dropped": {str(tile): reason for tile, reason in dropped.items()},
        "best": best and str(best),
        "tile": best and astuple(best),
        "milliseconds": {
            name: {"best": times.get(best), "now": times.get(now)} if best else {}
            for name, times in medians.items()
        },
    }


def write(table: Mapping[str, Any]) -> None:
    """Put the best tiles of all cells that are known into `measured.toml`."""
    by_cell = {
        tuple(name.split()): Tile(*found["tile"])
        for name, found in table.items()
        if isinstance(found, dict) and found.get("tile")
    }
    on = f"{table['device']}, torch {table['torch']}, triton {table['triton']}"
    head = "# Written by `python -m reference_impls.kernels.triton.tune --write`: right, and\n"
    head += f"# fastest on {on}.\n"
    head += "# By the widest head rows, columns, warps, stages.\n"
    MEASURED.write_text(head + table_text(with_these(MEASURED, device.architecture(), by_cell)))
    table_of.cache_clear()


def _begun(path: Path, head: Mapping[str, Any]) -> dict[str, Any]:
    """What a file holds of the same device, packages and code: those cells are done."""
    try:
        held = json.loads(path.read_text())
    except (OSError, ValueError):
        held = {}
    return dict(held if {name: held.get(name) for name in head} == head else head)


def _code() -> str:
    """Hash of the kernels and their table."""
    files = [*sorted(Path(__file__).parent.glob("*.py")), TABLE]
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def main(arguments: Sequence[str] | None = None) -> int:
    """Check, measure and write; 1 without a CUDA device, or where a tile of the table is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("tiles.json"))
    parser.add_argument("--lengths", type=int, nargs="+", default=list(LENGTHS))
    parser.add_argument("--only", action="append", help='part of "forward half 128"; repeatable')
    parser.add_argument("--write", action="store_true", help=f"the best into {MEASURED.name}")
    options = parser.parse_args(arguments)
    reason = device.usable()
    if reason or device.interpreted():
        print(f"nothing to tune: {reason or 'the interpreter is no device'}", file=sys.stderr)
        return 1
    import triton

    table = _begun(
        options.out,
        {
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "triton": triton.__version__,
            "code": _code(),
            "lengths": options.lengths,
        },
    )
    cells = {
        f"{kind} {numbers} {width}": (kind, numbers, width)
        for kind, by_numbers in table_of(device.architecture()).items()
        for numbers, by_width in by_numbers.items()
        for width in by_width
    }
    wrong = False
    for name, one in cells.items():
        if not any(part in name for part in options.only or [""]):
            continue
        known = name in table
        if not known:
            table[name] = cell(*one, options.lengths)
            written = options.out.with_suffix(".new")
            written.write_text(json.dumps(table, indent=1))
            written.replace(options.out)
        found = table[name]
        wrong |= found["now"] in found["dropped"]
        best = found["best"] or "none is right"
        print(f"{name}: {best}, now {found['now']}{', known' * known}", flush=True)
        for tile, reason in found["dropped"].items():
            print(f"  {tile} {reason}", flush=True)
        if options.write:
            write(table)
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
