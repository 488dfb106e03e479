"""Measure tiles of the Triton kernels: python -m reference_impls.kernels.triton.tune [--out FILE].

For each kernel, kind of numbers and width of heads, every candidate of
`reference_impls.kernels.triton.tiles` is held against float64, values and gradients, under every
kind of mask, at the papers' heads of 75 and 300 too; what is right is timed on several problems,
all tiles in turn and the level-two cache flushed before each repeat. The best, by the mean of
logarithms over the problems, is written as JSON beside the tile of the table, for a person to carry
over, with the reason why each other one was dropped. It needs a CUDA device, and for every
candidate a few seconds of the compiler. Stopped and started again it goes on with the next cell; of
one that was begun the compiler's part is in Triton's cache. Exit code 1: a tile of the table is not
right.
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
from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from reference_impls.kernels import underflow
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.kernels.triton import device
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import KINDS, TABLE, Kind, Numbers, Tile, candidates
from reference_impls.kernels.triton.tiles import tiles as table_of
from reference_impls.masks import parse_all
from reference_impls.mechanism import Unsupported

if TYPE_CHECKING:
    from reference_impls.kernels.triton.launch import Launch

DTYPES: dict[Numbers, torch.dtype] = {"half": torch.bfloat16, "single": torch.float32}
MASKS: Mapping[str, tuple[str, ...]] = {
    "directional": ("forward", "backward"),
    "window": ("window:100", "window:7"),
    "all": ("none", "diagonal"),
}
"""Kinds of masks, of every second head; each one is checked with padding too."""
PAIRS = {"checked": 1, "timed": 4}
"""Pairs of heads."""
LENGTHS = (1024, 8192)
CHECKED = 257
"""Tokens where values and gradients are held against float64: edges of every tile are in it."""
CHECKED_WIDTHS: Mapping[int, tuple[int, ...]] = {80: (80, 75), 320: (320, 300)}
"""Of heads, by the cell: the papers' are narrower than theirs. Other cells have their own alone."""
LARGEST: Mapping[Numbers, float] = {"half": 3e-2, "single": 2e-5}
"""Errors that are allowed, over the largest number of the tensor."""
WARM, REPEATS = 3, 30
FLUSHED = 256 * 2**20
"""Bytes that are written before each repeat, several times a level-two cache."""


def problem(
    numbers: Numbers, width: int, length: int, masks: str, padded: bool, on: str, use: str
) -> tuple[KernelCall, Tensor]:
    """A call of two samples, and the gradient of what it returns [H, B, N, d]."""
    draw = torch.Generator().manual_seed(length + width)
    of_heads = MASKS[masks] * PAIRS[use]
    shape = (len(of_heads), 2, length, width)
    *leaves, g = (torch.randn(shape, generator=draw).to(on, DTYPES[numbers]) for _ in range(5))
    q, k, v, s = leaves
    q = q / math.sqrt(width)
    mask = None
    if padded:
        mask = torch.ones(2, length, dtype=torch.bool, device=on)
        mask[-1, 2 * length // 3 :] = False
    geometry = of_masks(parse_all(of_heads, len(of_heads)), length, q.device)
    return KernelCall(q, k, v, s, geometry, mask, "log_sigmoid"), g


def reference(call: KernelCall, g: Tensor) -> dict[str, Tensor]:
    """Values and gradients in float64, every query by itself: nothing of the kernels is in it."""
    leaves = [t.double().requires_grad_() for t in call[:4] if t is not None]
    geometry = Geometry(*call.geometry)
    q, k, v, s = leaves
    exact = KernelCall(q, k, v, s, geometry, *call[5:])
    seen = geometry.open_keys(g.shape[2], call.mask).expand(g.shape[:3]) > 0
    if call.mask is not None:
        seen = seen & call.mask
    where = seen.flatten().nonzero().squeeze(1)
    a = underflow.recomputed(where, exact)
    found = torch.autograd.grad(a, leaves, g.double().flatten(0, 2)[where])
    values = torch.zeros_like(g, dtype=torch.float64).flatten(0, 2)
    values[where] = a.detach()
    named = zip(("dq", "dk", "dv", "ds"), found, strict=True)
    return {"a": values.unflatten(0, g.shape[:3]), **dict(named)}


def computed(kind: Kind, tile: Tile, call: KernelCall, g: Tensor) -> dict[str, Tensor]:
    """What the kernels make of it, one of them with this tile, the others with the table's."""
    from reference_impls.kernels.triton import launch

    given = Inputs(call, precise=call.q.dtype == torch.float32)
    found = launch.Outputs.of(given, save=True)
    own = {one: given.tile(one) for one in KINDS} | {kind: tile}
    for one in launch.forward(given, found, True, own["forward"]):
        one.run()
    gradients = given.gradients()
    tiles = own["query_gradient"], own["key_gradient"]
    for one in launch.backward(given, found, g, gradients, tiles):
        one.run()
    named = zip(("dq", "dk", "dv", "ds"), gradients, strict=True)
    return {"a": found.out.permute(2, 0, 1, 3), **dict(named)}


def why_not(kind: Kind, numbers: Numbers, width: int, tile: Tile, on: str) -> str:
    """Why a tile may not win, in one line; empty where all it computes is right."""
    from triton.errors import TritonError

    own = CHECKED_WIDTHS.get(width, (width,))
    for one, masks, padded in product(own, MASKS, (False, True)):
        where = f"heads of {one}, {masks}{', padded' if padded else ''}"
        call, g = problem(numbers, one, CHECKED, masks, padded, on, "checked")
        try:
            found = computed(kind, tile, call, g)
        except (Unsupported, TritonError, RuntimeError) as error:
            return f"does not run: {' '.join(str(error).split())[:200]} ({where})"
        for name, right in _references(numbers, one, masks, padded, on).items():
            off = float((found[name] - right).abs().max() / right.abs().max())
            if not off <= LARGEST[numbers]:  # NaN neither
                return f"wrong: {name} is off by {off:.1e} of its largest ({where})"
    return ""


@lru_cache(4 * len(MASKS))
def _references(numbers: Numbers, width: int, masks: str, padded: bool, on: str) -> dict[str, Any]:
    """`reference` of a problem, made once for all tiles of a cell."""
    return reference(*problem(numbers, width, CHECKED, masks, padded, on, "checked"))


def launches(kind: Kind, tiles: Sequence[Tile], call: KernelCall, g: Tensor) -> dict[Tile, Launch]:
    """One kernel of the same tensors with each tile; what comes before it has run."""
    import triton

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
            programs=heads * batch * triton.cdiv(n, tile.rows),
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
    dropped: dict[Tile, str] = {}
    right = []
    for tile in dict.fromkeys((now, *candidates(kind, numbers, width, capability))):
        if reason := why_not(kind, numbers, width, tile, on):
            dropped[tile] = reason
        else:
            right.append(tile)
    found: dict[str, Any] = {
        "now": str(now),
        "repeats": REPEATS,
        "right": len(right),
        "dropped": {str(tile): reason for tile, reason in dropped.items()},
    }
    if not right:
        return found | {"best": None}
    medians: dict[str, dict[Tile, float]] = {}
    for length in lengths:
        for masks in MASKS:
            call, g = problem(numbers, width, length, masks, False, on, "timed")
            times = timed(launches(kind, right, call, g))
            medians[f"{masks} N{length}"] = {t: statistics.median(ms) for t, ms in times.items()}
    # By the mean logarithm over all problems.
    best = min(right, key=lambda tile: sum(math.log(times[tile]) for times in medians.values()))
    return found | {
        "best": str(best),
        "milliseconds": {
            name: {"best": times[best], "now": times.get(now)} for name, times in medians.items()
        },
    }


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
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
