"""Cases, ids, settings and plans."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.build import case_inputs, case_module
from harness.case import Case, Problem, parse
from harness.errors import UsageError
from harness.measure.call import formula_bytes
from harness.measure.ceilings import work_of
from harness.options.groups import Selection
from harness.plan import make_plan
from harness.profile import load_profiles
from harness.registry import Registry, builtins
from reference_impls.mechanism import Unsupported

PROBLEM = Problem(64, 64, 300, 600, 8, "f32", "training", "cpu")


def test_id_reads_as_a_configuration() -> None:
    case = Case("mtsa", "algorithm1", PROBLEM, ("1-thread",))
    assert case.id == "mtsa.algorithm1-B64-N64-D300x600-H8-f32-training-cpu+1-thread"


@given(
    st.builds(
        Case,
        st.sampled_from(["mtsa", "multi_head", "my_own", "Mine-2"]),
        st.sampled_from(["plain", "sdpa_flash", "module"]),
        st.builds(
            Problem,
            st.integers(1, 512),
            st.integers(1, 65536),
            st.integers(1, 999),
            st.integers(1, 999),
            st.sampled_from([0, 1, 8]),
            st.sampled_from(["f64", "f32", "bf16", "f16"]),
            st.sampled_from(["forward", "training"]),
            st.sampled_from(["cpu", "cuda"]),
        ),
        st.sampled_from([(), ("1-thread",), ("compiled", "control"), ("12-threads", "tf32")]),
        st.sampled_from([(), (("window", "3"),), (("a", "0.5"), ("b", "relu"))]),
    )
)
def test_id_is_read_back(case: Case) -> None:
    assert parse(case.id) == case


@pytest.mark.parametrize(
    "text", ["", "mtsa", "mtsa.plain-B1-N2", "mtsa.plain-B1-N2-D3-f32-walk-cpu"]
)
def test_other_text_is_no_id(text: str) -> None:
    with pytest.raises(UsageError, match="not a case id"):
        parse(text)


def test_contradicting_settings_are_refused() -> None:
    case = Case("mtsa", "plain", PROBLEM, ("1-thread", "2-threads"))
    with pytest.raises(UsageError, match="two settings name threads"):
        case.run_settings()


@pytest.mark.parametrize("name", ["multi_head.sdpa", "bi_lstm.packed"])
def test_a_padded_batch_has_lengths_from_half_to_whole(name: str) -> None:
    case = parse(f"{name}-B5-N8-D6{'-H2' * (name[0] == 'm')}-f32-forward-cpu+padded")
    _, implementation = Registry().find(name)
    x, mask = case_inputs(case, implementation)
    assert mask is not None
    assert mask.sum(1).tolist() == [4, 5, 6, 7, 8]
    assert mask[:, :4].all()
    assert (x[~mask] != 0).all()  # what stands there must not be read
    alone = replace(case, problem=replace(case.problem, batch=1))
    with pytest.raises(Unsupported, match="means nothing for a batch of one"):
        case_module(alone, Registry())


def test_of_padded_batches_no_formula_is_asked() -> None:
    case = parse("mtsa.algorithm1-B4-N32-D24-H2-f32-training-cpu")
    padded = replace(case, settings=("padded",))
    mechanism = builtins()["mtsa"]
    assert work_of(mechanism, case).operations > 0
    assert math.isnan(work_of(mechanism, padded).operations)
    assert formula_bytes(case, Registry()) is not None
    assert formula_bytes(padded, Registry()) is None


@pytest.mark.parametrize("name", list(load_profiles()))
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_profiles_expand_to_unique_cases_with_a_baseline_and_control(
    name: str, device: str
) -> None:
    plan = make_plan(name, device, Registry())
    ids = [c.id for c in plan.cases]
    assert len(set(ids)) == len(ids)
    problems = {_problem(c) for c in plan.cases if not c.is_control}
    baselines = {_problem(c) for c in plan.cases if c.name == plan.profile.baseline}
    controls = {_problem(c) for c in plan.cases if c.is_control}
    assert problems == baselines == controls
    assert all(parse(c.id) == c for c in plan.cases)


def _problem(case: Case) -> tuple[object, ...]:
    p = replace(case.problem, heads=0, d_out=0)
    return (p, tuple(s for s in case.settings if s != "control"))


def test_selection_narrows_and_keeps_the_baseline() -> None:
    plan = make_plan(
        "quick",
        "cpu",
        Registry(),
        Selection(only=("mtsa.algorithm1@2",), lengths=(8,), batch=2, dtypes=("f64",), blocks=3),
    )
    assert plan.profile.blocks == 3
    assert {c.name for c in plan.cases} == {"mtsa.algorithm1", "multi_head.sdpa"}
    mine = [c for c in plan.cases if c.name == "mtsa.algorithm1"]
    assert {c.problem.heads for c in mine} == {2}
    assert {(c.problem.length, c.problem.batch, c.problem.dtype) for c in plan.cases} == {
        (8, 2, "f64")
    }


def test_a_group_alone_has_nothing_but_its_own_implementations() -> None:
    names = ("mtsa.fused@2", "hrchy_cnn_released.conv")
    plan = make_plan("paper", "cpu", Registry(), Selection(only=names, lengths=(64,)))
    widths = {(c.name, c.problem.d_out) for c in plan.cases}
    assert widths == {
        ("multi_head.sdpa", 600),
        ("mtsa.fused", 600),
        ("hrchy_cnn_released.conv", 600),
        ("hrchy_cnn_released.conv", 300),
    }
    other = make_plan("paper", "cpu", Registry(), Selection(only=names[:1], lengths=(64,)))
    assert {c.problem.d_out for c in other.cases} == {600}


@pytest.mark.parametrize(
    ("profile", "selection", "message"),
    [
        ("quick", {"only": ("mtsa.magic",)}, r"mtsa has no implementation 'magic'; it has .*plain"),
        ("quick", {"only": ("mtsa@7",), "width": (300, 600)}, "divides it"),
        ("quick", {"only": ("resa[policy",)}, r"expected e.g. mtsa.plain\[scale_t=identity\]"),
        ("quick", {"settings": ("warp",)}, "unknown setting 'warp'.*tf32"),
        ("slow", {}, "unknown profile 'slow'; use one of quick, full, paper"),
    ],
)
def test_what_cannot_be_planned_says_what_was_expected(
    profile: str, selection: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_plan(profile, "cpu", Registry(), Selection(**selection))


def test_a_selection_may_have_options() -> None:
    names = ("resa[policy=iterative]", "resa.gathered", "mtsa.fused[scale_t=identity]@2")
    plan = make_plan("quick", "cpu", Registry(), Selection(only=names, lengths=(8,), batch=2))
    found = {(c.name, c.problem.heads) for c in plan.cases if not c.is_control}
    assert found == {
        ("multi_head.sdpa", 8),
        ("resa.plain[policy=iterative]", 0),
        ("resa.gathered", 0),
        ("resa.masked[policy=iterative]", 0),
        ("resa.gathered[policy=iterative]", 0),
        ("mtsa.fused[scale_t=identity]", 2),
    }
