"""Time and peak memory of a run, of all its pieces where it was killed and went on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from harness import high_water
from reference_impls.mechanism import Unsupported


class Spent:
    """Counts from here on; memory beyond what loaded data, libraries and weights take.

    Parameters
    ----------
    device : torch.device
    began : float
        When the run began, by `time.perf_counter`.
    """

    def __init__(self, device: torch.device, began: float) -> None:
        self._cuda = device.type == "cuda"
        self._began = began
        self._why = ""
        self._before = 0
        self._earlier: Mapping[str, Any] = {"seconds": 0.0, "peak_bytes": 0}
        if self._cuda:
            torch.cuda.reset_peak_memory_stats(device)
            self._before = torch.cuda.memory_allocated(device)
            return
        try:
            self._before = high_water.reset()
        except Unsupported as error:
            self._why = str(error)

    def go_on(self, earlier: Mapping[str, Any]) -> None:
        """Add what `read` said when an earlier piece of the run was saved."""
        self._earlier = earlier

    def read(self) -> dict[str, Any]:
        """``seconds``, ``peak_bytes`` and ``memory_method``.

        Where the peak can't be measured it is None, and the method says why.
        """
        seconds = self._earlier["seconds"] + time.perf_counter() - self._began
        if self._why:
            return {"seconds": seconds, "peak_bytes": None, "memory_method": self._why}
        if self._cuda:
            peak, method = torch.cuda.max_memory_allocated(), "cuda caching allocator"
        else:
            peak, method = high_water.read(), "VmHWM after clear_refs"
        if self._earlier["peak_bytes"] is None:
            why = f"an earlier piece of the run could not: {self._earlier['memory_method']}"
            return {"seconds": seconds, "peak_bytes": None, "memory_method": why}
        most = max(peak - self._before, self._earlier["peak_bytes"])
        return {"seconds": seconds, "peak_bytes": most, "memory_method": method}
