"""A timer that gives back samples measured elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class Replay:
    """Replays samples through a timer: `rewind` before a round, the call itself advances.

    The virtual clock starts every round at zero, so that ``end - start`` is the sample to the
    last bit.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.samples: list[float] = []
        self._next = 0
        self._now = 0.0

        def timer() -> float:
            return self._now

        timer.__name__ = timer.__qualname__ = "replayed"
        self.timer: Callable[[], float] = timer

    def load(self, samples: Sequence[float]) -> None:
        """Take the samples to replay, in seconds."""
        self.samples = list(samples)
        self._next = 0

    def rewind(self) -> None:
        """Set the virtual clock to the start of the next round."""
        self._now = 0.0

    def __call__(self) -> None:
        """Advance the clock by the next sample."""
        self._now = self.samples[self._next]
        self._next = (self._next + 1) % len(self.samples)
