"""The table of checks that a module without oracle must pass, and the verdict."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from harness.verify.budget import summary
from harness.verify.unaided.gradients import gradients
from harness.verify.unaided.history import history, kept, modes, processes, repeat, weights
from harness.verify.unaided.precision import precision
from harness.verify.unaided.subject import Check, Finding, Refused, Void, of_mechanism
from harness.verify.unaided.values import (
    answer,
    batch,
    finite,
    forms,
    memory,
    padding,
    reach,
)
from reference_impls.mechanism import Implementation, Mechanism

CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "answer": answer,
        "finite": finite,
        "repeat": repeat,
        "precision": precision,
        "padding": padding,
        "batch": batch,
        "kept": kept,
        "history": history,
        "modes": modes,
        "reach": reach,
        "weights": weights,
        "forms": forms,
        "memory": memory,
        "gradients": gradients,
        "processes": processes,
    }
)
"""By name, in the order in which they are made; the first that finds something ends them."""


def check_properties(
    mechanism: Mechanism,
    implementation: Implementation,
    dtype: str,
    device: str,
    skip: Collection[str] = (),
) -> dict[str, Any]:
    """Verify a mechanism that has no oracle.

    Parameters
    ----------
    skip : collection of str
        Names of `CHECKS` to leave out.

    Returns
    -------
    dict
        ``verdict`` (ok, wrong, void: nothing can be said), ``detail``, and where it is not ok
        ``found_by``: the name of the check; error, budget and margin of what was compared.
    """
    subject = of_mechanism(mechanism, implementation, dtype, device)
    found: list[Finding] = []
    for name, check in CHECKS.items():
        if name in skip:
            continue
        try:
            for one in check(subject):
                found.append(one)
                if not one.ok:
                    raise Refused(str(one))
        except (Refused, Void) as reason:
            verdict = "void" if isinstance(reason, Void) else "wrong"
            return {"verdict": verdict, "found_by": name, "detail": str(reason)}
    told = f"no oracle: {len(CHECKS) - len(skip)} checks"
    direct = [one for one in found if not one.gradient]
    back = [one for one in found if one.gradient]
    return {
        "verdict": "ok",
        "detail": "; ".join([told, *(f"declares {word}" for word in subject.declarations())]),
        "comparisons": len(found),
        **(summary("value", direct) if direct else {}),
        **(summary("gradient", back) if back else {}),
    }
