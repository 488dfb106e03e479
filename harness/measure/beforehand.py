"""What is known of a case before it is run: whether it can be built, and whether it has room."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from harness.case import Case, size_of
from harness.errors import UsageError
from harness.isolate import USAGE, Interpreter, Limits, Outcome
from harness.measure import call
from harness.measure import device as devices
from harness.registry import Registry

BUILD_CALL = "harness.build:try_options"
BUILD_SECONDS = 60.0


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
            limits = Limits(BUILD_SECONDS, call.free_bytes("cpu"))
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
