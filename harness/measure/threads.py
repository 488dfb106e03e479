"""Under which threads and on which cores a sample was taken, and whether that held to the end."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.build import cores_available
from harness.isolate import Wrong


def refuse_other_threads(wanted: int, cores: Sequence[int] | None) -> None:
    """Raise if what was set before the samples is not what stands after them.

    Parameters
    ----------
    wanted : int
        Threads that the case's settings ask for.
    cores : sequence of int or None
        From `harness.build.cores_available`, before the samples.

    Raises
    ------
    Wrong
    """
    threads = torch.get_num_threads()
    if threads != wanted:
        raise Wrong(f"ran with {threads} threads; {wanted} were set", {"threads": threads})
    now = cores_available()
    if now != cores:
        raise Wrong(f"ended on cores {ranges(now or ())}; began on {ranges(cores or ())}")


def ranges(numbers: Sequence[int]) -> str:
    """Write sorted numbers in short.

    >>> ranges([0, 1, 2, 3, 8])
    '0-3,8'
    """
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], number]
        else:
            runs.append([number])
    return ",".join("-".join(map(str, run)) for run in runs)
