"""Measure tiles of the Triton kernels: python -m reference_impls.kernels.triton.tune [--out FILE].

For each kernel, kind of numbers and width of heads every candidate of
`reference_impls.kernels.triton.tiles` is timed on one problem; what is best is written as JSON
beside the tile of the table, for a person to carry over. It needs a CUDA device, and for every
candidate a few seconds of the compiler.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.triton import device, triton_forward
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import TILES, Kind, Numbers, Tile, candidates
from reference_impls.masks import parse_all
from reference_impls.mechanism import Unsupported

DTYPES: dict[Numbers, torch.dtype] = {"half": torch.bfloat16, "single": torch.float32}
REPEATS = 7


def measure(kind: Kind, numbers: Numbers, width: int, tile: Tile, length: int) -> float | None:
    """Median milliseconds of one kernel; None where the device refuses the tile.

    Eight heads, half of them looking back and half ahead, one sample.
    """
    import triton

    from reference_impls.kernels.triton import launch

    torch.manual_seed(0)
    dtype = DTYPES[numbers]
    q, k, v, s, g = (torch.randn(8, 1, length, width, device="cuda", dtype=dtype) for _ in range(5))
    geometry = of_masks(parse_all(None, 8), length, q.device)
    call, precise = KernelCall(q, k, v, s, geometry, None, "log_sigmoid"), numbers == "single"
    given = Inputs(call, precise)
    found = launch.Outputs(*triton_forward(*call.flat(), precise, True))
    if kind == "forward":
        launches = launch.forward(given, found, True, tile)
    else:
        gradients = [torch.empty_like(t) for t in (q, k, v, s)]
        launches = launch.backward(given, found, g, gradients, (tile, tile))
        if kind == "query_gradient":
            launches = launches[:-1]
    *before, last = launches
    for kernel in before[:2]:  # weighed values, cotangents
        kernel.run()
    try:
        last.run()
    except (Unsupported, triton.runtime.errors.PTXASError):
        return None
    times = []
    for _ in range(REPEATS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        last.run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end))
    return statistics.median(times)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; 1 where there is no CUDA device."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("tiles.json"))
    parser.add_argument("--length", type=int, default=8192)
    parser.add_argument("--only", default="", help='for example "forward half 128"')
    options = parser.parse_args(arguments)
    reason = device.usable()
    if reason or device.interpreted():
        print(f"nothing to tune: {reason or 'the interpreter is no device'}", file=sys.stderr)
        return 1
    table: dict[str, Any] = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    for kind, by_numbers in TILES.items():
        for numbers, by_width in by_numbers.items():
            for width, now in by_width.items():
                if options.only not in f"{kind} {numbers} {width}":
                    continue
                times = {
                    tile: time
                    for tile in {now, *candidates(kind, numbers, width)}
                    if (time := measure(kind, numbers, width, tile, options.length)) is not None
                }
                if not times:
                    continue
                best = min(times, key=lambda tile: times[tile])
                table[f"{kind} {numbers} {width}"] = {
                    "best": vars(best),
                    "milliseconds": times[best],
                    "now": vars(now),
                    "milliseconds_now": times.get(now),
                }
                print(f"{kind} {numbers} {width}: {best} {times[best]:.3f} ms", flush=True)
                options.out.write_text(json.dumps(table, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
