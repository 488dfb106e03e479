"""The one way from a task to its record: what a child is given, and what its answer says.

And what is known of a case before it is run: whether it can be built, and whether it has room.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.case import Case, parse, size_of
from harness.errors import UsageError
from harness.isolate import USAGE, Interpreter, Limits, Outcome
from harness.measure import device as devices
from harness.records.schema import CEILINGS
from harness.registry import Registry

TIME_CALL = "harness.measure.clock:time_case"
MEMORY_CALL = "harness.measure.memory:memory_case"
PEAKS_CALL = "harness.measure.roofline:peaks_case"
CHECK_CALL = "harness.verify.timed:check_timed"
"""By its name alone: measuring does not import verifying."""
PROBE_CALL = "harness.measure.memory:probe_case"
BUILD_CALL, BUILD_SECONDS = "harness.build:try_options", 60.0
PRELOAD = (
    "torch",
    # torch.autograd imports it in the first backward pass: 0.2 s that are not the case's.
    "torch.fx.experimental.symbolic_shapes",
    # The first call of an operator of our own imports it, so does counting launches: 1.4 s.
    "torch._dynamo",
    "harness.measure.clock",
    "harness.measure.memory",
    "harness.measure.roofline",
    "harness.verify.timed",
)
NEEDED = {
    "time": ("median",),
    "anchor": ("median",),
    "memory": ("transient_bytes", "peak_bytes"),
    "peaks": CEILINGS,
    "margin": (),
}
"""Numbers without which an answer to a task of this kind is none."""
NUMBERS = (
    *("samples", "median", "seconds", "ratio", "beside_samples"),
    *("transient_bytes", "peak_bytes"),
    *CEILINGS,
)
"""What a measurement is; none of it stays where one of them is no number."""
CLOCK_SHARE, CLOCK_SLACK = 0.05, 0.5
"""How far a child's clock may be from the driver's, relative and in seconds: a fork on a busy
machine, and the way of the answer."""
SHARE = 0.9
"""Of the memory that is free: more is never given, so that the machine neither swaps nor dies."""


def interpreter(device: object, preload: Sequence[str] = PRELOAD, **options: Any) -> Interpreter:
    """Start a fresh interpreter: one context for all tasks on a GPU, a fork per task on the CPU."""
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
    """Run one task that measures a case, which is among the arguments.

    The allocator's parameters count where the fingerprint, under which the child runs, says that
    glibc's is used.
    """
    # Elsewhere there is no glibc, or CUDA's own allocator.
    glibc = "M_TRIM_THRESHOLD" in str(fingerprint["allocator"])
    outcome = child.run(call, arguments, limits, allocator if glibc else None)
    if outcome.status == "unsupported" and parse(arguments["case"]).run_settings().graphed:
        # A capture that failed can leave CUDA's allocator in any state.
        child.restart()
    return outcome


def time(
    child: Interpreter,
    arguments: Mapping[str, Any],
    limits: Limits,
    fingerprint: Mapping[str, Any],
    count: bool = False,
    check: bool = True,
) -> Outcome:
    """Time a case, and have another process compute again what some of its timed calls gave.

    Parameters
    ----------
    check, count : bool
        Whether there is another process, and whether it counts operations too.

    Returns
    -------
    Outcome
        Of the timing with ``check_seconds``, which its own contain, and with what the check says;
        or why it is none. Too little memory or time for the check stands in ``unchecked``.
    """
    skip = arguments.get("skip", ())
    timed = ask(child, TIME_CALL, arguments, limits, devices.TIME_ALLOCATOR, fingerprint)
    if timed.status != "ok" or not isinstance(timed.value, dict):
        return timed
    value = dict(timed.value)
    if value.pop("spoiled", False):
        child.restart()  # a capture that failed behind the samples: see `ask`
    evidence = value.pop("evidence", None)
    told = value.get("clock_seconds")
    seen = timed.seconds  # transport included
    least = seen - CLOCK_SHARE * seen - CLOCK_SLACK
    if "clock" not in skip and told is not None and not least <= told <= (1 + CLOCK_SHARE) * seen:
        detail = f"its clock says {told:.3g} s, the driver's {seen:.3g} s"
        return replace(timed, status="wrong", value={"found_by": "clock"}, detail=detail)
    if evidence is None or not check or "timed-values" in skip:
        return replace(timed, value=value)
    again = {"case": arguments["case"], "given": arguments["given"], "evidence": evidence}
    again["count"] = count and "operations" not in skip
    found = ask(child, CHECK_CALL, again, limits, devices.TIME_ALLOCATOR, fingerprint)
    value["check_seconds"] = found.seconds
    seconds = seen + found.seconds
    if found.status == "ok":
        return replace(timed, value=value | found.value, seconds=seconds)
    if found.status in ("oom", "timeout"):
        value["unchecked"] = f"{found.status}: {found.detail}"
        return replace(timed, value=value, seconds=seconds)
    detail = found.detail
    if found.status == "crash" and not found.error:
        # Nothing was raised: whoever killed that process need not be the module.
        died = f"while a timed call was computed again: {detail}"
        return replace(found, value=None, detail=died, seconds=seconds)
    if found.status != "wrong":
        detail = f"a timed call can't be computed again: {found.status}: {detail}"
    by = {"found_by": "timed-values"}
    return replace(found, status="wrong", value=by, detail=detail, seconds=seconds)


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


def measured(kind: str, outcome: Outcome, child: Interpreter) -> dict[str, Any]:
    """`record` of a task of this kind; an answer that can't be one becomes a failure."""
    found = record(outcome, child)
    if found["status"] != "ok":
        return found
    if refused := _unusable(kind, found):
        status, detail = refused
        kept = {name: value for name, value in found.items() if name not in NUMBERS}
        return {**kept, "status": status, "detail": detail}
    if kind == "margin" and found["verdict"] == "wrong":
        over = f"error {found['error']:.2g} over budget {found['budget']:.2g}"
        return {**found, "status": "wrong", "detail": f"{found['what']}: {over}"}
    return found


def _unusable(kind: str, found: Mapping[str, Any]) -> tuple[str, str] | None:
    """Status and detail of an answer that says ok and holds no measurement; None if it does."""
    if kind == "margin" and "verdict" not in found:
        return "crash", "no verdict came back"
    numbers = [found.get(name) for name in NEEDED[kind]]
    if kind in ("time", "anchor"):
        numbers += [*(found.get("samples") or [None]), found.get("seconds", found.get("median"))]
        numbers += [found["ratio"]] if "ratio" in found else []
    for value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return "crash", f"{value!r} came back, not a number"
        if not math.isfinite(value):
            return "wrong", f"{value} came back, not a finite number"
        if value < 0 or (value == 0 and kind != "memory"):
            return "crash", f"{value} came back, which can't be"
    return None


def is_final(record: Mapping[str, Any]) -> bool:
    """Whether a record settles its case: a time that failed, or an error over budget.

    A margin or a memory reading that could not be taken does not stop the clock; it is missing,
    and without a margin there is no headline.
    """
    if record["kind"] in ("time", "anchor"):
        return bool(record["status"] != "ok")
    return record["kind"] == "margin" and record["status"] == "wrong"


def refuse_options(cases: Iterable[Case], registry: Registry) -> None:
    """Have a child build what carries options of the user's own; without any none is started.

    `UsageError` for the first that can't be built.
    """
    small: dict[str, Any] = {"batch": 1, "length": 1, "dtype": "f32", "phase": "forward"}
    told = {
        replace(case, problem=replace(case.problem, **small), settings=())
        for case in cases
        if case.options
    }
    if not told:
        return
    with Interpreter("fork", preload=("torch", "harness.build")) as child:
        for case in sorted(told, key=lambda case: case.id):
            arguments = {"case": case.id, "given": list(registry.extra)}
            limits = Limits(BUILD_SECONDS, free_bytes("cpu"))
            outcome = child.run(BUILD_CALL, arguments, limits)
            if outcome.error == USAGE or outcome.status == "crash":
                raise UsageError(f"{case.name} can't be built: {outcome.detail}")


def formula_bytes(case: Case, registry: Registry) -> float | None:
    """What the implementation's record says that the pass holds at its peak.

    None where it says nothing of this case: no formula, options of the user's, compiled code,
    padding.
    """
    _, implementation = registry.find(f"{case.mechanism}.{case.implementation}")
    settings = case.run_settings()
    other = case.options or settings.compile_mode or settings.padded
    if implementation.transient_bytes is None or other:
        return None
    return float(implementation.transient_bytes(size_of(case)))


def least_bytes(case: Case, registry: Registry) -> float:
    """What a pass can't do without: input, weights, and by its formula what else it holds.

    Without a formula of its own the output; without a mechanism's formula of weights, none.
    """
    mechanism, _ = registry.find(f"{case.mechanism}.{case.implementation}")
    p, size = case.problem, size_of(case)
    read = {name for name, _ in case.options} <= {*mechanism.formula_options}
    weights = mechanism.parameters(size) if mechanism.parameters and read else 0
    held = formula_bytes(case, registry)
    if held is None:
        held = size.item_bytes * math.prod(p.output_shape(mechanism.output))
    return float(size.item_bytes * (size.inputs + weights) + held)


def without_room(case: Case, registry: Registry) -> Outcome | None:
    """How a case ends that this machine has no memory for; None where it may have.

    A formula is up to 15 % too high, which is less than what a machine never gives. On a GPU only
    the input counts, which is drawn on the host: CUDA says itself, and at once, what does not fit.
    """
    machine = devices.machine_memory()
    cuda = case.problem.device == "cuda"
    least = 4.0 * size_of(case).inputs if cuda else least_bytes(case, registry)
    if machine is None or least <= machine:
        return None
    needed, has = (f"{count / 2**30:,.1f} GiB" for count in (least, machine))
    says = f"by the formulas it needs {needed} at least, this machine has {has}: not run"
    value = {"least_bytes": least, "machine_bytes": machine}
    return Outcome("oom", value, says)
