"""Whether a tile of the Triton kernels runs, and whether what it computes is right.

Asked of children, several at a time: a kernel that reads where nothing is ends its whole process.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import lru_cache
from itertools import product
from typing import Any

import torch
from torch import Tensor

from reference_impls.kernels import underflow
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import KINDS, Kind, Numbers, Tile
from reference_impls.masks import parse_all
from reference_impls.mechanism import Unsupported

DTYPES: dict[Numbers, torch.dtype] = {"half": torch.bfloat16, "single": torch.float32}
MASKS: Mapping[str, tuple[str, ...]] = {
    "directional": ("forward", "backward"),
    "window": ("window:100", "window:7"),
    "all": ("none", "diagonal"),
}
"""Kinds of masks, of every second head; each one is checked with padding too."""
PAIRS = {"checked": 1, "timed": 4}
"""Pairs of heads."""
CHECKED = 257
"""Tokens where values and gradients are held against float64: edges of every tile are in it."""
LAUNCHED = 1024
"""Tokens of a launch that is only tried: so many that its code is that of those that are timed."""
CHECKED_WIDTHS: Mapping[int, tuple[int, ...]] = {80: (80, 75), 320: (320, 300)}
"""Of heads, by the cell: the papers' are narrower than theirs. Other cells have their own alone."""
LARGEST: Mapping[Numbers, float] = {"half": 3e-2, "single": 2e-5}
"""Errors that are allowed, over the largest number of the tensor."""
CHILD_SECONDS = 300.0
"""Then a child is given up, at the tile that it is at."""


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


def why_not_run(kind: Kind, numbers: Numbers, width: int, tile: Tile, on: str) -> str:
    """Why launches with a tile fail; empty where they do not."""
    call, g = problem(numbers, width, LAUNCHED, "directional", False, on, "timed")
    try:
        computed(kind, tile, call, g)
        torch.cuda.synchronize()
    except Unsupported as error:
        return f"does not run: {error}"
    return ""


QUESTIONS = {"run": why_not_run, "check": why_not}


def asked(
    what: str, kind: Kind, numbers: Numbers, width: int, tiles: Sequence[Tile]
) -> dict[Tile, str]:
    """What is wrong with each tile, empty where nothing is, asked of children.

    One that dies takes no tile with it but the one that it was at.

    Parameters
    ----------
    what : {"run", "check"}
        One launch, or `why_not`.
    """
    # `why_not` tells of a crash itself, and behind one nothing runs: a child for each tile then.
    children = len(tiles) if what == "check" else min(len(tiles), os.cpu_count() or 1)

    def some(mine: list[Tile]) -> dict[Tile, str]:
        found: dict[Tile, str] = {}
        while left := [tile for tile in mine if tile not in found]:
            line = [sys.executable, "-m", __spec__.name, what, kind, numbers, str(width)]
            line += [",".join(map(str, astuple(tile))) for tile in left]
            try:
                done = subprocess.run(line, capture_output=True, text=True, timeout=CHILD_SECONDS)
                said, last = done.stdout, (done.stderr.strip().splitlines() or [""])[-1]
            except subprocess.TimeoutExpired as late:
                said = late.stdout.decode() if isinstance(late.stdout, bytes) else ""
                last = f"not done in {CHILD_SECONDS:.0f} s"
            answers = [json.loads(answer) for answer in said.splitlines() if answer[:1] == "["]
            found |= {Tile(*tile): reason for tile, reason in answers}
            if len(answers) < len(left):
                found[left[len(answers)]] = f"does not run: {last[:200]}"
        return found

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        parts = pool.map(some, [list(tiles[i::children]) for i in range(children)])
        return {tile: reason for part in parts for tile, reason in part.items()}


def main(given: Sequence[str]) -> int:
    """Answer `asked`: a line for each tile, as soon as it is known."""
    what, kind, numbers, width, *tiles = given
    for text in tiles:
        tile = Tile(*map(int, text.split(",")))
        own: Any = (kind, numbers, int(width), tile, "cuda")
        print(json.dumps([astuple(tile), QUESTIONS[what](*own)]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
