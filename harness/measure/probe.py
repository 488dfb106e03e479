"""One probe of the frontier: can this case make a pass within a memory limit? Runs in children."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch

from harness.case import parse
from harness.isolate import Wrong
from harness.measure.memory import formula_bytes, peak_of
from harness.measure.run import prepare
from harness.registry import Registry
from reference_impls.mechanism import Unsupported


def device_memory() -> dict[str, int]:
    """Free and total bytes of the GPU."""
    free, total = torch.cuda.mem_get_info()
    return {"free": int(free), "total": int(total)}


def probe_case(
    case: str, memory_bytes: int, given: Sequence[str] = (), seed: int = 0
) -> dict[str, Any]:
    """Two passes of a case: a cold one, and one whose peak and time are taken.

    On CUDA torch's allocator is held to the limit; on the CPU the caller's limit on data does that.

    Returns
    -------
    dict
        What `memory.peak_of` gives; ``pass_seconds`` of the second pass (on the CPU under the
        allocator that memory is measured with, whose page faults count) and ``cold_seconds`` of
        the first, in which code is compiled.

    Raises
    ------
    Wrong
        If the output is not finite.
    """
    if parse(case).run_settings().graphed:
        raise Unsupported("a replayed CUDA graph allocates nothing: probe it eager")
    cuda = parse(case).problem.device == "cuda"
    if cuda:
        total = device_memory()["total"]
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_bytes / total))
    prepared = prepare(case, given, seed)
    passes: list[float] = []
    run = prepared.call

    def timed() -> None:
        began = time.perf_counter()
        run()
        if cuda:
            torch.cuda.synchronize()
        passes.append(time.perf_counter() - began)

    timed()
    prepared.call = timed
    row = peak_of(prepared, formula_bytes(prepared.case, Registry(given)))
    if not bool(torch.isfinite(prepared.output()).all()):
        raise Wrong("output is not finite")
    return {**row, "cold_seconds": passes[0], "pass_seconds": passes[1]}
