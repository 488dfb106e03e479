"""The same questions at a benchmark's own shape, where only some samples can be afforded."""

from __future__ import annotations

import torch

from harness.verify.compare import Computed
from harness.verify.unaided.gradients import DECLARED, differences
from harness.verify.unaided.history import without_dropout
from harness.verify.unaided.precision import against, own, told_if_hopeless
from harness.verify.unaided.subject import Finding, PosedBatch, Subject, numbers
from harness.verify.unaided.values import reached

PADDED = 8
"""A share of the tokens, one of so many, is added as padding."""


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
