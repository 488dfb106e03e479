"""Every implementation against its oracle: values and gradients within the error budget."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch

from harness.isolate import Outcome
from harness.registry import Registry
from harness.verify import check as check_module
from harness.verify.batches import Batch, batches
from harness.verify.budget import CAP, FLOOR, Deviation, budget, error, worst
from harness.verify.check import check, check_drawn
from harness.verify.run import judged, workers_for
from reference_impls.kernels.native import loader
from reference_impls.mechanism import Implementation, Mechanism, Unsupported
from suites.support.parameters import DTYPES, has_compiler, implementations

torch.set_num_threads(1)
pytestmark = pytest.mark.usefixtures("asked_once")

NAMES = implementations()
NATIVE = [name for name in NAMES if name.endswith(".fused_native")]
"""All that a CPU without a C++ compiler can't do; any other *unsupported* is a fault."""
CHECKS = [
    (name, dtype)
    for name in NAMES
    for dtype in DTYPES
    if dtype == "f32" or f"{name}_native" not in NAMES  # else it is one of two that are checked
]


def telling(mechanism: Mechanism, implementation: Implementation) -> list[Batch]:
    """Batches that differ most: over a tile's edge, whole, each variant, what is drawn or cut."""
    few = {f"{name}, N=7" for name in mechanism.variants}
    few |= {"N=1", "N=65", "N=2 without padding", "scores times 100, N=65"}
    every = batches(mechanism, implementation, "f32")
    return [trial for trial in every if trial.label in few or trial.drawn or trial.forced]


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NATIVE])
def test_within_the_error_budget_at_telling_batches(name: str) -> None:
    mechanism, implementation = Registry().find(name)
    found = []
    for trial in telling(mechanism, implementation):
        with suppress(Unsupported):
            found += check_drawn(mechanism, implementation, trial, "f32", "cpu")
    assert [d.what for d in found if not d.ok] == []
    assert len(found) > 10


def test_a_verdict_is_of_all_batches_and_tensors() -> None:
    row = check("source2token.direct", "f32", "cpu")
    assert row["verdict"] == "ok"
    assert row["comparisons"] > 40
    assert row["value_margin"] >= 1
    assert row["gradient_margin"] >= 1


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "dtype"), CHECKS)
def test_within_the_error_budget(name: str, dtype: str) -> None:
    row = check(name, dtype, "cpu")
    assert row["verdict"] in ("ok", "unsupported"), row
    if row["verdict"] == "unsupported":
        assert name in NATIVE, row["detail"]
        assert not has_compiler(), row["detail"]
    else:
        assert row["comparisons"] > 40
        assert row["value_margin"] >= 1
        assert row["gradient_margin"] >= 1


def test_without_a_compiler_the_native_kernel_is_unsupported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader, "_outcome", lambda: Unsupported("no compiler"))
    assert "mtsa.fused_native" in NATIVE
    for name in NATIVE:
        assert check(name, "f32", "cpu")["verdict"] == "unsupported", name


def test_every_mechanism_has_oracle_plain_and_formulas() -> None:
    for mechanism in Registry().mechanisms.values():
        if not mechanism.folder:
            continue
        assert mechanism.oracle, mechanism.name
        assert mechanism.plain, mechanism.name
        assert mechanism.parameters is not None, mechanism.name
        assert mechanism.operations is not None, mechanism.name
        assert mechanism.transient_bytes is not None, mechanism.name
        assert "plain" in {i.name for i in mechanism.implementations}, mechanism.name


def test_error_is_relative_to_the_larger_of_one_and_the_output() -> None:
    assert error(np.array([1.5]), np.array([1.0])) == 0.5
    assert error(np.array([0.2]), np.array([0.1])) == pytest.approx(0.1)
    assert error(np.array([110.0, 0]), np.array([100.0, 0])) == pytest.approx(0.1)
    assert error(np.array([np.nan]), np.array([1.0])) == float("inf")
    with pytest.raises(ValueError, match="shape"):
        error(np.zeros(2), np.zeros(3))


@pytest.mark.parametrize("dtype", ["f64", "f32", "fast32", "bf16", "f16"])
def test_budget_is_twice_plain_plus_floor_under_the_cap(dtype: str) -> None:
    assert budget(0.0, dtype) == FLOOR[dtype]
    small = FLOOR[dtype] / 8
    assert budget(small, dtype) == pytest.approx(2 * small + FLOOR[dtype])
    assert budget(1.0, dtype) == CAP[dtype]
    assert budget(None, dtype) == CAP[dtype]
    assert budget(float("inf"), dtype) == CAP[dtype]
    assert FLOOR[dtype] < CAP[dtype]


def test_a_librarys_fast_float32_is_judged_as_that_where_it_is_declared_alone() -> None:
    registry = Registry()
    declared = {
        f"{m.name}.{i.name}": i for m in registry.mechanisms.values() for i in m.implementations
    }
    fast = {name for name, i in declared.items() if i.arithmetic("f32", "cuda") == "fast32"}
    assert {"multi_head.sdpa", "bi_lstm.packed", "bi_gru.packed"} <= fast
    assert not {name for name in fast if name.startswith(("mtsa", "msmsa", "disa"))}, "ours"
    assert {i.arithmetic("f32", "cpu") for i in declared.values()} == {"f32"}
    assert {i.arithmetic("bf16", "cuda") for i in declared.values()} == {"bf16"}
    assert budget(0.0, "f32") < 5.8e-6 < budget(0.0, "fast32") < budget(0.0, "tf32"), "cuDNN's"


@pytest.mark.parametrize("gradient", ["", "x"])
def test_values_or_gradients_that_nobody_compared_are_no_verdict(
    gradient: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = [Deviation("one", 0.0, 1.0, gradient)]
    monkeypatch.setattr(check_module, "check_drawn", lambda *_, **__: alone)
    with pytest.raises(AssertionError, match="may go without a comparison"):
        check("multi_head.sdpa", "f32", "cpu")


def test_what_is_judged_as_another_arithmetic_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = check_module.compare

    def noted(got: Any, wanted: Any, plain: Any, arithmetic: str, *more: Any) -> Any:
        asked.append(arithmetic)
        return real(got, wanted, plain, arithmetic, *more)

    monkeypatch.setattr(check_module, "compare", noted)
    monkeypatch.setattr(Implementation, "arithmetic", lambda *_: "fast32")
    found = check_module.check("none.fused", "f32", "cpu")
    assert {*asked} == {"fast32"}
    assert (found["verdict"], found["detail"]) == ("ok", "judged as fast32")


@pytest.mark.parametrize(
    ("device", "threads", "asked", "children"),
    [("cpu", 64, 0, 64), ("cuda", 64, 0, 8), ("cuda", 2, 0, 2), ("cuda", 64, 20, 20)],
)
def test_several_children_share_a_gpu(device: str, threads: int, asked: int, children: int) -> None:
    assert workers_for({"device": device, "threads": threads}, asked) == children


def test_not_a_number_is_never_within_budget() -> None:
    assert not Deviation("x", float("nan"), 1.0).ok
    assert not Deviation("x", float("inf"), 1.0).ok
    bad = Deviation("bad", float("inf"), 1.0)
    assert worst([Deviation("good", 0.5, 1.0), bad]) is bad


def test_the_check_that_refused_a_module_is_named_where_its_child_ended_by_it() -> None:
    row = judged(Outcome("wrong", {"found_by": "untouched"}, "it replaced torch.take"))
    assert (row["verdict"], row["found_by"]) == ("wrong", "untouched")
    assert "found_by" not in judged(Outcome("timeout", None, "60 s"))
