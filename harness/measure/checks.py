"""What keeps a time honest: everything by which timing notices a module that does not do its work.

A check is named here once. A record that one of them refused says so in ``found_by``; `skip`, which
only tests give, leaves one out, to show that what it notices nothing else does.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harness.isolate import Wrong
from reference_impls.mechanism import Unsupported

CHECKS: Mapping[str, str] = {
    "fresh-inputs": "every call meets contents, and an address, that it has not seen before",
    "timed-values": "outputs and gradients of timed calls are those of a fresh module elsewhere",
    "late-values": "they are all there when the clock stops, and nothing works on behind it",
    "plain-tensors": "what comes back is a plain tensor, not one that computes when it is read",
    "clock": "two clocks of the kernel and the driver's own agree",
    "state": "threads, cores, allocator, random numbers and flags of torch are left as they were",
    "cpu-time": "no more processor time than the threads of the case can take",
    "bound": "no faster than reading the input and writing the output alone",
    "operations": "no more operations per second than the best matrix product",
}
"""Name -> what holds of a time that passes."""


def wrong(check: str, detail: str) -> Wrong:
    """What to raise where the result is not one."""
    assert check in CHECKS
    return Wrong(detail, {"found_by": check})


class Meddling(Unsupported):
    """A module that does what can't be measured; `value` travels as that of a `Wrong`."""

    def __init__(self, check: str, detail: str) -> None:
        super().__init__(detail)
        assert check in CHECKS
        self.value = {"found_by": check}


def acting(skip: Collection[str]) -> frozenset[str]:
    """The checks that are left without `skip`.

    Raises
    ------
    ValueError
        If one of those has another name.
    """
    if unknown := sorted({*skip} - {*CHECKS}):
        raise ValueError(f"given {unknown}; expected some of {sorted(CHECKS)}")
    return frozenset(CHECKS) - frozenset(skip)
