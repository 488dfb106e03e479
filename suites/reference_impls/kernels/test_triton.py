"""The Triton kernels: on CUDA where there is a device, else in Triton's interpreter.

The interpreter has to be chosen before triton is imported, so a child runs this file with it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.registry import Registry
from harness.verify.batches import Batch, ragged
from harness.verify.budget import CAP, error
from harness.verify.check import check_drawn
from reference_impls.kernels import triton
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.triton import device, tune
from reference_impls.kernels.triton.tiles import Tile
from reference_impls.mechanism import Unsupported
from suites.support.attending import (
    BATCH,
    HEADS,
    PROBLEMS,
    Problem,
    assert_agrees,
    changed,
    expected,
    got,
    masks_of,
)
from suites.support.parameters import nightly_but

torch.set_num_threads(1)

INTERPRETED = device.interpreted()
DEVICE = "cpu" if INTERPRETED else "cuda"
runs_kernels = pytest.mark.skipif(
    device.usable() != "", reason="runs in the child of test_in_the_interpreter"
)
TRITON = pytest.importorskip("triton", reason="the CPU build of torch is without triton")
VERSION = tuple(int(part) for part in TRITON.__version__.split(".")[:2])
TELLING = (
    "one-token",
    "several-tiles",
    "identity-padded",
    "odd-ranges",
    "ranges-by-sample",
    "wider-values",
    "one-column",
    "plain-softmax",
    "dropout-identity",
)
"""Each way through the kernels once: what every run tries; the nightly session tries all."""
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


@pytest.mark.skipif(
    INTERPRETED or torch.cuda.is_available(), reason="the tests run the kernels themselves"
)
@pytest.mark.skipif(VERSION < (3, 9), reason="an older interpreter does not know numpy 2.4")
@pytest.mark.parametrize(
    "tier", ["not nightly", pytest.param("nightly", marks=pytest.mark.nightly)]
)
def test_in_the_interpreter(tier: str) -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", tier, __file__],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]
    passed = re.search(r"(\d+) passed", child.stdout)
    assert passed is not None
    assert int(passed[1]) > 20, child.stdout[-500:]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tiles so small that short sequences have several; another for each test."""
    tile = SMALL[sum(request.node.name.encode()) % len(SMALL)]
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.choose", lambda *_: tile)


def attended(problem: Problem) -> dict[str, Tensor]:
    return got(problem, triton.attend, DEVICE)


def in_order(given: dict[str, Tensor]) -> tuple[Any, Any, Any, Any]:
    """q, k, v and s."""
    return given["q"], given["k"], given["v"], given["s"]


# The mathematics


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", nightly_but(PROBLEMS, TELLING.__contains__))
def test_agrees_with_algorithm_1(name: str) -> None:
    found = attended(PROBLEMS[name])
    assert not found["flagged"].any()
    assert_agrees(PROBLEMS[name], found)


@runs_kernels
@pytest.mark.parametrize("name", ["three-tiles", "identity-padded"])
def test_agrees_with_the_tiles_of_the_table(name: str) -> None:
    assert_agrees(PROBLEMS[name], attended(PROBLEMS[name]))


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    "case",
    nightly_but(
        [
            "padded bfloat16",
            "identity bfloat16",
            "one-column bfloat16",
            "plain-softmax bfloat16",
            "padded float16",
            "plain-softmax float16",
        ],
        ("one-column bfloat16", "padded float16").__contains__,
    ),
)
def test_half_precision(case: str) -> None:
    name, dtype = case.split()
    problem = changed(name, dtype=getattr(torch, dtype))
    found = attended(problem)
    assert not found["flagged"].any()
    assert_agrees(problem, found)


@runs_kernels
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_what_values_have_in_common_costs_no_accuracy(scale_t: str) -> None:
    """In bfloat16 the two halves of dP would cancel but for 5 %, were the mean value in them."""
    problem = Problem(
        n=65, d_i=16, d_v=16, columns=16, scale_t=scale_t, dtype=torch.bfloat16, common=3.0
    )
    found, wanted = attended(problem), expected(problem)
    for name in ("q.grad", "k.grad", "s.grad"):
        miss = (found[name].double() - wanted[name]).norm() / wanted[name].norm()
        assert miss < 0.018, name


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", ["wider-values", "plain-softmax"])
def test_rows_copied_for_wide_loads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.PACKED_FROM", 0)
    assert_agrees(PROBLEMS[name], attended(PROBLEMS[name]))


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_views_of_one_projection() -> None:
    """Queries, keys, values and scores side by side in one [B, N, H*4*d], as a layer has them."""
    problem = Problem(n=17)
    given, _, g = problem.tensors(DEVICE)
    side = torch.stack([given[name] for name in "qkvs"], 3)  # [H, B, N, 4, d]
    packed = side.permute(1, 2, 0, 3, 4).contiguous().requires_grad_()  # [B, N, H, 4, d]
    q, k, v, s = (packed[:, :, :, part].permute(2, 0, 1, 3) for part in range(4))
    a, _ = triton.attend(q, k, v, s, problem.geometry(DEVICE), None, problem.scale_t, None)
    assert a.permute(1, 2, 0, 3).is_contiguous()  # the output's layout [B, N, H, d]
    (gradient,) = torch.autograd.grad((a * g).sum(), packed)
    wanted = expected(problem)
    assert error(a.detach().cpu().double().numpy(), wanted["a"].numpy()) <= CAP["f32"]
    for part, name in enumerate("qkvs"):
        found = gradient[:, :, :, part].permute(2, 0, 1, 3).cpu().double().numpy()
        assert error(found, wanted[f"{name}.grad"].numpy()) <= CAP["f32"], name


# Dropout


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    "dropout",
    [
        PairDropout(0, 0.5),
        PairDropout(0xFFFFFFFF, 0.9),
        PairDropout(0x80000000, 0.2),
        PairDropout(7, 1.0),
    ],
)
def test_the_very_pairs_of_keeping_are_kept(dropout: PairDropout) -> None:
    n = 33
    q = torch.zeros(HEADS, BATCH, n, 4, device=DEVICE)
    v = torch.eye(n, device=DEVICE).expand(HEADS, BATCH, n, n)
    geometry = of_masks(masks_of(*["none"] * HEADS), n, q.device)
    a, _ = triton.attend(q, q, v, None, geometry, None, "log_sigmoid", dropout)
    kept = dropout.pairs(HEADS, BATCH, n, torch.device("cpu"))
    assert torch.equal(a.cpu() > 0, kept)


# Denominators


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_lost_denominators_are_flagged_and_nothing_else(scale_t: str) -> None:
    """The largest source score is far ahead, where a query that looks back can't see it."""
    problem = Problem(n=20, masks=masks_of("forward", "backward", "none"), scale_t=scale_t)
    given, _, g = problem.tensors(DEVICE)
    given["s"][:, :, 10] += 200
    inputs = {name: t.requires_grad_() for name, t in given.items()}
    a, flagged = triton.attend(*in_order(inputs), problem.geometry(DEVICE), None, scale_t, None)
    i = torch.arange(20, device=DEVICE)
    # Query 0 of the first head and the last of the second have no key: closed, not flagged.
    assert torch.equal(flagged[0, 0], (i > 0) & (i <= 10))
    assert torch.equal(flagged[1, 1], (i >= 10) & (i < 19))
    assert not flagged[2].any()
    assert (a[flagged] == 0).all()
    only = (a * g)[flagged].sum() + 0 * a.sum()
    for gradient in torch.autograd.grad(only, list(inputs.values())):
        assert (gradient == 0).all()


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("scale", [10.0, 100.0])
@pytest.mark.parametrize("scale_t", ["log_sigmoid", "identity"])
def test_what_is_not_flagged_is_right_at_any_scale(scale: float, scale_t: str) -> None:
    # Scores are products: those of scale 100 would leave float32's own rounding beyond the budget.
    problem = changed("padded", scale=scale, scale_t=scale_t)
    found = attended(problem)
    assert bool(found["flagged"].any()) == (scale > 10)
    if scale_t == "log_sigmoid" or scale <= 10:
        assert_agrees(problem, found, ~found["flagged"])
    assert all(torch.isfinite(t).all() for t in found.values())


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_padding_may_hold_anything_but_keys() -> None:
    problem = PROBLEMS["padded"]
    given, mask, g = problem.tensors(DEVICE)
    assert mask is not None
    clean = got(problem, triton.attend, DEVICE)
    for name in "vs":
        given[name] = given[name].masked_fill(~mask[None, :, :, None], torch.nan)
    inputs = {name: t.requires_grad_() for name, t in given.items()}
    a, _ = triton.attend(*in_order(inputs), problem.geometry(DEVICE), mask, "log_sigmoid", None)
    assert torch.equal(a.cpu(), clean["a"])
    gradients = torch.autograd.grad((a * g).sum(), list(inputs.values()))
    for name, gradient in zip("qkvs", gradients, strict=True):
        assert torch.equal(gradient.cpu(), clean[f"{name}.grad"]), name


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_results_repeat_bit_for_bit() -> None:
    once, again = (attended(PROBLEMS["dropout"]) for _ in range(2))
    assert all(torch.equal(once[name], again[name]) for name in once)


# Layers on it


REGISTRY = Registry()
LAYERS = [
    f"{mechanism.name}.fused_triton"
    for mechanism in REGISTRY.mechanisms.values()
    if any(one.name == "fused_triton" for one in mechanism.implementations)
]


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", nightly_but(LAYERS, "mtsa.fused_triton".__eq__))
@pytest.mark.parametrize(
    "trial",
    nightly_but(
        [
            Batch("N=19", {}, ragged(19)),
            Batch("N=6 without padding", {}, (6, 6), masked=False),
            Batch("scores times 100, N=9", {}, ragged(9), score_scale=100),
        ],
        lambda trial: not trial.masked,
    ),
    ids=lambda trial: trial.label,
)
def test_layers_and_their_gradients_are_the_oracles(name: str, trial: Batch) -> None:
    """Padding is NaN, and one sample is all padding."""
    found = check_drawn(*REGISTRY.find(name), trial, "f32", DEVICE)
    assert {bool(d.gradient) for d in found} == {True, False}
    assert [d.what for d in found if not d.ok] == []


# torch around it


def _arguments(problem: Problem) -> tuple[Any, ...]:
    """Of one head and sample: opcheck runs an operator many times."""
    given, mask, _ = problem.tensors(DEVICE)
    assert mask is not None
    geometry = problem.geometry(DEVICE)
    ranges = (geometry.lo, geometry.hi, geometry.without_self, geometry.slope)
    tensors = (t[:1, :1].clone().requires_grad_() for t in given.values())
    return (
        *tensors,
        *(t[:1].clone() for t in ranges),
        mask[:1].clone(),
        problem.scale_t == "identity",
        5,
        None,
        True,
        True,
    )


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_opcheck() -> None:
    problem = changed("identity-padded", n=5)
    torch.library.opcheck(torch.ops.attnbench.triton_forward.default, _arguments(problem))


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_opcheck_of_the_backward_pass() -> None:
    arguments = tuple(
        t.detach() if isinstance(t, Tensor) else t
        for t in _arguments(changed("identity-padded", n=5))
    )
    found = triton.triton_forward(*arguments)
    torch.library.opcheck(
        torch.ops.attnbench.triton_backward.default,
        (torch.ones_like(found[0]), *arguments[:-1], *found),
    )


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_the_operators_read_tensors_of_any_strides() -> None:
    """They may be called by name: the last axis need not be dense there either."""
    problem = Problem(n=9)
    given, *_ = problem.tensors(DEVICE)
    geometry = problem.geometry(DEVICE)
    ranges = (geometry.lo, geometry.hi, geometry.without_self, geometry.slope)
    options = (None, False, 0, None, True)
    dense = tuple(given[name] for name in "qkvs")
    turned = tuple(t.transpose(2, 3).contiguous().transpose(2, 3) for t in dense)
    found = [triton.triton_forward(*t, *ranges, *options, True) for t in (dense, turned)]
    assert turned[0].stride(-1) > 1
    assert torch.equal(found[0][0], found[1][0])
    seen = torch.ones_like(found[0][0])
    gradients = [
        triton.triton_backward(seen, *t, *ranges, *options, *found[0]) for t in (dense, turned)
    ]
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


@pytest.fixture
def settings_kept() -> Iterator[None]:
    """What torch is told of TF32, put back by the setting that was used."""
    yield
    torch.backends.cuda.matmul.fp32_precision = "ieee"


@runs_kernels
@pytest.mark.usefixtures("small_tiles", "settings_kept")
@pytest.mark.parametrize("later", [True, False])
def test_the_backward_pass_is_that_of_its_forward_pass(later: bool) -> None:
    """Whatever torch is told between them: TF32 is of the pair, and so is the centre of values."""
    problem = Problem(n=17)
    given, _, g = problem.tensors(DEVICE)

    def gradients(change: bool) -> tuple[Tensor, ...]:
        torch.backends.cuda.matmul.allow_tf32 = not later
        q, k, v, s = (given[name].detach().clone().requires_grad_() for name in "qkvs")
        a, _ = triton.attend(q, k, v, s, problem.geometry(DEVICE), None, problem.scale_t, None)
        if change:
            torch.backends.cuda.matmul.allow_tf32 = later
        return torch.autograd.grad(a, (q, k, v, s), g.to(a.dtype))

    for one, other in zip(gradients(False), gradients(True), strict=True):
        assert torch.equal(one, other)


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
    problem = Problem(n=5)
    compiled = torch.compile(triton.attend, fullgraph=True, backend="aot_eager")
    found = got(problem, compiled, DEVICE)
    plain = attended(problem)
    assert all(torch.equal(found[name], plain[name]) for name in plain)


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
def test_autocast_changes_nothing_but_what_projections_hand_over() -> None:
    """Under autocast a layer's products are bfloat16; its source scores may be float32."""
    problem = Problem(n=17, dtype=torch.bfloat16)
    given, _, _ = problem.tensors(DEVICE)
    with torch.autocast(DEVICE, torch.bfloat16):
        a, flagged = triton.attend(
            given["q"],
            given["k"].float(),
            given["v"],
            given["s"].float(),
            problem.geometry(DEVICE),
            None,
            problem.scale_t,
            None,
        )
    assert a.dtype == torch.bfloat16
    assert not flagged.any()
    assert_agrees(problem, {"a": a.cpu()}, ~flagged.cpu())


@runs_kernels
@pytest.mark.parametrize(
    ("dtype", "d_i", "message"),
    [
        (torch.float64, 4, "dtype torch.float64; expected float32, bfloat16 or float16"),
        (torch.float32, 300, "heads are 300 wide; expected at most 256"),
    ],
)
def test_says_what_it_does_not_do(dtype: torch.dtype, d_i: int, message: str) -> None:
    problem = Problem(n=2, d_i=d_i, dtype=dtype)
    given, _, _ = problem.tensors(DEVICE)
    with pytest.raises(Unsupported, match=message):
        triton.attend(*in_order(given), problem.geometry(DEVICE), None, "log_sigmoid", None)


@pytest.mark.skipif(not INTERPRETED, reason="it is the interpreter that can't")
def test_the_interpreter_does_not_multiply_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "BFLOAT16_INTERPRETED", False)
    problem = Problem(n=2, dtype=torch.bfloat16)
    with pytest.raises(Unsupported, match="multiplies bfloat16 as integers; expected float32"):
        got(problem, triton.attend)


@pytest.mark.skipif(torch.cuda.is_available() or INTERPRETED, reason="the kernels run here")
def test_says_that_there_is_no_device() -> None:
    with pytest.raises(Unsupported, match=r"triton: no CUDA device is here; set TRITON_INTERPRET"):
        got(Problem(n=2), triton.attend)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device is here to tune for")
def test_tuning_needs_a_device(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tune.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("nothing to tune: ")
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
