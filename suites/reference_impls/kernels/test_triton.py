"""The Triton kernels: on CUDA where there is a device, else in Triton's interpreter.

The interpreter has to be chosen before triton is imported, so a child runs this file with it.
Whether the kernels are legal for a Hopper GPU is asked of the compiler, which needs none.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
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
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import SHARED_BYTES, TILES, Tile, candidates, choose
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

torch.set_num_threads(1)

INTERPRETED = device.interpreted()
DEVICE = "cpu" if INTERPRETED else "cuda"
runs_kernels = pytest.mark.skipif(
    device.usable() != "", reason="runs in the child of test_in_the_interpreter"
)
TRITON = pytest.importorskip("triton", reason="the CPU build of torch is without triton")
VERSION = tuple(int(part) for part in TRITON.__version__.split(".")[:2])
SPILLED_BYTES = 256
"""Of a thread, on its stack: what the loop with masks spills, and what is loaded once."""
compiles = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")
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
def test_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    child = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=600, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]
    passed = re.search(r"(\d+) passed", child.stdout)
    assert passed is not None
    assert int(passed[1]) > 2 * len(PROBLEMS) - 10, child.stdout[-500:]


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Tiles so small that short sequences have several; another for each test."""
    tile = SMALL[sum(request.node.name.encode()) % len(SMALL)]
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.choose", lambda *_: tile)


def attended(problem: Problem) -> dict[str, Tensor]:
    return got(problem, triton.attend, DEVICE)


# The mathematics


@runs_kernels
@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", PROBLEMS)
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
    ("name", "dtype"),
    [
        ("padded", torch.bfloat16),
        ("identity", torch.bfloat16),
        ("one-column", torch.bfloat16),
        ("plain-softmax", torch.bfloat16),
        ("padded", torch.float16),
        ("plain-softmax", torch.float16),
    ],
)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    problem = changed(name, dtype=dtype)
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
    a, flagged = triton.attend(
        inputs["q"],
        inputs["k"],
        inputs["v"],
        inputs["s"],
        problem.geometry(DEVICE),
        None,
        scale_t,
        None,
    )
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
    a, _ = triton.attend(
        inputs["q"],
        inputs["k"],
        inputs["v"],
        inputs["s"],
        problem.geometry(DEVICE),
        mask,
        "log_sigmoid",
        None,
    )
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
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    "trial",
    [
        Batch("N=19", {}, ragged(19)),
        Batch("N=6 without padding", {}, (6, 6), masked=False),
        Batch("scores times 100, N=9", {}, ragged(9), score_scale=100),
    ],
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
        *tensors, *(t[:1].clone() for t in ranges), mask[:1].clone(),
        problem.scale_t == "identity", 5, None, True, True,
    )  # fmt: skip


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
            given["q"], given["k"].float(), given["v"], given["s"].float(),
            problem.geometry(DEVICE), None, problem.scale_t, None,
        )  # fmt: skip
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
        triton.attend(
            given["q"],
            given["k"],
            given["v"],
            given["s"],
            problem.geometry(DEVICE),
            None,
            "log_sigmoid",
            None,
        )


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


# The compiler's word


def test_tiles_fit_and_none_is_longer_than_the_sequence() -> None:
    for kind, by_numbers in TILES.items():
        for numbers, by_width in by_numbers.items():
            for width, tile in by_width.items():
                assert choose(kind, numbers, width, 10**6) == tile
                assert choose(kind, numbers, width - 1, 10**6) == tile
                assert choose(kind, numbers, width, 20).rows <= 32
                cramped = choose(kind, numbers, width, 10**6, large=False)
                assert cramped.rows == max(16, tile.rows // 2)
                assert cramped.columns == max(16, tile.columns // 2)
                assert set(candidates(kind, numbers, width))


def _launches(problem: Problem) -> dict[str, Any]:
    """The launches of both passes by the kernels' names; nothing is run."""
    from reference_impls.kernels.triton import launch

    given, mask, g = problem.tensors()
    geometry = problem.geometry()
    inputs = Inputs(
        given["q"], given["k"], given["v"], given.get("s"), geometry.lo, geometry.hi,
        geometry.without_self, geometry.slope, mask, problem.scale_t == "identity", 1,
        None if problem.dropout is None else 9,
        problem.dtype == torch.float32,
    )  # fmt: skip
    found = launch.Outputs(*(*triton._outputs(inputs, True), inputs.maximum()))
    gradients = triton._gradients(inputs)
    launches = [
        *launch.forward(inputs, found, True),
        *launch.backward(inputs, found, g, gradients),
    ]
    return {one.kernel.fn.__name__: one for one in launches}


def _assembled(launch: Any, capability: int = 90) -> tuple[int, int, int]:
    """Compile a launch, for Hopper: bytes of shared memory, registers, bytes spilled."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    pointers = {
        torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16",
        torch.int32: "*i32", torch.uint8: "*u8", torch.bool: "*i1",
    }  # fmt: skip
    signature: dict[str, str] = {}
    attributes = {}
    for index, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        value = launch.arguments[name]
        even = isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)
        if isinstance(value, Tensor):
            signature[name] = pointers[value.dtype]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
        if even and name not in ("n", "heads", "batch", "seed", "threshold"):
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, dict(launch.constants), attributes)
    tile = launch.tile or Tile(0, 0, 4, 2)
    compiled = TRITON.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tile.warps, "num_stages": tile.stages},
    )
    registers, spilled = _registers(compiled.asm["cubin"])
    return compiled.metadata.shared, registers, spilled


def _registers(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread and bytes of its stack, to which it spills."""
    tools = Path(TRITON.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert used is not None, told
    return int(used[1]), int(used[2])


LONG: dict[str, Any] = {"n": 256, "masks": masks_of("forward", "backward", "none")}
COMPILED = {
    "half-128": Problem(d_i=128, d_v=128, columns=128, dtype=torch.bfloat16, **LONG),
    "half-64-identity-dropout-padded": Problem(
        d_i=64, d_v=64, columns=64, dtype=torch.bfloat16, scale_t="identity", padded=True,
        dropout=PairDropout(1, 0.9), **LONG,
    ),
    "single-64": Problem(d_i=64, d_v=64, columns=64, **LONG),
    "half-75-one-column": Problem(d_i=75, d_v=75, columns=1, dtype=torch.bfloat16, **LONG),
    "f16-32-plain": Problem(
        d_i=32, d_v=32, columns=None, dtype=torch.float16, scale_t="identity", **LONG
    ),
}  # fmt: skip


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_hopper_can_run_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.PACKED_FROM", 0)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.large_tiles", lambda _: True)
    for kernel, launch in _launches(COMPILED[name]).items():
        shared, registers, spilled = _assembled(launch)
        print(f"{name} {kernel}: {shared} bytes shared, {registers} registers, {spilled} spilled")
        assert shared <= SHARED_BYTES, kernel
        assert spilled <= SPILLED_BYTES, kernel


CRAMPED = {
    "half-128": COMPILED["half-128"],
    "single-75": Problem(d_i=75, d_v=75, columns=75, **LONG),
}
"""What takes most of the shared memory, and the heads of setting A."""


@compiles
@pytest.mark.slow
@pytest.mark.parametrize("name", CRAMPED)
def test_a_card_with_less_shared_memory_can_run_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.PACKED_FROM", 0)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.large_tiles", lambda _: False)
    for kernel, launch in _launches(CRAMPED[name]).items():
        shared, _, spilled = _assembled(launch, 86)
        assert shared <= 99 * 1024, kernel
        assert spilled <= SPILLED_BYTES, kernel


def test_a_card_with_less_shared_memory_says_what_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "large_tiles", lambda *_: False)
    monkeypatch.setattr(triton, "large_tiles", lambda *_: False)
    monkeypatch.setattr(triton, "usable", lambda: "")
    monkeypatch.setattr(triton, "interpreted", lambda: True)
    q = torch.zeros(1, 1, 2, 129)
    with pytest.raises(Unsupported, match="129 wide; expected at most 128 on this device"):
        triton.refuse(q, q)
    triton.refuse(q[..., :128], q[..., :128])


def test_a_kernel_that_does_not_fit_is_refused_in_one_line() -> None:
    from triton.runtime.errors import OutOfResources

    from reference_impls.kernels.triton.launch import Launch

    class TooLarge:
        def __getitem__(self, _: object) -> Any:
            def start(**_: object) -> None:
                raise OutOfResources(131072, 101376, "shared memory")

            return start

    with pytest.raises(Unsupported, match=r"Required: 131072, .* take fused_tiled") as caught:
        Launch(TooLarge(), 1, {}, {}).run()
    assert "\n" not in str(caught.value)
