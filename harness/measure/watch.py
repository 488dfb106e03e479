"""What is done around the samples of a case, so that nothing but its work can make it fast.

Before each one its inputs are written anew. Behind a few, which nobody can foretell, some numbers
of everything it gave are kept, for another process to compute again. Runs in children.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time, sleep
from typing import Any

import torch

from harness.inputs import (
    SPARE,
    Inputs,
    Pool,
    Source,
    below,
    buffers,
    positions,
    random_numbers,
    room,
    secret,
)
from harness.measure.checks import Told, wrong
from harness.measure.run import Prepared

LOOKS = 3
"""How many samples of a case are looked at in a block, where a call is short."""
LONG_SAMPLE = 0.02
"""Seconds; of samples that take longer one is looked at: each costs a call elsewhere."""
QUIET = 1e-3
"""Seconds that are waited for other threads at a time, until they do nothing."""
PATIENCE = 0.02
STILL = 0.25
"""Share of a wait in which others may run; more is work."""


@dataclass(frozen=True)
class Look:
    """What was seen behind one sample.

    Attributes
    ----------
    sample, calls : int
        Number of the sample, and of its calls; the values are those of the last one.
    seed : int
        Of the sample's inputs, and of torch's random numbers before it.
    moved : bool
        Whether it drew random numbers.
    values : dict
        By name of a result its shape, and the numbers at its `positions`.
    """

    sample: int
    calls: int
    seed: int
    moved: bool
    values: dict[str, tuple[list[int], list[float]]]


class Watch:
    """Watches over the samples of one case; see `harness.measure.cpu_clock.Around`.

    Parameters
    ----------
    prepared : Prepared
        Warm.
    once : float
        Seconds of a call.
    on : collection of str
        The checks that act.
    looking : bool
        Whether results are looked at; else inputs are new, and that is all.
    synchronize : callable, optional
        Waits for what a call left to do on a device.

    Attributes
    ----------
    call, once : callable, float
        What is timed, and the seconds it takes.
    looks : list of Look
    """

    def __init__(
        self,
        prepared: Prepared,
        once: float,
        on: Collection[str],
        looking: bool = True,
        synchronize: Callable[[], None] | None = None,
    ) -> None:
        self.looks: list[Look] = []
        self.call, self.once = prepared.call, once
        self._prepared, self._on, self._looking = prepared, on, looking
        self._synchronize = synchronize
        self._source = Source(prepared.case, prepared.output_kind, secret(64))
        problem = prepared.case.problem
        self._random = random_numbers(problem.device)
        self._one_thread = problem.device == "cpu" and prepared.case.run_settings().threads == 1
        self._training = problem.phase == "training"
        self._seed, self._taken = secret(64), 0
        self._wanted: set[int] = set()
        self._picked: dict[str, tuple[int, torch.Tensor]] = {}
        self._seeded = self._ended = self._random.get_state()
        self._fixed: list[Inputs] = []

    def evidence(self) -> dict[str, Any]:
        """What another process needs to compute the same."""
        return {"secret": self._source.seed, "looks": [asdict(look) for look in self.looks]}

    def begin(self, calls: int, least: int, planned: int) -> int:
        """Make the pool, and draw which samples are looked at."""
        calls = min(calls, room(self._source))
        graphed = self._prepared.graphed
        held = (
            buffers(self._source, calls + SPARE, self._training) if graphed is None else [graphed]
        )
        self._pool = Pool(self._source, held)
        if "fresh-inputs" not in self._on:
            self._fixed = self._pool.write(self._seed, 1)
        if self._looking:
            more = LOOKS - 1 if self.once * calls < LONG_SAMPLE else 0
            self._wanted = {below(least), *(below(planned) for _ in range(more))}
        return calls

    def before(self, calls: int) -> Sequence[Inputs]:
        """New inputs; maybe fewer calls than planned where the last one is looked at."""
        looked = self._taken in self._wanted
        if looked:
            calls = 1 + below(calls)
        if not self._fixed:
            self._seed = secret(64)
        batch = self._fixed * calls or self._pool.write(self._seed, calls)
        if looked:
            self._picked = {
                name: (size, torch.tensor(positions(self._seed, name, size)).to(found.device))
                for name, found in self._prepared.results().items()
                for size in [found.numel()]
            }
        self._random.manual_seed(self._seed)
        if looked:
            self._seeded = self._random.get_state()
            self._calls = 1 if self._fixed else calls
        return batch

    def after(self) -> None:
        """Look at what the last call left, at once and when nothing works any more."""
        sample = self._taken
        self._taken += 1
        if sample not in self._wanted:
            return
        found = self._prepared.results()
        first = self._read(found)
        self._wait()
        second = self._read(found)
        for name, values in first.items():
            if "late-values" in self._on and not _same(values, second[name]):
                raise wrong(
                    "late-values",
                    f"{name} of sample {sample} still changed when the clock had stopped",
                )
        ended = self._random.get_state()
        moved = not torch.equal(ended, self._seeded)
        if "state" in self._on and moved and torch.equal(ended, self._ended):
            raise Told("state", "it sets the seed of torch's random numbers for the whole process")
        self._ended = ended
        kept = {
            name: (list(found[name].shape), read.double().tolist()) for name, read in second.items()
        }
        self.looks.append(Look(sample, self._calls, self._seed, moved, kept))

    def _read(self, found: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The numbers that are looked at; of what has another size than before, none."""
        read = {}
        for name, result in found.items():
            size, picked = self._picked.get(name, (0, _NONE))
            read[name] = torch.take(result.detach(), picked if size == result.numel() else _NONE)
        return read

    def _wait(self) -> None:
        """Wait for the device, and until no thread but this one runs."""
        if self._synchronize is not None:
            self._synchronize()
            return
        begun = perf_counter()
        while perf_counter() - begun < PATIENCE:
            spent, now = process_time(), perf_counter()
            sleep(QUIET)
            busy = process_time() - spent
            if busy < STILL * (perf_counter() - now):
                return
            # Threads of OpenMP stay awake for a while when they have nothing to do.
            if "late-values" in self._on and self._one_thread:
                raise wrong(
                    "late-values",
                    f"another thread still worked for {busy:.2g} s when the clock had stopped",
                )


_NONE = torch.zeros(0, dtype=torch.int64)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bitwise, but for the sign of zero; NaN is NaN."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
