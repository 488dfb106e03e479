"""The door to the backends: its choice, its refusals, its repair of queries that underflow."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from harness.measure.run import dispatched
from reference_impls.kernels import core, tiled, underflow
from reference_impls.kernels.caching import constant
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.underflow import repaired
from reference_impls.mechanism import BadOption, Unsupported
from suites.reference_impls.kernels.test_agreement import EACH, needs_compiler
from suites.support.attending import (
    PROBLEMS,
    Problem,
    changed,
    defined,
    dense,
    leaves,
    masks_of,
    with_gradients,
)
from suites.support.batches import LargestTensor, batch, build, error


def outshone(**options: Any) -> KernelCall:
    """float32; one key outshines the others by exp(300), and most queries do not see it."""
    call = Problem(n=12, masks=masks_of("forward", "window:2"), padding="tail", **options).call()
    leaves(call)["s"].data[:, :, 5] = 300
    return call


def assert_exact(a: torch.Tensor, call: KernelCall) -> None:
    """Values and gradients are those of the definition, and lie as layers want them."""
    assert a.permute(1, 2, 0, 3).is_contiguous()
    found, wanted = with_gradients(a, call), defined(call)
    for name in wanted:
        assert error(found[name], wanted[name]) < 2e-5, name


def test_queries_computed_again_hold_nothing_of_all_their_pairs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    budget, n = 2**15, 200
    monkeypatch.setattr(underflow, "CHUNK_BYTES", budget)
    given: dict[str, Any] = {"n": n, "batch": 1, "d_i": 2, "d_v": 2, "columns": 2, "keep": 0.7}
    call = Problem(masks=masks_of("forward"), **given).call()
    with LargestTensor() as watch:
        underflow.recomputed(torch.arange(n), call).sum().backward()
    assert watch.bytes <= budget < n * n  # not even a byte for each pair


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("keep", [1.0, 0.7])
@pytest.mark.parametrize("chunk", [1, 64 * 2**20])
def test_underflowing_queries_are_computed_again(
    scale_t: str, keep: float, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(underflow, "CHUNK_BYTES", chunk)
    call = outshone(keep=keep, scale_t=scale_t)
    _, flagged = tiled.attend(call)
    assert 0 < flagged.sum() < flagged.numel() / 2
    assert_exact(core.attend(*call, backend="tiled"), call)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("chunk", [1, 64 * 2**20])
def test_every_query_alone_is_the_definition(
    name: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By autograd, and by the operator of compiled calls with gradients of its own."""
    monkeypatch.setattr(underflow, "CHUNK_BYTES", chunk)
    call = changed(name, n=min(9, PROBLEMS[name].n)).call(torch.float64)
    wanted, own = dense(call), list(leaves(call).values())
    seen = (wanted != 0).any(-1)
    where = seen.flatten().nonzero().squeeze(1)
    found = underflow.recomputed(where, call)
    assert error(found, wanted.flatten(0, 2)[where]) < 1e-13
    flagged = seen & (torch.rand(seen.shape, generator=torch.Generator().manual_seed(0)) < 0.6)
    arguments = repair_arguments(call, flagged)
    a = repaired(*arguments)
    assert a.permute(1, 2, 0, 3).is_contiguous()
    assert bool((a[~flagged] == 9).all())
    assert not flagged.any() or error(a[flagged], wanted[flagged]) < 1e-13
    # What was not flagged is passed on to the backend.
    (passed,) = torch.autograd.grad(a.sin().sum(), arguments[0], retain_graph=True)
    left = torch.full_like(a, math.cos(9.0)).masked_fill(flagged[..., None], 0)
    assert error(passed, left) < 1e-15
    for got, right in ((found, wanted.flatten(0, 2)[where]), (a[flagged], wanted[flagged])):
        gradients, of_wanted = (
            torch.autograd.grad(t.sin().sum(), own, retain_graph=True, allow_unused=True)
            for t in (got, right)
        )
        for one, other in zip(gradients, of_wanted, strict=True):
            assert one is None or other is None or not one.numel() or error(one, other) < 1e-13


def test_nothing_is_computed_again_that_need_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(underflow, "recomputed", None)
    assert core.attend(*Problem(padding="tail").call(), backend="tiled").isfinite().all()


def repair_arguments(call: KernelCall, flagged: torch.Tensor) -> tuple[Any, ...]:
    """Of the operator: what a backend left at the flagged queries is nothing like a result."""
    a = torch.full((*call.v.shape[1:3], call.v.shape[0], call.v.shape[3]), 9.0, dtype=call.v.dtype)
    return (a.permute(2, 0, 1, 3).requires_grad_(), flagged, *call.flat())


@pytest.mark.parametrize("backend", [*EACH, "operator"])
def test_computed_again_gives_the_same_bits_on_two_threads(backend: str) -> None:
    problem = Problem(n=96, d_i=48, d_v=48, columns=48, masks=masks_of("forward", "backward"))
    call = problem.call()
    leaves(call)["s"].data.mul_(100)
    _, flagged = tiled.attend(call)
    assert flagged.sum() > 100, "many queries of the same sequences"

    def once() -> list[torch.Tensor]:
        if backend == "operator":
            a = repaired(*repair_arguments(call, flagged))
        else:
            a = core.attend(*call, backend=backend)
        return list(with_gradients(a, call).values())

    torch.set_num_threads(2)
    try:
        first = once()
        for _ in range(2):
            assert all(map(torch.equal, once(), first))
    finally:
        torch.set_num_threads(1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")
def test_many_queries_of_a_sequence_are_added_in_one_order_on_cuda() -> None:
    torch.manual_seed(0)
    head, sample = torch.arange(4096, device="cuda") // 2048, torch.zeros(4096, device="cuda").int()
    own = underflow.SequencesOfQueries((head, sample), 1)
    values = torch.randn(4096, 16, 8, device="cuda")
    wanted = values.double().unflatten(0, (2, 2048)).sum(1)[:, None]
    found = []
    for _ in range(6):
        given = torch.zeros(2, 1, 16, 8, device="cuda", requires_grad=True)
        (own.of(given) * values).sum().backward()
        added = torch.zeros(2, 1, 16, 8, device="cuda")
        own.add(added, values)
        assert given.grad is not None
        found.append(torch.stack([given.grad, added]))
    assert error(found[0].double(), wanted.expand_as(found[0])) < 1e-5
    assert all(torch.equal(one, found[0]) for one in found)


def test_the_operators_pass_torchs_own_check() -> None:
    call = Problem(n=6, scale_t="identity", padding="tail").call(torch.float64)
    flagged = torch.zeros(3, 2, 6, dtype=torch.bool)
    for flags in (flagged, flagged.index_fill(2, torch.tensor([1]), True)):
        arguments = repair_arguments(call, flags)
        torch.library.opcheck(torch.ops.attnbench.repaired.default, arguments)
        same = torch.ones(arguments[0].shape, dtype=torch.float64)
        given = (same, *(t.detach() if isinstance(t, torch.Tensor) else t for t in arguments[1:]))
        torch.library.opcheck(torch.ops.attnbench.repaired_backward.default, given)
        a, _, *flat = given
        torch.library.opcheck(torch.ops.attnbench.repair_in_place.default, (a, flags, *flat))
        into = [torch.ones_like(t) for t in flat[:4]]
        given = (a, flags, *into, *flat)
        torch.library.opcheck(torch.ops.attnbench.add_gradients_in_place.default, given)


@pytest.mark.parametrize("backend", EACH)
def test_the_backend_that_ran_is_known_and_recorded(backend: str) -> None:
    call = Problem().call()
    names = dispatched(lambda: core.attend(*call, backend=backend).sum().backward())
    assert core.ran() == backend
    own = {"native": "attnbench::", "tiled": "TiledAttention"}[backend]
    assert any(name.startswith(own) for name in names)
    with torch.inference_mode():
        assert dispatched(lambda: core.attend(*call, backend=backend))


def test_several_dtypes_meet_in_the_widest() -> None:
    call = Problem(n=12).call()
    half: dict[str, Any] = {n: t.bfloat16() for n, t in leaves(call).items() if n != "v"}
    same: dict[str, Any] = {name: t.float() for name, t in half.items()}
    a = core.attend(*call._replace(**half), backend="tiled")
    assert a.dtype == torch.bfloat16
    assert torch.equal(a, core.attend(*call._replace(**same), backend="tiled").bfloat16())


@pytest.mark.parametrize("backend", EACH)
def test_autocast_is_left_outside(backend: str) -> None:
    call = Problem(n=12).call()
    wanted = with_gradients(core.attend(*call, backend=backend), call)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = core.attend(*call, backend=backend)
        assert torch.is_autocast_enabled("cpu")
    found = with_gradients(a, call)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(BadOption, match="backend='fast'; expected 'auto' or 'native' or 'tiled'"):
        core.attend(*Problem(n=3).call(), backend="fast")


def test_what_is_not_installed_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core, "MODULES", {"triton": "reference_impls.kernels.no_such_backend"})
    monkeypatch.setattr(core, "_loaded", {})
    with pytest.raises(Unsupported, match=r"backend triton needs .*no_such_backend") as caught:
        core.attend(*Problem(n=3).call(), backend="triton")
    assert "\n" not in str(caught.value)


ALL = ("native", "flex", "triton")


@pytest.mark.parametrize(
    ("there", "device", "dtype", "options", "wanted"),
    [
        ((), "cuda", torch.bfloat16, {}, "tiled"),
        ((), "cpu", torch.bfloat16, {}, "tiled"),
        (("native",), "cpu", torch.bfloat16, {}, "native"),
        (("native",), "cpu", torch.float64, {}, "native"),
        (("native",), "cpu", torch.int32, {}, "tiled"),
        (ALL, "mps", torch.bfloat16, {}, "tiled"),
        (ALL, "cuda", torch.bfloat16, {}, "triton"),
        (ALL, "cuda", torch.float64, {}, "tiled"),
        (ALL, "cuda", torch.float32, {"width": 300}, "triton"),  # Table 1's own: two heads of 300
        (ALL, "cuda", torch.bfloat16, {"width": 321}, "tiled"),
        # A device without room for large tiles.
        (ALL, "small", torch.float32, {"width": 128}, "triton"),
        (ALL, "small", torch.float32, {"width": 129}, "tiled"),
        (ALL, "small", torch.bfloat16, {"width": 320}, "triton"),
        (("native", "flex"), "cuda", torch.bfloat16, {}, "flex"),
        (("native", "flex"), "cuda", torch.bfloat16, {"dropping": True}, "tiled"),
        (("native", "flex"), "cuda", torch.bfloat16, {"width": 128}, "flex"),
        (("native", "flex"), "cuda", torch.bfloat16, {"width": 129}, "tiled"),
    ],
)
def test_auto_takes_what_there_is(
    there: tuple[str, ...],
    device: str,
    dtype: torch.dtype,
    options: dict[str, Any],
    wanted: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(core, "available", lambda name: name in there)
    monkeypatch.setattr(
        "reference_impls.kernels.triton.device.large_tiles", lambda *_: device == "cuda"
    )
    assert core.choose("cuda" if device == "small" else device, dtype, **options) == wanted


def test_auto_is_told_the_width(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = Mock(return_value="tiled")
    monkeypatch.setattr(core, "choose", chosen)
    core.attend(*Problem(n=4, d_v=7, columns=7).call())
    core.attend(*Problem(n=4, d_i=9, d_v=7, columns=7).call())
    assert [one.args[-1] for one in chosen.call_args_list] == [7, 9]


def test_compiled_the_choice_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    compiled: Any = torch.compile(core.attend, fullgraph=True, backend="aot_eager")
    call = Problem(n=12).call()
    monkeypatch.setattr(core, "available", lambda name: False)
    a, wanted = compiled(*call), core.attend(*call)
    assert core.ran() == "tiled"
    assert error(a, wanted) < 1e-6


@pytest.mark.parametrize("backend", EACH)
def test_compiled_underflowing_queries_are_computed_again(backend: str) -> None:
    given = {"keep": 0.7, "scale_t": "identity"} if backend == "native" else {}
    call = outshone(**given)
    assert bool(tiled.attend(call)[1].any())
    torch._dynamo.reset()
    compiled: Any = torch.compile(core.attend, fullgraph=True, backend="aot_eager")
    assert_exact(compiled(*call, backend=backend), call)


@needs_compiler
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("name", "variant", "options"),
    [
        ("mtsa.fused", "default", {}),
        ("mtsa.fused", "identity", {"key_dim": 3, "score_dim": 5}),
        ("mtsa.fused", "default", {"heads": 2, "masks": ["window:2", "none"]}),
        ("disa.fused", "default", {}),
        ("disa.fused", "diagonal", {}),
        ("disa.fused", "wide_tanh", {}),
    ],
)
def test_a_layer_as_one_operator_is_the_layer(
    name: str,
    variant: str,
    options: dict[str, Any],
    dtype: torch.dtype,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = build(name, variant, **options).to(dtype).eval()
    x, mask = batch((9, 1, 6))
    mask[0, 4] = False  # a hole
    x = x.to(dtype)
    operators = Mock(wraps=core._loader().operators())
    monkeypatch.setattr(core._loader(), "operators", lambda: operators)
    whole = getattr(operators, name.partition(".")[0]).default
    for real in (mask, None):
        whole.reset_mock()
        with torch.no_grad():
            once = module(x, real)
        assert whole.call_count == 1
        stepwise = module(x, real)  # with gradients
        assert whole.call_count == 1
        scale = stepwise.abs().max()
        assert (once - stepwise).abs().max() <= 40 * torch.finfo(dtype).eps * scale
    with torch.no_grad():
        assert dispatched(lambda: module(x, mask)), "by steps where a profiler watches"
        module.train()(x, mask)
    assert whole.call_count == 1


def test_the_mark_for_the_compiler_is_torchs_own_and_costs_no_import() -> None:
    def ours() -> int:
        return 1

    def theirs() -> int:
        return 1

    assert vars(constant(ours)) == vars(torch.compiler.assume_constant_result(theirs))
    code = (
        "import sys, reference_impls.mtsa.fused, reference_impls.msmsa.windowed; "
        "import reference_impls.kernels.native; "
        "print([m for m in ('torch._dynamo', 'torch.utils.cpp_extension') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
