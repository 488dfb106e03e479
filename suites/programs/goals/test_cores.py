"""The bare cores of attention: mechanisms like any other, with oracles of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from harness import registry
from harness.case import parse
from harness.measure.ceilings import work_of
from harness.registry import code_hash
from harness.verify.margin import check_case
from suites.programs.goals import cores, plan

KNOWN = plan.registry()


def core_id(name: str, n: int, dtype: str, phase: str = "training") -> str:
    width = 64 if name.startswith("core_mtsa") else 48
    return f"{name}-B2-N{n}-D{width}x16-H4-{dtype}-{phase}-cpu"


@pytest.mark.parametrize("n", [1, 2, 65])
@pytest.mark.parametrize(
    "name",
    [
        "core_mtsa.plain",
        "core_mtsa.fused",
        "core_dot.plain",
        "core_dot.matmul",
        "core_dot.sdpa",
        "core_dot.sdpa[causal=true]",
        "core_dot.matmul[causal=true]",
    ],
)
def test_cores_are_what_their_oracles_say(name: str, n: int) -> None:
    for dtype in ("f64", "f32"):
        found = check_case(core_id(name, n, dtype), [plan.GIVEN])
        assert found["verdict"] == "ok", found


def test_a_core_that_computes_something_else_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def shifted(self: Any, x: torch.Tensor) -> Any:
        q, k, v, s = cores.CoreLayer.project(self, x)
        return q, k, s, v

    monkeypatch.setattr(cores.FusedCore, "project", shifted)
    assert check_case(core_id("core_mtsa.fused", 8, "f32"), [plan.GIVEN])["verdict"] == "wrong"


def test_a_core_takes_views_and_has_no_weights() -> None:
    core = cores.FusedCore(64, 16, heads=4)
    assert not list(core.parameters())
    x = torch.randn(2, 7, 64)
    for i, part in enumerate(core.project(x)):
        assert part.shape == (4, 2, 7, 4)
        assert part.stride(-1) == 1
        assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
        assert torch.equal(part[1], x[..., 16 * i + 4 : 16 * i + 8])


@pytest.mark.parametrize(("name", "width"), [("core_mtsa.plain", 48), ("core_dot.sdpa", 64)])
def test_a_core_refuses_other_widths(name: str, width: int) -> None:
    case = f"{name}-B2-N8-D{width}x16-H4-f32-forward-cpu"
    with pytest.raises(ValueError, match="tensors of width d_out side by side: give d_in="):
        check_case(case, [plan.GIVEN])


def test_half_of_the_pairs_and_twice_the_width_make_three_quarters() -> None:
    """The limit that the project's notes derive: 6d/2 against 4d, and 20d/2 against 14d."""
    for phase, limit in (("forward", 0.75), ("training", 10 / 14)):
        ours = parse(core_id("core_mtsa.plain", 4096, "f32", phase))
        base = parse(core_id("core_dot.sdpa", 4096, "f32", phase))
        ratio = (
            work_of(KNOWN.mechanisms["core_mtsa"], ours).operations
            / work_of(KNOWN.mechanisms["core_dot"], base).operations
        )
        assert ratio == pytest.approx(limit, rel=1e-3)


def test_code_of_a_core_is_that_of_its_own_file_and_what_it_imports() -> None:
    (file,) = filter(None, [registry._file_of("suites.programs.goals.cores")])
    names = {path.name for path in registry._with_imports((file,))}
    assert {"cores.py", "geometry.py", "fused.py"} <= names
    assert code_hash(KNOWN.mechanisms["core_mtsa"], "measure") != code_hash(
        replace(KNOWN.mechanisms["core_mtsa"], implementations=()), "measure"
    )
