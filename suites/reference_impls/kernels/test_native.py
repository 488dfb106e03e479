"""The native kernel beyond its agreement: tiles, threads, memory, and torch around it."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.measure.run import dispatched
from reference_impls.kernels import native
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.native import attend, native_backward, native_forward
from reference_impls.masks import HeadMask
from reference_impls.mechanism import Unsupported
from suites.support.attending import (
    DTYPES,
    EVERY,
    Problem,
    assert_agrees,
    changed,
    dense,
    exact,
    got,
    masks_of,
    with_leaves,
)
from suites.support.batches import error
from suites.support.parameters import few, has_compiler

pytestmark = pytest.mark.skipif(not has_compiler(), reason="needs a C++ compiler")


@pytest.mark.parametrize(
    "tile",
    few(
        [(16, 16), (32, 16), (48, 48), (64, 32), (128, 64), (16, 64)],
        {(16, 16), (48, 48), (128, 64)},
    ),
)
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_every_size_of_tile(
    tile: tuple[int, int], scale_t: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "tile_rows", tile[0])
    monkeypatch.setattr(native, "tile_panel", tile[1])
    for dtype in (torch.float32, torch.bfloat16):
        for options in ({"keep": 0.7}, {"padding": "holes"}):
            given: dict[str, Any] = {"n": 150, "masks": EVERY, "scale_t": scale_t, **options}
            assert_agrees(attend, Problem(**given).call(dtype))


FEW = (
    *masks_of("window:1", "window:2", "window:13"),
    HeadMask("look back", lo=0, hi=4),
    HeadMask("look ahead", lo=-3, hi=1),
    *masks_of("none"),
)
"""Heads that see few keys, and one that sees all."""


@pytest.mark.parametrize(("n", "d_i", "d_v"), [(1, 3, 3), (20, 5, 7), (65, 16, 33), (500, 30, 3)])
@pytest.mark.parametrize("padding", ["none", "tail", "holes"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_heads_that_see_few_keys(
    n: int, d_i: int, d_v: int, padding: str, dtype: torch.dtype
) -> None:
    given: dict[str, Any] = {"n": n, "d_i": d_i, "d_v": d_v, "padding": padding, "columns": None}
    given |= {"masks": FEW, "later": FEW[::-1], "scale_t": "identity"}
    assert_agrees(attend, Problem(**given).call(dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_large_scores_of_few_keys_overflow_nothing(dtype: torch.dtype) -> None:
    call = Problem(columns=None, masks=FEW[:5], scale_t="identity", scale=500.0).call(dtype)
    assert_agrees(attend, call)


def test_heads_that_see_few_keys_read_nothing_of_the_others() -> None:
    call = Problem(n=60, columns=None, masks=FEW[:5], scale_t="identity").call()
    wanted = got(attend, call)
    for t in call[:3]:
        t.data[..., 50:, :] = math.nan
    found = got(attend, call)
    for name, t in found.items():
        assert torch.equal(t[..., :24, :], wanted[name][..., :24, :])
        assert t[..., 50:, :].isnan().all()


@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
@pytest.mark.parametrize("columns", [9, 1, None])
def test_queries_that_are_computed_again_are_right_in_every_form(
    scale_t: str, columns: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them, as no denominator is large enough; the results are those of the definition."""
    monkeypatch.setattr(native, "least_denominator", lambda *_: math.inf)

    def again(call: KernelCall) -> tuple[Tensor, Tensor]:
        a, flagged = attend(call)
        assert flagged.any()
        return a, torch.zeros_like(flagged)

    forms: list[dict[str, Any]] = [
        {"keep": 0.7, "padding": "holes"},
        {"d_i": 20, "d_v": 1 if columns == 1 else 9, "later": EVERY[::-1]},
        {"d_i": 0},
    ]
    for form in forms:
        given = {"n": 21, "d_v": 9, "columns": columns, "masks": EVERY, **form}
        for dtype in (torch.float64, torch.float32, torch.bfloat16):
            assert_agrees(again, Problem(scale_t=scale_t, **given).call(dtype))


def test_without_products_of_bfloat16_it_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Problem(n=70, padding="tail").call
    with torch.backends.mkldnn.flags(enabled=False):
        assert_agrees(attend, call(torch.bfloat16))
        assert_agrees(attend, call(torch.float32))
    monkeypatch.setattr(native, "_halves", lambda enabled: False)
    assert_agrees(attend, call(torch.bfloat16))


def test_mixed_dtypes_give_that_of_the_queries() -> None:
    call = Problem(n=65, padding="tail").call()
    mixed = call._replace(q=call.q.bfloat16(), k=call.k.bfloat16())
    a, _ = attend(mixed)
    assert a.dtype == torch.bfloat16
    assert error(a, dense(exact(call))) < 2e-2


def arguments(**options: Any) -> list[Any]:
    """Of `native_forward`, with leaves that need gradients."""
    given: dict[str, Any] = {"n": 20, "masks": masks_of("forward", "window:2"), **options}
    return [*Problem(scale_t="identity", keep=0.5, **given).call().flat(), True]


@pytest.mark.parametrize("options", [{"padding": "tail"}, {"columns": None}, {"columns": 1}])
def test_torch_finds_the_operators_in_order(options: dict[str, Any]) -> None:
    given = arguments(**options)
    torch.library.opcheck(native_forward, tuple(given))
    with torch.no_grad():
        a, flagged, inverse, highest = native_forward(*given)
        rest = [t.detach() if isinstance(t, Tensor) else t for t in given[:-1]]
        of_forward = (torch.ones_like(a), a, flagged, inverse, highest)
        torch.library.opcheck(native_backward, (*of_forward, *rest))


def test_gradients_that_were_not_prepared_are_refused() -> None:
    a = native_forward(*arguments()[:-1], False)[0]
    with pytest.raises(RuntimeError, match="save=True"):
        a.sum().backward()


def test_operators_are_seen_by_who_watches_and_cost_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    call = Problem(n=20, padding="tail").call()
    wanted = got(attend, call)
    names = {"attnbench::native_forward", "attnbench::native_backward"}
    assert names <= set(dispatched(lambda: got(attend, call)))  # by a profiler
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad():
        a, _ = attend(call)
    assert isinstance(a, torch._subclasses.FakeTensor)

    def watched(self: Any, *_: Any) -> None:
        raise AssertionError(f"{self} was called by torch's way, where nobody watches")

    monkeypatch.setattr(type(native_forward), "__call__", watched)
    for name, t in got(attend, call).items():
        assert torch.equal(t, wanted[name])
    with torch.no_grad():
        assert torch.equal(attend(call)[0], wanted["a"])


@pytest.mark.slow
@pytest.mark.nightly
def test_compiled_by_inductor_without_a_break() -> None:
    torch.compiler.reset()
    compiled: Any = torch.compile(attend, fullgraph=True)
    call = changed("every-mask", n=65).call()
    found, wanted = got(compiled, call), got(attend, call)
    torch.compiler.reset()
    for name in wanted:
        torch.testing.assert_close(found[name], wanted[name])


def test_what_it_does_not_do_it_says() -> None:
    call = Problem(n=5).call()
    whole = call._replace(**{n: getattr(call, n).detach().to(torch.int32) for n in "qkvs"})
    with pytest.raises(Unsupported, match=r"q is torch.int32"):
        attend(whole)
    with pytest.raises(Unsupported, match="on the CPU, q is on meta"):
        attend(with_leaves(call, lambda t: t.to("meta")))


MEMORY = """
import sys, torch
from harness.isolate import processes
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.native import attend
from reference_impls.masks import parse_all
torch.set_num_threads(1)
heads, d = 2, 32
for n in map(int, sys.argv[2:]):
    leaves = [torch.randn(1, n, heads, d).permute(2, 0, 1, 3).requires_grad_() for _ in range(4)]
    geometry = of_masks(parse_all(None, heads), n, torch.device("cpu"))
    def call():
        a, _ = attend(KernelCall(*leaves, geometry, None, sys.argv[1]))
        a.backward(a.detach())
        for leaf in leaves:
            leaf.grad = None
    call()
    before = processes.reset_peak()
    call()
    print(processes.peak() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM is the Linux kernel's")
@pytest.mark.parametrize("scale_t", few(["log_sigmoid", "identity"], ["identity"]))
def test_memory_is_linear(scale_t: str) -> None:
    n, tensor = 8192, 8192 * 2 * 32 * 4
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, scale_t, str(n // 4), str(n)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"},
    )
    small, large = map(int, done.stdout.split())
    assert 3 < large / small < 5
    # Gradients, the result and its denominators: 6 tensors; the operands of one head, both ways.
    assert large < 12 * tensor
