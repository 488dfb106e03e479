"""From options to a measuring session, for pytest and the command line."""

from __future__ import annotations

from typing import Any

from harness.errors import UsageError
from harness.isolate import Limits, run
from harness.measure.session import Session
from harness.options import Measuring
from harness.plan import make_plan
from harness.registry import Registry

FINGERPRINT = "harness.measure.device:fingerprint"


def device_fingerprint(device: str) -> dict[str, Any]:
    """Ask a child what is there: the driver itself never touches CUDA.

    Raises
    ------
    UsageError
        If the device is unknown or not there.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device {device!r}; use cpu, cuda or auto")
    outcome = run(FINGERPRINT, {"device": device}, Limits(seconds=120))
    if outcome.status != "ok":
        raise UsageError(outcome.detail)
    return dict(outcome.value)


def make_session(options: Measuring) -> Session:
    """Build the session that the options describe.

    Raises
    ------
    UsageError
        For any value that can't be.
    """
    registry = Registry(options.given)
    fingerprint = device_fingerprint(options.device)
    plan = make_plan(options.profile or "quick", fingerprint["device"], registry, options)
    return Session(plan.cases, plan.profile, registry, options.journal, fingerprint)
