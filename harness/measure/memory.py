"""Peak memory of one pass. Runs in children.

On the CPU: a process of its own whose allocator maps every larger block separately (so that freed
memory goes back at once), a warm-up pass, the kernel's high-water mark reset through
``/proc/self/clear_refs``, one pass, the mark read. ``ru_maxrss`` can't be reset, and hooks on
saved tensors miss what is not saved.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import torch

from harness import high_water
from harness.case import parse
from harness.measure.launches import count_launches
from harness.measure.run import prepare
from reference_impls.mechanism import Unsupported

ALLOCATOR = {"M_MMAP_THRESHOLD": 64 * 1024, "M_TRIM_THRESHOLD": 64 * 1024, "M_TOP_PAD": 0}
"""mallopt settings under which the high-water mark can be trusted."""


def cpu_peak(call: Any) -> tuple[int, int]:
    """Resident bytes before a call, and the peak during it.

    Raises
    ------
    Unsupported
        Where the kernel has no resettable high-water mark (anything but Linux).
    """
    before = high_water.reset()
    call()
    return before, high_water.read()


def memory_case(case: str, given: Sequence[str] = (), seed: int = 0) -> dict[str, Any]:
    """Peak memory of one warm pass of a case.

    Returns
    -------
    dict
        ``transient_bytes``: peak during the pass beyond what was held before it (for training the
        gradients are allocated in the pass and count); ``resident_bytes``: weights and input;
        ``peak_bytes``: their sum; ``launches`` of the warm-up pass, unless it is
        compiled. On CUDA also ``allocated_bytes``, ``reserved_bytes`` (peaks) and
        ``baseline_bytes``.
    """
    if parse(case).run_settings().graphed:
        raise Unsupported("a replayed CUDA graph allocates nothing: measure its memory eager")
    prepared = prepare(case, given, seed)
    row: dict[str, Any] = {"resident_bytes": prepared.resident_bytes}
    if prepared.case.run_settings().compile_mode:
        prepared.call()
    else:
        # Memory needs a warm-up pass anyway, and the clock must not see a counted one.
        row["launches"] = count_launches(prepared.call)
    prepared.reset()
    if prepared.case.problem.device == "cuda":
        torch.cuda.synchronize()
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        baseline = torch.cuda.memory_allocated()
        prepared.call()
        torch.cuda.synchronize()
        allocated = torch.cuda.max_memory_allocated()
        row |= {
            "method": "cuda caching allocator",
            "baseline_bytes": baseline,
            "allocated_bytes": allocated,
            "reserved_bytes": torch.cuda.max_memory_reserved(),
            "transient_bytes": allocated - baseline,
        }
    else:
        before, peak = cpu_peak(prepared.call)
        row |= {
            "method": "VmHWM after clear_refs",
            "baseline_bytes": before,
            "transient_bytes": max(0, peak - before),
        }
    row["peak_bytes"] = row["transient_bytes"] + row["resident_bytes"]
    return row
