"""What is done around the samples of a case, so that nothing but its work can make it fast.

Before each one its inputs are written anew. Behind a few, which nobody can foretell, some numbers
of everything it gave are kept, for another process to compute again. Runs in children.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter, process_time, sleep, thread_time
from typing import Any

import torch

from harness.inputs import (
    INPUT,
    SPARE,
    InputPool,
    Inputs,
    InputSource,
    below,
    buffers,
    positions,
    random_numbers,
    room,
    secret,
)
from harness.measure.checks import Meddling, wrong
from harness.measure.cpu_clock import Around
from harness.measure.run import Prepared

LOOKS = 3
"""What was seen behind so many samples of a case is kept in a block, where a call is short."""
LONG_CALL = 0.02
"""Seconds; of longer ones one is kept: each is computed again elsewhere."""
QUIET = 1e-3
"""Seconds that are waited for other threads at a time, until they do nothing."""
PATIENCE = 0.02
STILL = 1e-4
"""Seconds of processor time that others may take meanwhile; more is work."""


@dataclass(frozen=True)
class Glimpse:
    """What was seen behind the last call of one sample.

    The seed is that of the sample's inputs, and of torch's random numbers before it, which moved if
    it drew some; values are by name of a result its shape, and the numbers at its `positions`.
    """

    sample: int
    calls: int
    seed: int
    moved: bool
    values: dict[str, tuple[list[int], list[float]]]


class Watch(Around):
    """Watches over the samples of one case that is warm, by the checks that are `on`.

    Parameters
    ----------
    once : float
        Seconds of a call.
    looking : bool
        Whether results are looked at; else inputs are new, and that is all.
    synchronize : callable, optional
        Waits for what a call left to do on a device.
    """

    def __init__(
        self,
        prepared: Prepared,
        once: float,
        on: Collection[str],
        looking: bool = True,
        synchronize: Callable[[], None] | None = None,
    ) -> None:
        self.looks: list[Glimpse] = []
        self.call, self.once = prepared.call, once
        self._prepared, self._on, self._looking = prepared, on, looking
        self._synchronize = synchronize
        self._source = InputSource(prepared.case, prepared.output_kind, secret())
        problem = prepared.case.problem
        self._random = random_numbers(problem.device)
        self._one_thread = problem.device == "cpu" and prepared.case.run_settings().threads == 1
        self._training = problem.phase == "training"
        self._seed, self._taken = secret(), 0
        self._keeping = LOOKS if once < LONG_CALL else 1
        self._ended = self._random.get_state()
        self._fixed: list[Inputs] = []
        self._batch: Sequence[Inputs] = ()

    def evidence(self) -> dict[str, Any]:
        """What another process needs to compute the same."""
        return {"secret": self._source.seed, "looks": [asdict(look) for look in self.looks]}

    def begin(self, calls: int) -> int:
        """Make the pool."""
        calls = min(calls, room(self._source))
        graphed = self._prepared.graphed
        held = (
            buffers(self._source, calls + SPARE, self._training) if graphed is None else [graphed]
        )
        self._pool = InputPool(self._source, held)
        if "fresh-inputs" not in self._on:
            self._fixed = self._pool.write(self._seed, 1)
        return calls

    def before(self, calls: int) -> Sequence[Inputs]:
        """New inputs for so many calls, or down to half: none can know that it is the last."""
        calls -= below(1 + calls // 2)
        if self._fixed:
            self._batch = self._fixed * calls
        else:
            self._seed = secret()
            self._batch = self._pool.write(self._seed, calls)
        self._random.manual_seed(self._seed)
        return self._batch

    def after(self) -> None:
        """Look at what the last call left, at once and when nothing works any more.

        Whether a sample is looked at is drawn when it is over; all are as likely, however many
        there will be.
        """
        self._taken += 1
        kept = below(self._taken) if self._looking else self._keeping
        if kept >= self._keeping:
            return
        found = {**self._prepared.results(), INPUT: self._batch[-1][0]}
        first = self._read(found)
        self._wait()
        second = self._read(found)
        for name, values in first.items():
            if "late-values" in self._on and not _same(values, second[name]):
                raise wrong(
                    "late-values",
                    f"{name} of sample {self._taken} still changed when the clock had stopped",
                )
        look = Glimpse(
            self._taken,
            1 if self._fixed else len(self._batch),
            self._seed,
            self._moved(),
            {name: (list(found[name].shape), v.double().tolist()) for name, v in second.items()},
        )
        self.looks[kept : kept + 1 if len(self.looks) == self._keeping else kept] = [look]

    def _moved(self) -> bool:
        """Whether the sample drew random numbers of torch's.

        `Meddling` if it set their seed: they are then where they were after other samples.
        """
        ended = self._random.get_state()
        self._random.manual_seed(self._seed)
        moved = not torch.equal(ended, self._random.get_state())
        if "state" in self._on and moved and torch.equal(ended, self._ended):
            raise Meddling(
                "state", "it sets the seed of torch's random numbers for the whole process"
            )
        self._ended = ended
        return moved

    def _read(self, found: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The numbers that are looked at."""
        return {
            name: torch.take(result.detach(), positions(self._seed, name, result))
            for name, result in found.items()
        }

    def _wait(self) -> None:
        """Wait for the device, and until no thread but this one runs."""
        if self._synchronize is not None:
            self._synchronize()
            return
        begun = perf_counter()
        while perf_counter() - begun < PATIENCE:
            others = -thread_time() + process_time()  # held up in between: rather too much
            sleep(QUIET)
            busy = process_time() - thread_time() - others
            if busy < STILL:
                return
            # Threads of OpenMP stay awake for a while when they have nothing to do.
            if "late-values" in self._on and self._one_thread:
                raise wrong(
                    "late-values",
                    f"another thread still worked for {busy:.2g} s when the clock had stopped",
                )


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bitwise, but for the sign of zero; NaN is NaN."""
    return bool(((one == other) | (one.isnan() & other.isnan())).all())
