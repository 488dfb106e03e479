"""The table of checks that a module without oracle must pass, its verdict; one point as timed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

import torch

from harness.verify.budget import summary
from harness.verify.compare import Computed
from harness.verify.unaided.gradients import DECLARED, differences, gradients
from harness.verify.unaided.history import (
    history,
    kept,
    modes,
    processes,
    repeat,
    weights,
    without_dropout,
)
from harness.verify.unaided.precision import against, own, precision, told_if_hopeless
from harness.verify.unaided.subject import (
    Check,
    Finding,
    PosedBatch,
    Refused,
    Subject,
    Void,
    numbers,
    of_mechanism,
)
from harness.verify.unaided.values import (
    answer,
    batch,
    finite,
    forms,
    memory,
    padding,
    reach,
    reached,
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
PADDED = 8
"""At a benchmark's shape a share of the tokens, one of so many, is added as padding."""


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
            for one in check(subject) or ():
                found.append(one)
                if not one.ok:
                    raise Refused(str(one))
        except (Refused, Void) as reason:
            verdict = "void" if isinstance(reason, Void) else "wrong"
            return {"verdict": verdict, "found_by": name, "detail": str(reason)}
    told = f"no oracle: {len(CHECKS) - len(skip)} checks"

    return {
        "verdict": "ok",
        "detail": "; ".join([told, *(f"declares {word}" for word in subject.declarations())]),
        "comparisons": len(found),
        **summary(found),
    }


def settled(subject: Subject, module: torch.nn.Module) -> torch.nn.Module:
    """Take randomness out of a module: torch's dropout is zero, one of its own is off."""
    return module.eval() if subject.declares("dropout") else without_dropout(module)


def at_shape(
    subject: Subject, module: torch.nn.Module, point: PosedBatch, got: Computed, seed: int
) -> list[Finding]:
    """Whether some samples of a batch, padded further too, are what their own float64 says of them.

    Parameters
    ----------
    point : PosedBatch
        These samples; the cotangent is zero elsewhere in the batch.
    got : Computed
        What the module said of them in the whole batch; without gradients, those are not asked for.

    Returns
    -------
    list of Finding
        With finite differences along x and all weights at once, where there are gradients.

    Raises
    ------
    Refused
        If the last tokens do not matter.
    Void
        If nothing can be told.
    """
    training = bool(got.gradients)
    reached(subject, point.x.shape[1])
    expected, moved = own(subject, module, point, 1, training)
    told_if_hopeless(subject, moved, point)
    doing = "the whole batch in place of its first and last sample, alone and in float64,"
    want = numbers(expected, point)
    found = list(against(subject, numbers(got, point), want, moved, point, doing))
    wider = point.wider(max(3, point.x.shape[1] // PADDED))
    doing = f"{wider.x.shape[1] - point.x.shape[1]} more padded positions"
    more = subject.answer(wider, doing, subject.twin(module), training=training)
    found += against(subject, numbers(more, wider), want, moved, point, doing)
    double = subject.double()
    if training and not any(subject.declares(word) for word in DECLARED):
        found += differences(double.twin(module), point.to(torch.float64), seed, joint=True)[0]
    return found
