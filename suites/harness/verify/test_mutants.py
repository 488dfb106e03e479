"""Every named fault must exceed the error budget; a verifier that lets one pass is no verifier."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from harness.registry import Registry, builtins
from harness.verify import margin
from harness.verify.batches import Batch, batches
from harness.verify.check import check_drawn
from harness.verify.margin import check_case
from reference_impls.mechanism import Implementation, Mechanism
from suites.support.patching import OPERATORS, PATCHES, Patch, patched

torch.set_num_threads(1)
pytestmark = pytest.mark.usefixtures("asked_once")


def cheapest_first(
    mechanism: Mechanism, implementation: Implementation, dtype: str, shows: str = ""
) -> list[Batch]:
    """All batches of the verifier, behind that of a label the shortest: most faults show there."""
    found = batches(mechanism, implementation, dtype)
    return sorted(found, key=lambda batch: (batch.label != shows, sum(batch.lengths)))


WRONG = "suites.support.mutants:WRONG"


@pytest.mark.parametrize("phase", ["forward", "training"])
def test_a_wrong_implementation_has_no_margin_at_a_benchmarks_shape(phase: str) -> None:
    row = check_case(f"wrong_cnn.shifted-B4-N32-D24-f32-{phase}-cpu+1-thread", [WRONG])
    assert row["verdict"] == "wrong"
    assert row["error"] > row["budget"]
    right = check_case(f"multi_cnn.conv-B4-N32-D24-f32-{phase}-cpu+1-thread")
    assert right["verdict"] == "ok"
    assert right["margin"] > 1


class Cut(torch.nn.Module):
    """Another module, without gradients of some weights or of its input."""

    def __init__(self, whole: torch.nn.Module, without: Sequence[str]) -> None:
        super().__init__()
        self.whole, self.without = whole, without

    def named_parameters(self, *given: Any, **more: Any) -> Any:
        return self.whole.named_parameters(*given, **more)

    def state_dict(self, *given: Any, **more: Any) -> Any:
        return self.whole.state_dict(*given, **more)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        weights = {n: w.detach() if n in self.without else w for n, w in self.named_parameters()}
        given = x.detach() if "x" in self.without else x
        return torch.func.functional_call(self.whole, weights, (given, mask))


@pytest.mark.parametrize("without", [(), ("q_w",), ("k_w", "v_w", "o_w"), ("x",)], ids=str)
def test_a_gradient_that_was_never_computed_has_no_margin(
    without: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What skips its work would be timed, and called verified."""
    real = margin.case_module

    def cut(*given: Any) -> Any:
        mechanism, implementation, module = real(*given)
        return mechanism, implementation, Cut(module, without)

    monkeypatch.setattr(margin, "case_module", cut)
    row = check_case("multi_head.sdpa-B2-N16-D32-H2-f32-training-cpu")
    assert row["verdict"] == ("wrong" if without else "ok"), row
    assert not without or row["what"].removeprefix("grad of ") in without


@pytest.mark.parametrize("phase", ["forward", "training"])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("deaf_mtsa.deaf-B4-N32-D24-H2", "suites.support.mutants:PADDED_WRONG"),
        ("reading_cnn.reads-B16-N64-D24", "suites.support.mutants:END_WRONG"),
        ("reading_cnn.reads-B16-N256-D24", "suites.support.mutants:END_WRONG"),
    ],
)
def test_what_is_wrong_with_padding_has_no_margin_where_a_benchmark_pads(
    name: str, given: str, phase: str
) -> None:
    case = f"{name}-f32-{phase}-cpu+1-thread"
    assert check_case(case, [given])["verdict"] == "ok"
    row = check_case(f"{case}+padded", [given])
    assert row["verdict"] == "wrong"
    assert row["error"] > row["budget"]


@pytest.mark.parametrize("name", [n for n, m in builtins().items() if m.oracle])
def test_every_mechanism_has_a_margin_where_a_benchmark_pads(name: str) -> None:
    mechanism = builtins()[name]
    heads = "-H2" if mechanism.takes_heads else ""
    case = f"{name}.{mechanism.default}-B4-N32-D24{heads}-f32-training-cpu+1-thread+padded"
    row = check_case(case)
    assert row["verdict"] == "ok", row
    assert row["margin"] > 1


@pytest.mark.parametrize("patch", PATCHES, ids=str)
def test_a_changed_line_is_noticed(patch: Patch) -> None:
    assert not patch.file.endswith("naive.py"), "its oracle's answers are those of the right text"
    with patched(patch):
        mechanism, implementation = Registry().find(patch.implementation)
        noticed = _noticed(mechanism, implementation, patch.dtype, patch.shows)
        assert noticed, f"{patch} passes as correct"


def _noticed(
    mechanism: Mechanism, implementation: Implementation, dtype: str = "f64", shows: str = ""
) -> bool:
    """Whether any batch is over budget; in f64 an error counts too."""
    errors = (ValueError, RuntimeError, IndexError) if dtype == "f64" else ()
    for batch in cheapest_first(mechanism, implementation, dtype, shows):
        try:
            found = check_drawn(mechanism, implementation, batch, dtype, "cpu")
        except errors:
            return True
        if not all(d.ok for d in found):
            return True
    return False


def test_a_patch_that_changes_nothing_passes() -> None:
    # What is noticed above is the fault, not the patching.
    idle = Patch(
        "nothing", "none.fused", "none/modules.py", "self.d_in = d_in", "self.d_in = (d_in)"
    )
    with patched(idle):
        assert not _noticed(*Registry().find(idle.implementation))
    with pytest.raises(ValueError, match=r"stands 0 times in none/modules\.py"):
        replace(idle, old="no such text").source()


PACKAGES = """
    additive bi_gru bi_lstm biblosa disa disan hrchy_cnn kim_cnn msmsa mtsa mtsa_nmt mtsa_stack
    multi_cnn multi_head multi_scale_transformer none resa resan source2token transformer
"""
"""Those that must have named faults; a newcomer may bring a ``faults.toml`` beside its tests."""


def test_every_package_has_three_mutants() -> None:
    named = (p.implementation.partition(".")[0] for p in PATCHES)
    found = Counter(str(builtins()[name].folder).rpartition(".")[2] for name in named)
    assert {folder for folder in {*PACKAGES.split(), *found} if found[folder] < 3} == set()
    assert sum(found.values()) >= 40


def test_afterwards_modules_and_operators_are_those_of_before() -> None:
    package = importlib.import_module("reference_impls.kernels")
    core = importlib.import_module("reference_impls.kernels.core")
    native = importlib.import_module("reference_impls.kernels.native")
    repair = importlib.import_module("reference_impls.kernels.underflow")
    with patched(PATCHES[0]):
        assert importlib.import_module("reference_impls.kernels.core") is not core
        for name in OPERATORS[:2]:
            importlib.import_module(name)
    assert package.core is sys.modules["reference_impls.kernels.core"] is core
    assert sys.modules["reference_impls.kernels.native"] is native
    for module, operators in (
        (native, ("native_forward", "native_backward")),
        (repair, ("repaired", "repaired_backward")),
    ):
        for name in operators:
            assert getattr(torch.ops.attnbench, name).default._schema.name == f"attnbench::{name}"
            assert torch._library.custom_ops.OPDEFS[f"attnbench::{name}"] is getattr(module, name)
    with (
        pytest.raises(ValueError, match="registers operators"),
        patched(replace(PATCHES[0], file="kernels/underflow.py")),
    ):
        raise AssertionError("nothing may be patched there")


def test_operators_are_registered_by_no_other_modules() -> None:
    # Registered twice, they end compiled calls in std::bad_alloc, long after the second time.
    for one in builtins().values():
        for implementation in one.implementations:
            importlib.import_module(implementation.factory.partition(":")[0])
    definitions = torch._library.custom_ops.OPDEFS
    ours = {name: d for name, d in definitions.items() if name.startswith("attnbench::")}
    where = {name: d._init_fn.__module__ for name, d in ours.items()}
    assert "attnbench::disa_forward" in where
    assert {name: of for name, of in where.items() if not of.startswith(OPERATORS)} == {}
