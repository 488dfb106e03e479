"""What only a process with torch can tell of this machine. Runs in children."""

from __future__ import annotations

import time
from typing import Any

import torch

from harness.errors import UsageError
from harness.verify.batches import Batch, ragged
from harness.verify.check import check_drawn, chosen

LAUNCHED = Batch("two heads of 75, N=65", {"heads": 2}, ragged(65), head_width=75)
"""On a GPU a few kernels: all that are verified take the compiler minutes."""
CLOSE = 1e-4
"""Of sums of 4,096 float32 numbers of size 1; a wrong kernel is off by far more."""


def seen() -> dict[str, Any]:
    """What torch sees of CUDA.

    Returns
    -------
    dict
        ``torch`` and ``built`` (the CUDA it is built for, or None), ``archs`` that it has code for,
        ``error`` (why CUDA can't be begun; empty where it can, or was not built), and ``gpus``:
        ``name``, ``capability``, ``bytes``, ``free_bytes`` and ``shared_bytes`` (of one
        multiprocessor) of each.
    """
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "built": torch.version.cuda,
        "archs": [],
        "error": "",
        "gpus": [],
    }
    if torch.version.cuda is None:
        return found
    try:
        torch.cuda.init()
    except RuntimeError as error:
        return {**found, "error": str(error).splitlines()[0]}
    for number in range(torch.cuda.device_count()):
        told = torch.cuda.get_device_properties(number)
        found["gpus"].append(
            {
                "name": told.name,
                "capability": [told.major, told.minor],
                "bytes": told.total_memory,
                "free_bytes": torch.cuda.mem_get_info(number)[0],
                "shared_bytes": told.shared_memory_per_multiprocessor,
            }
        )
    return {**found, "archs": torch.cuda.get_arch_list()}


def compiled(device: str) -> dict[str, float]:
    """Compile a small function with torch.compile and compare it with the same uncompiled.

    Raises
    ------
    UsageError
        If they differ.
    """

    def small(x: torch.Tensor) -> torch.Tensor:
        return (torch.sigmoid(x) * x).sum(-1)

    x = torch.linspace(-1, 1, 64 * 4096, device=device).reshape(64, 4096)
    began = time.perf_counter()
    found = torch.compile(small)(x)
    seconds = time.perf_counter() - began
    apart = float((found - small(x)).abs().max() / small(x).abs().max())
    if not apart < CLOSE:
        raise UsageError(f"compiled code is off by {apart:.1e} of the largest value")
    return {"seconds": seconds, "apart": apart}


def launched(name: str, device: str) -> dict[str, int]:
    """Verify one batch of an implementation whose kernel is compiled here, in float32.

    Raises
    ------
    UsageError
        If a value or a gradient is over budget.
    """
    mechanism, implementation = chosen(name, device, (), None)
    found = check_drawn(mechanism, implementation, LAUNCHED, "f32", device)
    if over := [one.what for one in found if not one.ok]:
        raise UsageError(f"{name}: {len(over)} of {len(found)} results are wrong, first: {over[0]}")
    return {"comparisons": len(found)}
