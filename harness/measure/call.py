"""The one way from a task to its record: what a child is given, and what its answer says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from harness.case import parse
from harness.isolate import USAGE, Interpreter, Limits, Outcome
from harness.measure import device as devices

TIME_CALL = "harness.measure.clock:time_case"
MEMORY_CALL = "harness.measure.memory:memory_case"
PEAKS_CALL = "harness.measure.roofline:peaks_case"
PROBE_CALL = "harness.measure.memory:probe_case"
PRELOAD = (
    "torch",
    # torch.autograd imports it in the first backward pass: 0.2 s that are not the case's.
    "torch.fx.experimental.symbolic_shapes",
    # The first call of an operator of our own imports it, so does counting launches: 1.4 s.
    "torch._dynamo",
    "harness.measure.clock",
    "harness.measure.memory",
    "harness.measure.roofline",
)
SHARE = 0.9
"""Of the memory that is free: more is never given, so that the machine neither swaps nor dies."""


def interpreter(device: object, preload: Sequence[str] = PRELOAD, **options: Any) -> Interpreter:
    """Start a fresh interpreter: one context for all tasks on a GPU, a fork per task on the CPU.

    Raises
    ------
    StartError
    """
    return Interpreter("persistent" if device == "cuda" else "fork", preload=preload, **options)


def free_bytes(device: object) -> int | None:
    """Bytes of data that a child may take on a device; None is no limit."""
    available = devices.available_memory() if device == "cpu" else None
    return None if available is None else int(SHARE * available)


def ask(
    child: Interpreter,
    call: str,
    arguments: Mapping[str, Any],
    limits: Limits,
    allocator: Mapping[str, int] | None,
    fingerprint: Mapping[str, Any],
) -> Outcome:
    """Run one task that measures a case.

    Parameters
    ----------
    child : Interpreter
    call : str
        ``"package.module:function"``.
    arguments : mapping
        ``case`` among them.
    limits : Limits
    allocator : mapping or None
        glibc's parameters, which count where the fingerprint says that its allocator is used.
    fingerprint : mapping
        Of the machine under which the child runs.
    """
    # Elsewhere there is no glibc, or CUDA's own allocator.
    glibc = "M_TRIM_THRESHOLD" in str(fingerprint["allocator"])
    outcome = child.run(call, arguments, limits, allocator if glibc else None)
    if outcome.status == "unsupported" and parse(arguments["case"]).run_settings().graphed:
        # A capture that failed can leave CUDA's allocator in any state.
        child.restart()
    return outcome


def record(outcome: Outcome, child: Interpreter | None = None) -> dict[str, Any]:
    """What an answer says: where it ran, status, time, detail, and all that was measured."""
    where = {} if child is None else {"interpreter": child.id, "generation": child.generation}
    return {
        **where,
        # What can't be is no crash: nothing broke.
        "status": "unsupported" if outcome.error == USAGE else outcome.status,
        "task_seconds": outcome.seconds,
        **({"detail": outcome.detail} if outcome.detail else {}),
        **(outcome.value if isinstance(outcome.value, dict) else {}),
    }
