"""All backends against the tensor of scores in float64: values, gradients, layout, flags.

Triton's interpreter is slow, and has to be chosen before triton is imported: see `test_triton`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from reference_impls.kernels import core, flex, native, tiled
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.tiled import cutting
from reference_impls.mechanism import Unsupported
from reference_impls.mtsa.optimized import least_denominator
from suites.support.attending import (
    DTYPES,
    EXACT,
    PROBLEMS,
    TELLING,
    Attend,
    Problem,
    assert_agrees,
    changed,
    defined,
    dense,
    exact,
    got,
    leaves,
    masks_of,
    open_pairs,
    with_gradients,
    with_leaves,
)
from suites.support.batches import batch, build, cotangent_of, error
from suites.support.parameters import few, has_compiler

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")
BACKENDS: dict[str, Attend] = {"native": native.attend, "tiled": tiled.attend}
EACH = [pytest.param("native", marks=needs_compiler), "tiled"]
WITHOUT_DROPOUT = [name for name, problem in PROBLEMS.items() if problem.keep == 1]


@pytest.fixture
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if sequences of 20 were long for `tiled`: several cuts of queries, samples and heads."""
    monkeypatch.setattr(cutting, "SHORT", 16)
    monkeypatch.setattr(cutting, "LEAST_QUERIES", 7)
    monkeypatch.setattr(cutting, "FEW", 0)
    monkeypatch.setattr(cutting, "SCORE_BYTES", {"cpu": 8 * 300})


@pytest.fixture
def unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch's unfused FlexAttention run with gradients on the CPU, which users may not."""
    module = "torch.nn.attention.flex_attention"
    monkeypatch.setattr(f"{module}._validate_device", lambda *_: None)
    monkeypatch.setattr(f"{module}._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def by_flex(call: KernelCall) -> tuple[Tensor, Tensor]:
    """FlexAttention's mathematics, without its kernels."""
    run: Callable[..., Any] = flex_attention
    return flex.quotient(run, call)


# The definition


@needs_compiler
@pytest.mark.parametrize(
    "dtype",
    few(DTYPES, (torch.float32, torch.bfloat16)),
    ids=DTYPES.get,
)
@pytest.mark.parametrize("name", PROBLEMS)
def test_native(name: str, dtype: torch.dtype) -> None:
    assert_agrees(native.attend, PROBLEMS[name].call(dtype))


@needs_compiler
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("n", few([63, 64, 257, 1000], [257]))
def test_native_at_other_lengths(n: int, scale_t: str) -> None:
    masks = masks_of("forward", "window:40", "none")
    assert_agrees(native.attend, Problem(n=n, batch=1, masks=masks, scale_t=scale_t).call())


@pytest.mark.usefixtures("small_cuts")
@pytest.mark.parametrize("name", PROBLEMS)
def test_tiled(name: str) -> None:
    assert_agrees(tiled.attend, PROBLEMS[name].call(torch.float64))


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("name", few(WITHOUT_DROPOUT, (*TELLING, "no-token2token")))
def test_flex(name: str) -> None:
    assert_agrees(by_flex, PROBLEMS[name].call(), capped=True)


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=DTYPES.get)
def test_flex_in_half_precision(dtype: torch.dtype) -> None:
    for name in ("odd-ranges", "plain-softmax"):
        assert_agrees(by_flex, PROBLEMS[name].call(dtype), capped=True)


@pytest.mark.parametrize("n", [9, 300])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_tiled_sums_in_float32(n: int, dtype: torch.dtype, rounding: float) -> None:
    masks = masks_of("forward", "backward")
    call = Problem(n=n, masks=masks, scale=3.0, padding="tail").call(dtype)
    found, wanted = got(tiled.attend, call), defined(call)
    for name, right in wanted.items():
        assert found[name].dtype == dtype
        assert error(found[name], right) < (rounding / 4 if name == "a" else rounding), name


# Denominators


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("n", [9, 300])
def test_flagged_queries_and_nothing_else_are_lost(n: int, scale_t: str, backend: str) -> None:
    """The largest source score is far ahead, where a query that looks back can't see it.

    They are 0 without a gradient, or computed again by the backend itself.
    """
    problem = Problem(n=n, masks=masks_of("forward", "none"), padding="tail", scale_t=scale_t)
    call = problem.call()
    leaves(call)["s"].data[:, :, 5] = 300
    a, flagged = BACKENDS[backend](call)
    wanted = torch.zeros_like(flagged)
    wanted[0, :, 1:6] = True
    assert torch.equal(flagged, wanted)
    lost = flagged & (backend not in core.REPAIRING)
    assert not a[lost].any()
    right = dense(exact(call))
    assert error(a[~lost], right[~lost]) < 2e-5
    # No gradient flows to lost queries, so that of the others must be all there is.
    cotangent = cotangent_of(a, torch.float64)
    found = with_gradients(a, call, cotangent)
    others = defined(call, cotangent.masked_fill(lost[..., None], 0))
    assert all(t.isfinite().all() for t in found.values())
    assert not found["dq"][lost].any()
    for name in ("dq", "dk", "dv", "ds"):
        assert error(found[name], others[name]) < 1e-4, name


@pytest.mark.parametrize("backend", EACH)
def test_flags_are_those_of_the_denominator(backend: str) -> None:
    # Query i of a strict forward head sees s = 0 where the maximum, seen by the last alone, is x.
    def flags(x: float) -> list[bool]:
        s = torch.zeros(1, 1, 4, 2)
        s[0, 0, 2, 1] = x
        q, v = torch.zeros(1, 1, 4, 3), torch.ones(1, 1, 4, 2)
        call = Problem(n=4, masks=masks_of("forward"), scale_t="identity").call()
        a, flagged = BACKENDS[backend](call._replace(q=q, k=q, v=v, s=s))
        assert (a[0, 0, 1:][~flagged[0, 0, 1:]] - 1).abs().max() < 1e-6
        return flagged[0, 0].tolist()

    least = torch.tensor(least_denominator(torch.float32, 4)).log().neg().item()
    assert flags(least - 1) == [False] * 4
    assert flags(least + 1) == [False, True, True, False]


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("backend", [*EACH, "flex"])
@pytest.mark.parametrize("scale", [30.0, 100.0])
def test_what_is_not_flagged_is_right_at_any_scale(backend: str, scale: float) -> None:
    call = changed("every-mask", scale=scale).call()
    a, flagged = {**BACKENDS, "flex": by_flex}[backend](call)
    assert 0 < flagged.float().mean() < 0.9
    lost = flagged & (backend not in core.REPAIRING)
    assert not a[lost].any()
    assert error(a[~lost], dense(exact(call))[~lost]) <= 2e-5
    assert all(t.isfinite().all() for t in with_gradients(a, call).values())


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_scores_of_a_thousand(scale_t: str, backend: str) -> None:
    masks = masks_of("none", "diagonal", "window:30")
    # In float32 an identity's own rounding would be beyond the cap at a thousand.
    for dtype, factor in ((torch.float64, 500), (torch.float32, 100)):
        call = Problem(n=70, masks=masks, scale_t=scale_t, padding="tail").call(dtype)
        call.q.data.mul_(factor)
        assert_agrees(BACKENDS[backend], call)


# Padding, and queries without a key or with one


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_content_of_padding_does_not_matter(scale_t: str, backend: str) -> None:
    call = changed("every-mask", padding="holes", scale_t=scale_t).call()
    assert call.mask is not None
    padding = ~call.mask[..., None]
    spoiled = with_leaves(call, lambda t: t.masked_fill(padding, torch.nan))
    if backend == "tiled":  # which wants zeros at padding: layers give them
        call = with_leaves(call, lambda t: t.masked_fill(padding, 0))
        spoiled = with_leaves(call, lambda t: t.masked_fill(padding, 7))
    cotangent = cotangent_of(call.v)
    wanted, found = (
        with_gradients(BACKENDS[backend](one)[0], one, cotangent.masked_fill(padding, other))
        for one, other in ((call, 0.0), (spoiled, torch.inf if backend == "native" else 9.0))
    )
    for name in wanted:
        assert torch.equal(found[name], wanted[name]), name
        assert not found[name].masked_select(padding).any(), name


@pytest.mark.parametrize("backend", EACH)
def test_where_nothing_is_wanted_there_is_zero(backend: str) -> None:
    problem = Problem(n=6, batch=3, masks=masks_of("forward", "window:0"), padding="tail")
    call = problem.call()
    assert call.mask is not None
    call.mask[1] = False
    a, flagged = BACKENDS[backend](call)
    nothing = ~open_pairs(call).any(-1)
    assert nothing[0, :, 0].all()
    assert not a[nothing].any()
    assert a[~nothing].all(-1).all()
    assert not flagged.any()
    # Whatever comes back for padded queries and keys, nothing of it is passed on.
    for name, gradient in with_gradients(a, call).items():
        assert not gradient.masked_select(~call.mask[..., None]).any(), name


@needs_compiler
@pytest.mark.parametrize("keep", [1.0, 0.5])
@pytest.mark.parametrize("columns", [5, 1, None])
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_all_that_flows_back_from_a_query_with_one_key_goes_to_its_value(
    columns: int | None, keep: float, scale_t: str
) -> None:
    given: dict[str, Any] = {"columns": columns, "keep": keep, "scale_t": scale_t}
    for problem in (
        Problem(n=3, masks=masks_of("forward", "backward", "diagonal"), padding="tail", **given),
        Problem(n=70, masks=masks_of("window:0"), padding="holes", **given),
    ):
        call = problem.call()
        one = open_pairs(call).sum(-1) == 1
        assert one.any()
        cotangent = cotangent_of(call.v).masked_fill(~one[..., None], 0)
        found = with_gradients(native.attend(call)[0], call, cotangent)
        wanted = defined(call, cotangent)
        for name in found.keys() - {"a", "dv"}:
            assert not found[name].any(), name
        assert wanted["dv"].any()
        torch.testing.assert_close(found["dv"], wanted["dv"].float())


@pytest.mark.parametrize("backend", EACH)
def test_not_a_number_is_not_hidden(backend: str) -> None:
    for scale_t in ("log_sigmoid", "identity"):
        call = Problem(n=40, masks=masks_of("none"), scale_t=scale_t).call()
        for name, t in leaves(call).items():
            right = t[0, 0, 7, 0].item()
            t.detach()[0, 0, 7, 0] = torch.nan
            assert BACKENDS[backend](call)[0].isnan().any(), name
            t.detach()[0, 0, 7, 0] = right


@pytest.mark.parametrize("backend", EACH)
def test_the_gradient_of_what_is_alike_for_all_keys_is_zero(backend: str) -> None:
    masks = masks_of("forward", "backward")
    problem = Problem(n=257, d_v=8, columns=8, masks=masks, padding="tail", scale=4.0)
    ds = got(BACKENDS[backend], problem.call())["ds"]
    assert ds.abs().amax() > 0.5
    assert ds.double().sum(2).abs().max() < 2e-6 * ds.abs().sum(2).max()


# torch around them


class _Blocking(torch.autograd.Function):
    """The values as they are; nothing flows back, not even zeros."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        return a.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        return None


@pytest.mark.parametrize("backend", EACH)
def test_where_nothing_flows_back_nothing_has_a_gradient(backend: str) -> None:
    call = Problem(n=5).call()
    a, _ = BACKENDS[backend](call)
    _Blocking.apply(a).sum().backward()
    assert [t.grad for t in leaves(call).values()] == [None] * 4


@pytest.mark.parametrize("backend", EACH)
def test_a_second_derivative_is_refused_in_one_line(backend: str) -> None:
    def twice(call: KernelCall) -> None:
        a, _ = BACKENDS[backend](call)
        (g,) = torch.autograd.grad(a.sum(), call.q, create_graph=True)
        torch.autograd.grad(g.sum(), call.q)

    call = Problem(n=5).call()
    with pytest.raises(Unsupported, match="no second derivative; use algorithm1") as it:
        twice(call)
    assert "\n" not in str(it.value)


@pytest.mark.parametrize(
    ("backend", "n"), [pytest.param("native", 9, marks=needs_compiler), ("tiled", 300)]
)
def test_compiled_it_is_one_graph_and_the_same(backend: str, n: int) -> None:
    masks = masks_of("forward", "window:2", "diagonal")
    torch._dynamo.reset()
    compiled: Any = torch.compile(BACKENDS[backend], fullgraph=True, backend="aot_eager")
    for padding in ("none", "tail"):
        call = Problem(n=n, masks=masks, padding=padding).call(torch.float64)
        found, wanted = got(compiled, call), got(BACKENDS[backend], call)
        assert all(error(found[name], wanted[name]) < EXACT for name in wanted)


@pytest.mark.parametrize("backend", EACH)
@pytest.mark.parametrize(
    ("threads", "masks", "scale_t"),
    [
        (1, "forward none", "log_sigmoid"),
        # More than samples and heads: one head's rows are shared among them.
        (3, "forward none", "log_sigmoid"),
        (3, "window:40 backward", "identity"),
    ],
)
def test_twice_the_same_bits(threads: int, masks: str, scale_t: str, backend: str) -> None:
    torch.set_num_threads(threads)
    try:
        for dtype in (torch.float32, torch.bfloat16):
            problem = Problem(
                n=520, batch=1, masks=masks_of(*masks.split()), scale_t=scale_t, keep=0.9
            )
            first, again = (got(BACKENDS[backend], problem.call(dtype)) for _ in range(2))
            assert all(torch.equal(first[name], again[name]) for name in first)
            if threads > 1:
                assert_agrees(BACKENDS[backend], problem.call(dtype))
    finally:
        torch.set_num_threads(1)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
@pytest.mark.parametrize("backend", ["triton", "flex"])
def test_a_backend_of_another_device_is_refused_in_one_line(backend: str) -> None:
    def by_layer() -> None:
        module, (x, mask) = build(f"mtsa.fused_{backend}"), batch((3, 2))
        module(x, mask)

    for call in (lambda: core.attend(*Problem(n=3).call(), backend=backend), by_layer):
        with pytest.raises(Unsupported, match=f"{backend}: no CUDA device is here") as caught:
            call()
        assert "\n" not in str(caught.value)
