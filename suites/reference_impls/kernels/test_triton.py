"""The Triton kernels: on CUDA where there is a device, else in Triton's interpreter.

The interpreter has to be chosen before triton is imported, so a child runs this file with it.
"""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from harness.registry import Registry
from harness.verify.batches import Batch, ragged
from harness.verify.budget import CAP
from harness.verify.check import check_drawn
from reference_impls.kernels import core, tiled, triton, underflow
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.triton import device, trial
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import Tile
from reference_impls.mechanism import Unsupported
from suites.support.attending import (
    DTYPES,
    EXACT,
    ODD,
    PROBLEMS,
    TELLING,
    Problem,
    assert_agrees,
    changed,
    defined,
    dense,
    exact,
    got,
    leaves,
    masks_of,
    with_gradients,
    with_leaves,
)
from suites.support.batches import cotangent_of, error
from suites.support.parameters import few

INTERPRETED = device.interpreted()
DEVICE = torch.device("cpu" if INTERPRETED else "cuda")
runs_kernels = pytest.mark.skipif(
    device.usable() != "", reason="runs in the child of test_in_the_interpreter"
)
TRITON = pytest.importorskip("triton", reason="the CPU build of torch is without triton")
repair, launch = (
    importlib.import_module(f"reference_impls.kernels.triton.{name}")
    for name in ("repair", "launch")
)
VERSION = tuple(int(part) for part in TRITON.__version__.split(".")[:2])
SMALL = (Tile(16, 16, 4, 1), Tile(32, 16, 4, 2), Tile(16, 32, 4, 1))


@pytest.fixture(autouse=True)
def _bfloat16_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter keeps bfloat16 as 16-bit integers and multiplies them as such: widen them."""
    if not INTERPRETED:
        return
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    product = InterpreterBuilder.create_dot

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        a, b = (
            self.create_fp_ext(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x
            for x in (a, b)
        )
        return product(self, a, b, *others)

    monkeypatch.setattr(InterpreterBuilder, "create_dot", create_dot)
    monkeypatch.setattr(triton, "BFLOAT16_INTERPRETED", True)


def runs_the_interpreter(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts a child where this process neither is one nor has a device."""
    for condition, reason in (
        (INTERPRETED or torch.cuda.is_available(), "the tests run the kernels themselves"),
        (VERSION < (3, 9), "an older interpreter does not know numpy 2.4"),
    ):
        test = pytest.mark.skipif(condition, reason=reason)(test)
    return test


def assert_passes_interpreted(file: str, more_than: int, seconds: float, *options: str) -> None:
    """Run a test module in a child with Triton's interpreter."""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, file],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]
    passed = re.search(r"(\d+) passed", child.stdout)
    assert passed is not None
    assert int(passed[1]) > more_than, child.stdout[-500:]


@runs_the_interpreter
@pytest.mark.slow
@pytest.mark.parametrize(
    "tier", ["not nightly", pytest.param("nightly", marks=pytest.mark.nightly)]
)
def test_in_the_interpreter(tier: str) -> None:
    assert_passes_interpreted(__file__, 15, 1800, "-m", tier)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tiles so small that short sequences have several; another for each test."""
    tile = SMALL[sum(request.node.name.encode()) % len(SMALL)]
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.choose", lambda *_: tile)


# The mathematics


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", few(PROBLEMS, TELLING))
def test_agrees(name: str) -> None:
    problem = changed(name, batch=1 if PROBLEMS[name].later is None else 2)
    if name in TELLING:
        problem = replace(problem, n=min(problem.n, 33))
    assert_agrees(triton.attend, problem.call(device=DEVICE), capped=True)


WIDE = {
    "table-1": Problem(n=19, batch=1, d_i=300, d_v=300, columns=300, padding="tail", scale=0.3),
    "keys": Problem(n=33, batch=1, d_i=320, columns=None, masks=ODD, scale_t="identity", scale=0.3),
    "values": Problem(n=33, batch=1, d_v=257, columns=1, padding="holes", keep=0.7),
}
"""Heads of more than 256 features, as the paper's Table 1 has."""


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", few(WIDE, ["table-1"]))
@pytest.mark.parametrize("dtype", few([torch.bfloat16, torch.float32], [torch.bfloat16]))
def test_wide_heads(name: str, dtype: torch.dtype) -> None:
    assert_agrees(triton.attend, WIDE[name].call(dtype, DEVICE), capped=True)


@runs_kernels
@pytest.mark.nightly
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_agrees_with_the_tiles_of_the_table(scale_t: str) -> None:
    problem = Problem(n=33, padding="holes", scale_t=scale_t)
    assert_agrees(triton.attend, problem.call(device=DEVICE), capped=True)


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("one-column", torch.bfloat16),
        ("dropout", torch.float16),
        *(
            pytest.param(name, dtype, marks=pytest.mark.nightly)
            for name in ("odd-ranges", "every-mask-identity", "plain-softmax")
            for dtype in (torch.bfloat16, torch.float16)
        ),
    ],
)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    assert_agrees(triton.attend, changed(name, batch=1).call(dtype, DEVICE), capped=True)


@runs_kernels
@pytest.mark.parametrize("scale_t", few(["log_sigmoid", "identity"], ["identity"]))
def test_what_values_have_in_common_costs_no_accuracy(scale_t: str) -> None:
    """In bfloat16 the two halves of dP would cancel but for 5 %, were the mean value in them."""
    problem = Problem(n=65, d_i=16, d_v=16, columns=16, scale_t=scale_t, common=3.0)
    call = problem.call(torch.bfloat16, DEVICE)
    found, wanted = got(triton.attend, call), defined(call)
    for name in ("dq", "dk", "ds"):
        miss = (found[name].double() - wanted[name]).norm() / wanted[name].norm()
        assert miss < 0.018, name


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_rows_copied_for_wide_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.PACKED_FROM", 0)
    assert_agrees(triton.attend, changed("wider-values", batch=1).call(device=DEVICE), capped=True)


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    "dropout", [PairDropout(0xFFFFFFFF, 0.9), PairDropout(0x80000000, 0.2), PairDropout(7, 1.0)]
)
def test_the_very_pairs_of_keeping_are_kept(dropout: PairDropout) -> None:
    n = 33
    call = Problem(n=n, batch=1, columns=None, masks=masks_of("none", "none")).call(device=DEVICE)
    q, v = torch.zeros_like(call.q), torch.eye(n, device=DEVICE).expand(2, 1, n, n)
    a, _ = triton.attend(call._replace(q=q, k=q, v=v, dropout=dropout))
    assert torch.equal(a.cpu() > 0, dropout.pairs(v.cpu()))


# Denominators


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_a_denominator_lost_in_the_second_part_of_the_features_is_flagged() -> None:
    problem = Problem(batch=1, d_v=40, columns=40, masks=masks_of("forward"))
    call = problem.call(device=DEVICE)
    leaves(call)["s"].data[:, :, 10, 39] += 200
    _, flagged = triton.attend(call)
    i = torch.arange(20, device=DEVICE)
    assert torch.equal(flagged[0, 0], (i > 0) & (i <= 10))


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("scale_t", few(["log_sigmoid", "identity"], ["identity"]))
def test_lost_denominators_are_flagged_and_nothing_else(scale_t: str) -> None:
    """The largest source score is far ahead, where a query that looks back can't see it."""
    call = Problem(batch=1, scale_t=scale_t).call(device=DEVICE)
    leaves(call)["s"].data[:, :, 10] += 200
    a, flagged = triton.attend(call)
    i = torch.arange(20, device=DEVICE)
    # Query 0 of the first head and the last of the second have no key: closed, not flagged.
    assert torch.equal(flagged[0, 0], (i > 0) & (i <= 10))
    assert torch.equal(flagged[1, 0], (i >= 10) & (i < 19))
    assert not flagged[2].any()
    assert error(a.cpu(), dense(exact(call))) <= 2e-6
    found, wanted = with_gradients(a, call), defined(call)
    assert all(error(found[name], wanted[name]) <= 2e-5 for name in wanted)


UNDERFLOWING = {
    "log-sigmoid": Problem(padding="holes", scale=100.0, batch=1),
    "identity": Problem(padding="holes", scale=30.0, scale_t="identity", masks=ODD),
    "one-column": Problem(n=40, scale=60.0, columns=1, keep=0.7),
    "dropout": Problem(padding="tail", scale=100.0, keep=0.7, n=12),
    "no-source2token": Problem(scale=300.0, columns=None),
    "no-token2token": Problem(scale=300.0, d_i=0, masks=ODD),
    "ranges-by-sample": replace(PROBLEMS["ranges-by-sample"], scale=100.0),
    "wider-values": replace(PROBLEMS["wider-values"], scale=100.0),
    "table-1": replace(WIDE["table-1"], n=5, masks=masks_of("forward"), scale=12.0),
}
"""Many queries of each are flagged."""


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    "given",
    few(
        [
            *((name, torch.float32) for name in UNDERFLOWING),
            ("log-sigmoid", torch.bfloat16),
            ("one-column", torch.float16),
        ],
        [("log-sigmoid", torch.float32)],
    ),
    ids=str,
)
def test_flagged_queries_and_their_gradients_are_right(
    given: tuple[str, torch.dtype], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeated, bit for bit; what is looked at at once has ends within the queries and keys."""
    monkeypatch.setattr(repair, "QUERIES", 16)
    monkeypatch.setattr(repair, "FLAGS", 8)
    monkeypatch.setattr(repair, "HELD", {"queries": 512, "keys": 1024})
    name, dtype = given
    call = UNDERFLOWING[name].call(dtype, DEVICE)
    a, flagged = triton.attend(call)
    assert flagged.any()
    assert a.permute(1, 2, 0, 3).is_contiguous()
    flow = cotangent_of(a, torch.float64)
    if dtype != torch.float32:  # whose other queries lose more to rounding than these
        flow = flow * flagged.cpu()[..., None]
    found, wanted = with_gradients(a, call, flow), defined(call, flow)
    for what, right in wanted.items():
        miss = error(found[what], right)
        assert miss <= (5e-5 if dtype == torch.float32 else CAP[DTYPES[dtype]]), what
    again, _ = triton.attend(call)
    repeated = with_gradients(again, call, flow)
    assert all(torch.equal(repeated[what], found[what]) for what in wanted)


@runs_kernels
@pytest.mark.parametrize("name", few(UNDERFLOWING, ["dropout"]))
@pytest.mark.parametrize(
    ("how", "dtype"),
    [
        ("in place", torch.float64),
        pytest.param("beside autograd", torch.float32, marks=pytest.mark.nightly),
    ],
)
def test_other_backends_are_repaired_by_the_same_kernels(
    how: str, name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(underflow, "on_device", lambda _: True)
    call = UNDERFLOWING[name].call(dtype, DEVICE)
    if how == "in place":
        a = core.attend(*call, backend="tiled")
    else:
        _, flagged = tiled.attend(call)
        lost = dense(call).masked_fill(flagged[..., None], 0)
        a = core.exact(lost.to(dtype), flagged, call)
    found, wanted = with_gradients(a, call), defined(call)
    allowed = EXACT if dtype == torch.float64 else 5e-5
    assert all(error(found[what], wanted[what]) <= allowed for what in wanted)


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_padding_may_hold_anything_but_keys_and_results_repeat() -> None:
    call = changed("dropout", batch=1).call(device=DEVICE)
    assert call.mask is not None
    padding = ~call.mask[..., None]
    clean = got(triton.attend, call)
    spoiled = call._replace(
        v=call.v.detach().masked_fill(padding, torch.nan).requires_grad_(),
        s=leaves(call)["s"].detach().masked_fill(padding, torch.nan).requires_grad_(),
    )
    found = got(triton.attend, spoiled)
    assert all(torch.equal(found[name], clean[name]) for name in clean)


# Layers on it


REGISTRY = Registry()
LAYERS = [
    f"{mechanism.name}.fused_triton"
    for mechanism in REGISTRY.mechanisms.values()
    if any(one.name == "fused_triton" for one in mechanism.implementations)
]


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", few(LAYERS, ["mtsa.fused_triton"]))
@pytest.mark.parametrize(
    "trial",
    [
        pytest.param(Batch("N=19", {}, ragged(19)), marks=pytest.mark.nightly),
        Batch("N=6 without padding", {}, (6, 6), masked=False),
        pytest.param(
            Batch("scores times 100, N=9", {}, ragged(9), score_scale=100),
            marks=pytest.mark.nightly,
        ),
    ],
    ids=lambda trial: trial.label,
)
def test_layers_and_their_gradients_are_the_oracles(name: str, trial: Batch) -> None:
    """Padding is NaN, and one sample is all padding."""
    found = check_drawn(*REGISTRY.find(name), trial, "f32", DEVICE.type)
    assert {bool(d.gradient) for d in found} == {True, False}
    assert [d.what for d in found if not d.ok] == []


# torch around it


@runs_kernels
@pytest.mark.nightly
@pytest.mark.usefixtures("small_tiles")
def test_torch_finds_the_operators_in_order() -> None:
    problem = Problem(n=3, batch=1, masks=masks_of("none"), scale_t="identity", padding="tail")
    given = (*problem.call(device=DEVICE).flat(), True)
    torch.library.opcheck(torch.ops.attnbench.triton_forward.default, (*given, True))
    given = tuple(t.detach() if isinstance(t, Tensor) else t for t in given)
    found = triton.triton_forward(*given, True)
    torch.library.opcheck(
        torch.ops.attnbench.triton_backward.default, (torch.ones_like(found[0]), *given, *found)
    )


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_the_operators_read_tensors_of_any_strides() -> None:
    """They may be called by name: the last axis need not be dense there either."""
    dense_one = Problem(n=9, batch=1).call(device=DEVICE)
    turned = with_leaves(dense_one, lambda t: t.transpose(2, 3).contiguous().transpose(2, 3))
    assert turned.q.stride(-1) > 1
    found = [triton.triton_forward(*c.flat(), True, True) for c in (dense_one, turned)]
    assert torch.equal(found[0][0], found[1][0])
    seen = torch.ones_like(found[0][0])
    gradients = [
        triton.triton_backward(seen, *c.flat(), True, *found[0]) for c in (dense_one, turned)
    ]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.fixture
def settings_kept() -> Iterator[None]:
    """What torch is told of TF32, put back by the setting that was used."""
    yield
    torch.set_float32_matmul_precision("highest")  # the other two settings follow it


@runs_kernels
@pytest.mark.usefixtures("small_tiles", "settings_kept")
@pytest.mark.parametrize("later", few([True, False], [True]))
def test_the_backward_pass_is_that_of_its_forward_pass(later: bool) -> None:
    """Whatever torch is told between them: TF32 is of the pair, and so is the centre of values."""

    def gradients(change: bool) -> dict[str, Tensor]:
        torch.backends.cuda.matmul.allow_tf32 = not later
        call = Problem(n=17, batch=1).call(device=DEVICE)
        a, _ = triton.attend(call)
        if change:
            torch.backends.cuda.matmul.allow_tf32 = later
        return with_gradients(a, call)

    one, other = gradients(False), gradients(True)
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.usefixtures("settings_kept")
def test_tf32_is_asked_of_either_setting() -> None:
    """The older one raises where the newer one was used."""
    torch.backends.cuda.matmul.allow_tf32 = True
    assert not device.exact()
    torch.backends.cuda.matmul.allow_tf32 = False
    assert device.exact()
    torch.set_float32_matmul_precision("high")
    assert not device.exact()
    torch.backends.cuda.matmul.fp32_precision = "ieee"
    assert device.exact()
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    assert not device.exact()


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_compiles_whole_with_its_gradients() -> None:
    compiled: Any = torch.compile(triton.attend, fullgraph=True, backend="aot_eager")
    call = Problem(n=5, batch=1).call(device=DEVICE)
    found, plain = got(compiled, call), got(triton.attend, call)
    assert all(torch.equal(found[name], plain[name]) for name in plain)


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_autocast_changes_nothing_but_what_projections_hand_over() -> None:
    """Under autocast a layer's products are bfloat16; its source scores may be float32."""
    call = Problem(n=17, batch=1).call(torch.bfloat16, DEVICE)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        a, flagged = triton.attend(call._replace(k=call.k.float(), s=leaves(call)["s"].float()))
    assert a.dtype == torch.bfloat16
    assert not flagged.any()
    assert error(a.cpu(), dense(exact(call))) <= 1e-1


@runs_kernels
@pytest.mark.parametrize(
    ("dtype", "d_i", "message"),
    [
        (torch.float64, 4, "dtype torch.float64; expected float32, bfloat16 or float16"),
        (torch.float32, 321, "heads are 321 wide; expected at most 320"),
    ],
)
def test_says_what_it_does_not_do(dtype: torch.dtype, d_i: int, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        triton.attend(Problem(n=2, d_i=d_i).call(dtype, DEVICE))


@pytest.mark.skipif(not INTERPRETED, reason="it is the interpreter that can't")
def test_the_interpreter_does_not_multiply_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "BFLOAT16_INTERPRETED", False)
    with pytest.raises(Unsupported, match="multiplies bfloat16 as integers; expected float32"):
        triton.attend(Problem(n=2).call(torch.bfloat16))


@runs_kernels
def test_a_tile_that_computes_something_else_may_not_win(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "CHECKED", 19)
    monkeypatch.setattr(trial, "MASKS", {"directional": ("forward", "backward")})
    ask: Any = partial(trial.why_not, "key_gradient", "single", 16, SMALL[0], DEVICE.type)
    assert ask() == ""
    gradients, room = launch.backward, Inputs.gradients
    monkeypatch.setattr(launch, "backward", lambda *given: gradients(*given)[:-1])  # dk: whatever
    monkeypatch.setattr(Inputs, "gradients", lambda given: [t + 1 for t in room(given)])
    assert re.fullmatch(
        r"wrong: d[kvs] is off by \S+ of its largest \(heads of 16, directional\)", ask()
    )
    monkeypatch.setattr(launch, "backward", Mock(side_effect=Unsupported("too\nlarge")))
    monkeypatch.setattr(launch, "forward", lambda *_: [])
    assert ask() == "does not run: too large (heads of 16, directional)"
