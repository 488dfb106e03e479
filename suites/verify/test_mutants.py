"""Every named mutant must exceed the error budget; a verifier that lets one pass is no verifier."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from harness.registry import builtins
from harness.verify.check import check_drawn, trials
from reference_impls.mechanism import Implementation, Mechanism
from suites.verify.mutants import MUTANTS

torch.set_num_threads(1)


def _mutant(name: str) -> tuple[Mechanism, Implementation]:
    mechanism = builtins()[MUTANTS[name]]
    implementation = Implementation(
        name, f"suites.verify.mutants:{name}", "wrong on purpose", mask_optional=True
    )
    return replace(mechanism, implementations=(implementation,)), implementation


def _broken_trials(name: str, dtype: str) -> Iterator[str]:
    mechanism, implementation = _mutant(name)
    for trial in trials(mechanism, dtype):
        values, gradients = check_drawn(mechanism, implementation, trial, dtype, "cpu")
        yield from (f.what for f in values + gradients if not f.ok)


@pytest.mark.parametrize("name", MUTANTS)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_a_mutant_exceeds_the_budget(name: str, dtype: str) -> None:
    assert next(_broken_trials(name, dtype), None) is not None, f"{name} passes as correct"


def test_a_mutant_with_right_values_fails_by_its_gradients() -> None:
    mechanism, implementation = _mutant("MtsaDetachedScores")
    for trial in trials(mechanism, "f64"):
        values, gradients = check_drawn(mechanism, implementation, trial, "f64", "cpu")
        assert all(f.ok for f in values)
        if not all(f.ok for f in gradients):
            return
    pytest.fail("missing gradients went unnoticed")
