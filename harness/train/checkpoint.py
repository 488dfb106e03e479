"""What a killed run leaves: the file in which it goes on, its time and its peak memory."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from harness.errors import UsageError
from harness.isolate import processes
from harness.json_file import replace_file
from reference_impls.mechanism import Unsupported

VERSION = 3
"""Of what a state holds; a file of another version is refused."""


class Checkpoint:
    """The file of one run.

    Parameters
    ----------
    path : Path
        Its folder is made when it is needed.
    run : mapping
        What the run is, as JSON can hold it; a file of another run is refused.
    seconds : float
        Least time between two writes.
    """

    def __init__(self, path: Path, run: Mapping[str, Any], seconds: float) -> None:
        self.path, self.run, self.seconds = path, dict(run), seconds
        self._written = time.monotonic()

    def due(self) -> bool:
        """Whether it is time to write."""
        return time.monotonic() - self._written >= self.seconds

    def save(self, state: Mapping[str, Any]) -> None:
        """Replace the file; killed at any moment, either the old or the new one is there.

        Raises
        ------
        UsageError
            If it can't be written.
        """
        try:
            # A full disk under torch's own writer is a RuntimeError like any mistake in the state.
            whole = io.BytesIO()
            torch.save({"version": VERSION, "run": self.run, "state": dict(state)}, whole)
            # The worker of a session that was killed may still be writing its own.
            replace_file(self.path, whole.getbuffer())
        except OSError as error:
            raise UsageError(
                f"can't write the checkpoint {self.path}: {error.strerror}; free some space and "
                "start again"
            ) from None
        self._written = time.monotonic()

    def load(self) -> dict[str, Any] | None:
        """The state that was saved, on the CPU; None without a file.

        Raises
        ------
        UsageError
            If the file is damaged, of another run or of another version.
        """
        hint = "delete it, and the run starts from its beginning"
        try:
            found = torch.load(self.path, map_location="cpu", weights_only=True)
        except FileNotFoundError:
            return None
        except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
            # Torch's own text advises to load without its safety; it is long, and only a cause.
            raise UsageError(f"can't read the checkpoint {self.path}; {hint}") from error
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise UsageError(f"the checkpoint {self.path} is of another attnbench; {hint}")
        if found.get("run") != self.run:
            raise UsageError(f"the checkpoint {self.path} is of another run; {hint}")
        state: dict[str, Any] = found["state"]
        return state


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
            self._before = processes.reset_peak()
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
        most, method, before = None, self._why, self._earlier["peak_bytes"]
        if not method and before is None:
            method = f"an earlier piece of the run could not: {self._earlier['memory_method']}"
        elif not method:
            if self._cuda:
                peak, method = torch.cuda.max_memory_allocated(), "cuda caching allocator"
            else:
                peak, method = processes.peak(), "VmHWM after clear_refs"
            most = max(peak - self._before, before)
        return {"seconds": seconds, "peak_bytes": most, "memory_method": method}
