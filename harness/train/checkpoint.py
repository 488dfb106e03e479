"""Where a run in the middle stands, on disk: written whole or not at all, and never executed."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from harness.errors import UsageError

VERSION = 1
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
        draft = self.path.with_name(self.path.name + ".new")
        try:
            # A full disk under torch's own writer is a RuntimeError like any mistake in the state.
            whole = io.BytesIO()
            torch.save({"version": VERSION, "run": self.run, "state": dict(state)}, whole)
            with self._opened(draft) as file:
                file.write(whole.getbuffer())
                file.flush()
                os.fsync(file.fileno())
            draft.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):  # what is told is why it could not be written
                draft.unlink(missing_ok=True)
            raise UsageError(
                f"can't write the checkpoint {self.path}: {error.strerror}; free some space and "
                "start again"
            ) from None
        self._written = time.monotonic()

    def _opened(self, draft: Path) -> BinaryIO:
        while True:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                return draft.open("wb")
            except FileNotFoundError:
                continue  # a session that ended took the folder away, for it was empty

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
