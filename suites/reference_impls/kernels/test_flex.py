"""FlexAttention: its mathematics here with torch's unfused form on the CPU, the rest on CUDA."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from harness.verify.budget import CAP, error
from reference_impls.kernels import flex, triton
from reference_impls.kernels.caching import TensorCache
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.flex import blocks as lists
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.masks import allowed
from reference_impls.mechanism import Unsupported
from suites.support.attending import ODD, PROBLEMS, Problem, assert_agrees, changed, got, masks_of

torch.set_num_threads(1)

WITHOUT_DROPOUT = [name for name, problem in PROBLEMS.items() if problem.dropout is None]
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


@pytest.fixture
def unfused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let torch's unfused form run with gradients on the CPU, which it refuses for users."""
    module = "torch.nn.attention.flex_attention"
    monkeypatch.setattr(f"{module}._validate_device", lambda *_: None)
    monkeypatch.setattr(f"{module}._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def on_cpu(*arguments: Any) -> tuple[Tensor, Tensor]:
    run: Any = partial(flex.quotient, flex_attention)
    return run(*arguments[:-1])  # without dropout


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("name", WITHOUT_DROPOUT)
def test_the_quotient_is_algorithm_1(name: str) -> None:
    found = got(PROBLEMS[name], on_cpu)
    assert not found["flagged"].any()
    assert_agrees(PROBLEMS[name], found)


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("name", ["padded", "identity", "plain-softmax"])
def test_half_precision(name: str) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        problem = changed(name, dtype=dtype)
        assert_agrees(problem, got(problem, on_cpu))


@pytest.mark.usefixtures("unfused")
@pytest.mark.parametrize("scale", [30.0, 100.0])
def test_what_is_not_flagged_is_right_at_any_scale(scale: float) -> None:
    problem = changed("padded", scale=scale)
    found = got(problem, on_cpu)
    assert found["flagged"].any()
    assert (found["a"][found["flagged"]] == 0).all()
    assert_agrees(problem, found, ~found["flagged"])
    assert all(torch.isfinite(t).all() for t in found.values())


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("n", [100, 128, 300])
def test_blocks_are_skipped_and_unmasked_where_they_may_be(n: int, padded: bool) -> None:
    masks = (*masks_of("forward", "backward_inclusive", "none", "window:20"), *ODD)
    geometry = of_masks(masks, n, torch.device("cpu"))
    mask = None
    if padded:
        mask = torch.arange(n) < torch.tensor([n - 1, n // 3])[:, None]
    blocks = lists._made(geometry, mask, 2, n)
    pairs = allowed(masks, n, torch.device("cpu"))[None]  # [1, H, N, N]
    if mask is not None:
        pairs = pairs & mask[:, None, :, None] & mask[:, None, None, :]
    missing = -n % lists.BLOCK
    tiled = torch.nn.functional.pad(pairs, (0, missing, 0, missing))
    tiled = tiled.unflatten(3, (-1, lists.BLOCK)).unflatten(2, (-1, lists.BLOCK))
    some, full = tiled.any(3).any(4), tiled.all(3).all(4)  # [B or 1, H, blocks, blocks]
    listed = _dense(blocks.kv_num_blocks, blocks.kv_indices)
    listed_full = _dense(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    assert not (listed & listed_full).any()
    assert ((listed | listed_full) >= some).all()  # none is forgotten
    assert (listed_full <= full | _short(n)).all()  # none is read unmasked that has a closed pair
    assert torch.equal(listed | listed_full, some) or padded
    if n % lists.BLOCK == 0 and not padded:
        assert torch.equal(listed_full, full)


def _dense(numbers: Tensor | None, positions: Tensor | None) -> Tensor:
    assert numbers is not None
    assert positions is not None
    chosen = torch.arange(positions.shape[-1]) < numbers[..., None]
    return torch.zeros_like(chosen).scatter(-1, positions.long(), chosen)


def _short(n: int) -> Tensor:
    """Blocks of queries that end behind the sequence: their rows there are never looked at."""
    count = -(-n // lists.BLOCK)
    short = torch.zeros(count, count, dtype=torch.bool)
    short[-1] = n % lists.BLOCK > 0
    return short


def test_blocks_are_kept_for_a_geometry() -> None:
    geometry = of_masks(masks_of("forward"), 300, torch.device("cpu"))
    first = lists.block_mask(geometry, None, 2, 300)
    assert lists.block_mask(geometry, None, 2, 300) is first
    twin = Geometry(geometry.lo + 0, geometry.hi, geometry.without_self, geometry.slope)
    assert lists.block_mask(twin, None, 2, 300) is not first
    padded = torch.ones(2, 300, dtype=torch.bool)
    assert lists.block_mask(geometry, padded, 2, 300) is not first


def test_blocks_that_a_graph_has_read_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[torch.device] = []

    class Spy(TensorCache[Any]):
        def of(self, key: Any, device: torch.device, make: Any) -> Any:
            looked.append(device)
            return super().of(key, torch.device("cuda"), make)

    capturing = [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing[-1])
    monkeypatch.setattr(lists, "_cache", Spy(2))
    geometry = of_masks(masks_of("forward"), 300, torch.device("cpu"))
    first = lists.block_mask(geometry, None, 2, 300)
    capturing.append(True)
    assert lists.block_mask(geometry, None, 2, 300) is first
    capturing.append(False)
    for batch in range(3, 9):
        lists.block_mask(geometry, None, batch, 300)
    assert lists.block_mask(geometry, None, 2, 300) is first
    assert set(looked) == {geometry.lo.device}


@pytest.mark.usefixtures("unfused")
def test_blocks_that_inference_left_behind_serve_training() -> None:
    problem = PROBLEMS["several-tiles"]
    geometry = problem.geometry()

    def attend(*arguments: Any) -> tuple[Tensor, Tensor]:
        return on_cpu(*arguments[:4], geometry, *arguments[5:])

    given, mask, _ = problem.tensors()
    with torch.inference_mode():
        attend(*given.values(), None, mask, problem.scale_t, problem.dropout)
    assert_agrees(problem, got(problem, attend))


@pytest.mark.parametrize(
    ("options", "dropout", "message"),
    [
        ({}, PairDropout(1, 0.5), "dropout of the numerator alone"),
        ({"dtype": torch.float64}, None, "dtype torch.float64"),
        ({"d_v": 150, "columns": 150}, None, "heads are 150 wide; expected at most 128"),
    ],
)
def test_says_what_it_does_not_do(
    options: dict[str, Any], dropout: PairDropout | None, message: str
) -> None:
    given, _, _ = Problem(n=2, **options).tensors()
    with pytest.raises(Unsupported, match=message):
        flex.refuse(given["q"], given["v"], dropout)


@pytest.mark.skipif(torch.cuda.is_available(), reason="a CUDA device is here")
def test_says_that_there_is_no_device() -> None:
    with pytest.raises(Unsupported, match="flex: no CUDA device is here"):
        got(Problem(n=2), flex.attend)


@needs_cuda
@pytest.mark.parametrize("name", WITHOUT_DROPOUT)
def test_agrees_with_algorithm_1_on_the_device(name: str) -> None:
    assert_agrees(PROBLEMS[name], got(PROBLEMS[name], flex.attend, "cuda"))


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 128])
def test_agrees_over_several_blocks_on_the_device(d: int, dtype: torch.dtype) -> None:
    problem = Problem(n=300, d_i=d, d_v=d, columns=d, dtype=dtype, scale=d**-0.5)
    assert_agrees(problem, got(problem, flex.attend, "cuda"))


@needs_cuda
@pytest.mark.parametrize("name", WITHOUT_DROPOUT)
def test_both_fast_paths_agree_with_each_other_on_the_device(name: str) -> None:
    found, wanted = (got(PROBLEMS[name], b.attend, "cuda") for b in (flex, triton))
    # Each is within its cap of Algorithm 1.
    assert all(
        error(found[t].double().numpy(), wanted[t].double().numpy()) <= 2 * CAP["f32"]
        for t in found.keys() - {"flagged"}
    )


@needs_cuda
def test_twice_the_same_on_the_device() -> None:
    problem = Problem(n=300, d_i=64, d_v=64, columns=64, padded=True, scale=0.125)
    first, second = (got(problem, flex.attend, "cuda") for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


@needs_cuda
def test_tensors_on_the_cpu_are_refused_beside_a_device() -> None:
    with pytest.raises(Unsupported, match="tensors are on cpu; expected cuda"):
        got(Problem(n=2), partial(flex.attend))
