"""Peak memory of one pass, and whether a pass fits in a limit. Runs in children.

On the CPU: a process of its own whose allocator maps every larger block separately (so that freed
memory goes back at once), a warm-up pass, the kernel's high-water mark reset through
``/proc/self/clear_refs``, one pass, the mark read. ``ru_maxrss`` can't be reset, and hooks on
saved tensors miss what is not saved.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from harness.case import parse
from harness.inputs import OUTPUT, is_finite
from harness.isolate import Wrong, processes
from harness.measure import gpu
from harness.measure.call import formula_bytes
from harness.measure.run import Prepared, count_launches, prepare
from harness.registry import Registry
from reference_impls.mechanism import Unsupported

NOISELESS_BYTES = 8 * 2**20
"""From here on a peak is read once: some hundred KiB are a few per cent of it."""
PAGE_BYTES = 4096


def cpu_peak(call: Callable[[], object]) -> tuple[int, int]:
    """Resident bytes before a call, and the peak during it; `Unsupported` without Linux."""
    before = processes.reset_peak()
    call()
    return before, processes.peak()


def memory_case(case: str, given: Sequence[str] = ()) -> dict[str, Any]:
    """Peak memory of one warm pass of a case.

    Returns
    -------
    dict
        ``transient_bytes``: peak during the pass beyond what was held before it (for training the
        gradients are allocated in the pass and count); ``resident_bytes``: weights and input;
        ``peak_bytes``: their sum; ``baseline_bytes``: what was held before, whosever it is;
        ``formula_bytes``: what `formula_bytes` says of the first; ``floor_bytes`` as of
        `noise_beside`; ``launches`` of the warm-up pass, unless it is compiled, or ``uncounted``:
        why they can't be counted. On CUDA also ``allocated_bytes``, ``reserved_bytes`` (peaks),
        ``reserved_baseline_bytes``, and what `gpu.growth` gives.
    """
    if parse(case).run_settings().graphed:
        raise Unsupported("a replayed CUDA graph allocates nothing: measure its memory eager")
    prepared = prepare(case, given)
    launches: dict[str, Any] = {}
    if prepared.case.run_settings().compile_mode:
        prepared.call()
    else:
        # Memory needs a warm-up pass anyway, and the clock must not see a counted one.
        try:
            launches["launches"] = count_launches(prepared.call)
        except NotImplementedError as error:
            # FlexAttention's operator is compiled inside. A module's own error comes again here.
            launches["uncounted"] = str(error).splitlines()[0]
            prepared.call()
    row = peak_of(prepared, formula_bytes(prepared.case, Registry(given)))
    return launches | row | noise_beside(row, prepared)


def noise_beside(row: Mapping[str, Any], prepared: Prepared) -> dict[str, int]:
    """``floor_bytes`` of a small reading: what the same pass reads next differs by.

    A first pass after the warm-up touches code and caches that no later one touches again, some
    dozen to some hundred KiB of them; a whole page is the least that the kernel can tell. Nothing
    for a large reading, and on CUDA, whose allocator counts to the byte.
    """
    if prepared.case.problem.device == "cuda" or row["peak_bytes"] > NOISELESS_BYTES:
        return {}
    again = [peak_of(prepared, None)["transient_bytes"] for _ in range(2)]
    readings = [row["transient_bytes"], *again]
    return {"floor_bytes": max(PAGE_BYTES, max(readings) - min(readings))}


def peak_of(prepared: Prepared, formula: float | None) -> dict[str, Any]:
    """Peak memory of the next pass of a case that is warm; see `memory_case`."""
    prepared.reset()
    row: dict[str, Any] = {"resident_bytes": prepared.resident_bytes, "formula_bytes": formula}
    if prepared.case.problem.device == "cuda":
        row |= _cuda_peak(prepared.call)
    else:
        before, peak = cpu_peak(prepared.call)
        row |= {
            "method": "VmHWM after clear_refs",
            "baseline_bytes": before,
            "transient_bytes": max(0, peak - before),
        }
    row["peak_bytes"] = row["transient_bytes"] + row["resident_bytes"]
    return row


def _cuda_peak(call: Callable[[], None]) -> dict[str, Any]:
    torch.cuda.synchronize()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    baseline, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    before = gpu.process_bytes(), _device_used()
    call()
    torch.cuda.synchronize()
    allocated = torch.cuda.max_memory_allocated()
    return {
        "method": "cuda caching allocator",
        "baseline_bytes": baseline,
        "allocated_bytes": allocated,
        "reserved_baseline_bytes": reserved,
        "reserved_bytes": torch.cuda.max_memory_reserved(),
        "transient_bytes": allocated - baseline,
        # The allocator gives nothing back during a pass: what it took at most it has still got.
        **gpu.growth(before, (gpu.process_bytes(), _device_used())),
    }


def device_memory() -> dict[str, int]:
    """Free and total bytes of the GPU."""
    free, total = torch.cuda.mem_get_info()
    return {"free": int(free), "total": int(total)}


def _device_used() -> int:
    now = device_memory()
    return now["total"] - now["free"]


def probe_case(case: str, memory_bytes: int, given: Sequence[str] = ()) -> dict[str, Any]:
    """Two passes of a case: a cold one, and one whose peak and time are taken.

    On CUDA torch's allocator is held to the limit; on the CPU the caller's limit on data does that.
    Of an output that is not finite it is `Wrong`.

    Returns
    -------
    dict
        What `memory.peak_of` gives; ``pass_seconds`` of the second pass (on the CPU under the
        allocator that memory is measured with, whose page faults count) and ``cold_seconds`` of
        the first, in which code is compiled.
    """
    if parse(case).run_settings().graphed:
        raise Unsupported("a replayed CUDA graph allocates nothing: probe it eager")
    cuda = parse(case).problem.device == "cuda"
    if cuda:
        total = device_memory()["total"]
        torch.cuda.set_per_process_memory_fraction(min(1.0, memory_bytes / total))
    prepared = prepare(case, given)
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
    if not is_finite(prepared.results()[OUTPUT]):
        raise Wrong("output is not finite")
    return {**row, "cold_seconds": passes[0], "pass_seconds": passes[1]}
