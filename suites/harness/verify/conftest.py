"""What tests of the verifier share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from harness.verify.compare import Computed, Question

KEPT = 600
"""Answers of oracles: more than all batches of a mechanism in three dtypes."""


def remembering(answer: Callable[[Question], Computed]) -> Callable[[Question], Computed]:
    """Ask an oracle once: the implementations of a mechanism are all tried at the same points."""
    kept: dict[str, Computed] = {}

    def asked(point: Question) -> Computed:
        if point.drawn is not None:
            return answer(point)  # every module draws anew
        key = point.digest
        if key not in kept:
            found = answer(point)
            for array in (*found.values.values(), *found.gradients.values()):
                array.setflags(write=False)
            if len(kept) >= KEPT:
                kept.clear()
            kept[key] = found
        return kept[key]

    return asked


@pytest.fixture(scope="module")
def asked_once() -> Iterator[None]:
    """Whatever is tried at one point, its oracle is asked once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Question, "answer", remembering(Question.answer))
        yield
