"""The fused layers of MTSA, beyond what every implementation is held to."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from reference_impls.kernels import core, geometry
from reference_impls.kernels.tiled import cutting
from reference_impls.mechanism import Unsupported
from reference_impls.mtsa import projection
from reference_impls.mtsa.fused import FusedMTSA
from reference_impls.mtsa.layer import TensorizedLayer
from suites.support.batches import (
    D_IN,
    D_OUT,
    HEADS,
    assert_same,
    batch,
    build,
    cotangent_of,
    error,
    run,
)
from suites.support.parameters import few

NAMES = ("mtsa", "mtsa_released", "mtsa_nmt", "mtsa_stack")
BACKENDS = [b for b in ("native", "tiled") if core.available(b)]
OURS = [f"{name}.fused_{backend}" for name in NAMES for backend in BACKENDS]


# Every backend


@pytest.mark.parametrize("name", [*OURS, "mtsa.algorithm1", "disa.broadcast"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_its_dtype(name: str, dtype: torch.dtype) -> None:
    module = build(name)
    x, mask = batch((70, 41))
    wanted = module(x, mask)
    out = module.to(dtype)(x.to(dtype), mask)
    assert out.dtype == dtype
    assert error(out, wanted) < (5e-3 if dtype == torch.float16 else 5e-2)


ONE_GRAPH = [
    ("mtsa.fused", True),
    ("msmsa.windowed", True),
    ("mtsa.fused", None),
    ("mtsa.fused_tiled", None),
    ("mtsa_released.fused", None),
]
"""By name, and whether torch is told that shapes are dynamic: by default it finds out."""


@pytest.mark.parametrize("given", few(ONE_GRAPH, ONE_GRAPH[:1]), ids=str)
def test_compiles_into_one_graph_with_its_gradients(given: tuple[str, bool | None]) -> None:
    """With dynamic shapes for a length, and a number of sequences, that no earlier call had."""
    name, dynamic = given
    module = build(name)
    torch._dynamo.reset()
    compiled: Any = torch.compile(module, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for lengths in ((5, 3, 0), (17, 4)):
        x, mask = batch(lengths)
        found = {n.removeprefix("_orig_mod."): t for n, t in run(compiled, x, mask).items()}
        assert_same(found, run(module, x, mask), 1e-11)
    assert error(compiled(x, None), module(x, None)) < 1e-12


def kept(call: Any, x: Tensor) -> int:
    """Bytes that a call keeps for its backward pass, those that it was given not counted."""
    seen: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if not isinstance(t, torch.nn.Parameter):
            seen[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        call(x).sum()
    seen.pop(x.untyped_storage().data_ptr(), None)
    return sum(seen.values())


@pytest.mark.skipif("native" not in BACKENDS, reason="there is no C++ compiler")
def test_a_compiled_call_keeps_no_more_than_an_eager_one() -> None:
    """The partition is inductor's own: it would keep the hidden layer of the scores as well."""
    torch.manual_seed(0)
    module = FusedMTSA(24, 40, heads=4)
    x = torch.randn(16, 64, 24, requires_grad=True)
    torch._dynamo.reset()
    compiled: Any = torch.compile(module, fullgraph=True, backend="aot_eager_decomp_partition")
    assert kept(compiled, x) <= 1.05 * kept(module, x)


@pytest.mark.parametrize("backend", few(BACKENDS, BACKENDS[:1]))
def test_dropout_draws_anew_from_one_graph(backend: str) -> None:
    """What is drawn is a number of the call: a graph made for one number would be made again."""
    module = build(f"mtsa.fused_{backend}", attention_dropout=0.5).float().train()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled: Any = torch.compile(module, backend="aot_eager")
    x = torch.randn(2, 9, D_IN)
    graphs, found = [], []
    for _ in range(4):
        out = compiled(x)
        out.sum().backward()
        found.append(out.detach())
        graphs.append(torch._dynamo.utils.counters["stats"]["unique_graphs"])
    assert graphs[0] > 0
    # The second number tells the compiler that it changes.
    assert len(set(graphs[1:])) == 1, graphs
    assert not any(torch.equal(found[0], other) for other in found[1:])


def test_a_bias_that_changes_nothing_has_a_gradient_of_zero_however_it_is_trained() -> None:
    x = torch.randn(2, 9, D_IN)

    def gradient(module: Any, call: Any, autocast: bool = False) -> Tensor | None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            out = call(x)
        out.float().sum().backward()
        found: Tensor | None = module.s2_b.grad
        return found

    for kind in ("eager", "autocast", "frozen", "compiled"):
        module: Any = build("mtsa.fused_tiled").float().train()
        torch._dynamo.reset()
        call = torch.compile(module, backend="aot_eager") if kind == "compiled" else module
        module.v_w.requires_grad_(kind != "frozen")
        found = gradient(module, call, kind == "autocast")
        assert found is not None, kind
        assert found.abs().max() == 0, kind


@pytest.mark.parametrize("name", OURS)
def test_only_what_is_wanted_has_a_gradient(name: str) -> None:
    module = build(name)
    x, mask = batch((7, 4))
    wanted = run(module, x, mask)
    module.zero_grad()
    out = module(x, mask)  # x wants none
    (out * cotangent_of(out)).sum().backward()
    for weight, parameter in module.named_parameters():
        assert parameter.grad is not None, weight
        assert error(parameter.grad, wanted[weight]) < 1e-12, weight
    module.requires_grad_(False)
    assert not module(x, mask).requires_grad
    assert error(run(module, x, mask)["x"], wanted["x"]) < 1e-12
    # Of the weights only one, whichever it is.
    for weight, parameter in module.named_parameters():
        parameter.requires_grad_(True)
        assert error(run(module, x, mask)[weight], wanted[weight]) < 1e-12, weight
        parameter.requires_grad_(False)


# Products and views


def test_queries_keys_and_values_are_views_of_one_product() -> None:
    for module in (
        build("mtsa.fused_tiled"),
        build("mtsa_released.fused_tiled", scores_from_input=True, fusion_gate=False),
    ):
        assert isinstance(module, TensorizedLayer)
        x, _ = batch((6, 6))
        for context in (torch.enable_grad(), torch.no_grad()):
            with context:
                q, k, _, _ = module.project(x)
            assert q.untyped_storage().data_ptr() == k.untyped_storage().data_ptr()
            assert k.data_ptr() - q.data_ptr() == D_OUT * 8


def test_each_projection_is_one_product(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(cutting, "FEW", 0)  # small heads are put together

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
        ) -> Any:
            seen.append(func.overloadpacket.__name__)
            return func(*args, **(kwargs or {}))

    module = build("mtsa.fused_tiled").eval()
    x, _ = batch((6, 6))
    with torch.no_grad():
        module(x)
        with Watch():
            module(x)
    assert seen.count("mm") == 2  # q k v, and W^o
    assert seen.count("bmm") == 1 + 2 * HEADS  # the second layer of s; scores and sums
    assert seen.count("baddbmm") == 1  # the first
    assert "clone" not in seen
    assert seen.count("cat") == 0


def test_zeros_are_added_only_where_they_make_whole_vectors() -> None:
    def widths(hidden: int, width: int) -> list[tuple[int, ...]]:
        given = torch.ones(2, 5, hidden), torch.ones(2, hidden), torch.ones(2, hidden, width)
        found = projection.padded(*given)
        assert [t.sum() for t in found] == [t.sum() for t in given]
        return [tuple(t.shape) for t in found]

    assert widths(75, 75) == [(2, 5, 80), (2, 80), (2, 80, 80)]
    assert widths(16, 64) == [(2, 5, 16), (2, 16), (2, 16, 64)]
    assert widths(64, 75) == [(2, 5, 64), (2, 64), (2, 64, 80)]
    assert widths(3, 3) == [(2, 5, 3), (2, 3), (2, 3, 3)]  # 13 columns more would not pay


def test_the_gradient_that_came_in_is_left_as_it_was() -> None:
    module = build("mtsa.fused_tiled")
    assert isinstance(module, FusedMTSA)
    x, _ = batch((6, 6))
    found = module.project(x.requires_grad_())
    given = [torch.randn(t.shape, dtype=t.dtype) for t in found]
    kept = [t.clone() for t in given]
    torch.autograd.backward(found, given)
    assert all(torch.equal(a, b) for a, b in zip(given, kept, strict=True))


@pytest.mark.parametrize("lengths", [(6, 4), (3,)], ids=["more", "fewer than rows of a weight"])
@pytest.mark.parametrize("tokens", [0, 10**6])
@pytest.mark.parametrize("variant", ["default", "narrow"])
def test_what_is_kept_of_few_tokens_changes_no_gradient(
    lengths: tuple[int, ...], tokens: int, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"key_dim": 3, "score_dim": 6} if variant == "narrow" else {}
    ours, plain = (build(f"mtsa.{name}", **options) for name in ("fused_tiled", "plain"))
    monkeypatch.setattr(projection, "FEW_TOKENS", tokens)
    x, mask = batch(lengths)
    assert_same(run(ours, x, mask), run(plain, x, mask), 1e-11)


def test_a_second_derivative_is_refused() -> None:
    module = build("mtsa.fused_tiled")
    x, _ = batch((3,))
    with pytest.raises(Unsupported, match="no second derivative; use algorithm1"):
        torch.autograd.grad(module(x.requires_grad_()).sum(), x, create_graph=True)


def test_a_geometry_is_made_once_for_each_length(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(wraps=geometry.of_masks)
    monkeypatch.setattr(geometry, "of_masks", made)
    monkeypatch.setattr(geometry, "LENGTHS_CACHED", 2)
    module = build("mtsa.fused_tiled")
    for n in (5, 5, 6, 5, 7, 7, 5):
        module(batch((n,))[0])
    assert [one.args[1] for one in made.call_args_list] == [5, 6, 7, 5]
