"""FlexAttention: its lists of blocks, its kernels on CUDA; `test_agreement` has its mathematics."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor

from harness.verify.budget import CAP
from reference_impls import compiled_flex
from reference_impls.compiled_flex import BLOCK, NARROWEST, wide_enough
from reference_impls.kernels import flex, triton
from reference_impls.kernels.flex import blocks as lists
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.masks import allowed
from reference_impls.mechanism import Unsupported
from suites.reference_impls.kernels.test_agreement import WITHOUT_DROPOUT
from suites.support.attending import ODD, PROBLEMS, Problem, assert_agrees, got, masks_of
from suites.support.batches import error

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is here")


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
    missing = -n % BLOCK
    tiled = torch.nn.functional.pad(pairs, (0, missing, 0, missing))
    tiled = tiled.unflatten(3, (-1, BLOCK)).unflatten(2, (-1, BLOCK))
    some, full = tiled.any(3).any(4), tiled.all(3).all(4)  # [B or 1, H, blocks, blocks]
    for positions in (blocks.kv_indices, blocks.full_kv_indices, blocks.q_indices):
        assert positions is not None
        assert positions.is_contiguous(), "its kernels go on by the heads' stride alone"
    listed = _dense(blocks.kv_num_blocks, blocks.kv_indices)
    listed_full = _dense(blocks.full_kv_num_blocks, blocks.full_kv_indices)
    assert not (listed & listed_full).any()
    assert ((listed | listed_full) >= some).all()  # none is forgotten
    assert (listed_full <= full | _short(n)).all()  # none is read unmasked that has a closed pair
    assert torch.equal(listed | listed_full, some) or padded
    if n % BLOCK == 0 and not padded:
        assert torch.equal(listed_full, full)


def _dense(numbers: Tensor | None, positions: Tensor | None) -> Tensor:
    assert numbers is not None
    assert positions is not None
    chosen = torch.arange(positions.shape[-1]) < numbers[..., None]
    return torch.zeros_like(chosen).scatter(-1, positions.long(), chosen)


def _short(n: int) -> Tensor:
    """Blocks of queries that end behind the sequence: their rows there are never looked at."""
    count = -(-n // BLOCK)
    short = torch.zeros(count, count, dtype=torch.bool)
    short[-1] = n % BLOCK > 0
    return short


def test_blocks_are_kept_for_a_geometry_and_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = Mock(wraps=lists._cache.of)
    monkeypatch.setattr(lists._cache, "of", looked)
    geometry = of_masks(masks_of("forward"), 300, torch.device("cpu"))
    first = lists.block_mask(geometry, None, 2, 300)
    assert lists.block_mask(geometry, None, 2, 300) is first
    twin = Geometry(geometry.lo + 0, geometry.hi, geometry.without_self, geometry.slope)
    assert lists.block_mask(twin, None, 2, 300) is not first
    padded = torch.ones(2, 300, dtype=torch.bool)
    assert lists.block_mask(geometry, padded, 2, 300) is not first
    assert {call.args[1] for call in looked.call_args_list} == {geometry.lo.device}


@pytest.mark.parametrize(
    ("problem", "dtype", "message"),
    [
        (Problem(n=2, keep=0.5), torch.float32, "dropout of the numerator alone"),
        (Problem(n=2), torch.float64, "dtype torch.float64"),
        (
            Problem(n=2, d_v=150, columns=150),
            torch.float32,
            "heads are 150 wide; expected at most 128",
        ),
    ],
)
def test_says_what_it_does_not_do(problem: Problem, dtype: torch.dtype, message: str) -> None:
    with pytest.raises(Unsupported, match=message):
        flex.refuse(problem.call(dtype))


@needs_cuda
@pytest.mark.parametrize("name", WITHOUT_DROPOUT)
def test_agrees_on_the_device(name: str) -> None:
    call = PROBLEMS[name].call(device=torch.device("cuda"))
    assert_agrees(flex.attend, call, capped=True)
    # Each is within its cap of the definition.
    found, wanted = got(flex.attend, call), got(triton.attend, call)
    assert all(error(found[part], wanted[part]) <= 2 * CAP["f32"] for part in found)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("d", [64, 128])
def test_agrees_over_several_blocks_on_the_device(d: int, dtype: torch.dtype) -> None:
    problem = Problem(n=300, d_i=d, d_v=d, columns=d, padding="tail", scale=d**-0.5)
    call = problem.call(dtype, torch.device("cuda"))
    assert_agrees(flex.attend, call, capped=True)
    first, second = got(flex.attend, call), got(flex.attend, call)
    assert all(torch.equal(first[name], second[name]) for name in first)


@needs_cuda
def test_tensors_on_the_cpu_are_refused_beside_a_device() -> None:
    with pytest.raises(Unsupported, match="tensors are on cpu; expected cuda"):
        flex.attend(Problem(n=2).call())


def test_it_is_compiled_once_for_each_shape_or_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def compiled(function: Any, **options: Any) -> Any:
        asked.append((function, options))
        return lambda *_: (
            torch._dynamo.config.fail_on_recompile_limit_hit,
            torch._dynamo.config.recompile_limit,
        )

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(compiled_flex, "_compiled", cache(compiled_flex._compiled.__wrapped__))
    limits = (True, compiled_flex.MOST_SHAPES)
    assert [compiled_flex.fused(1), compiled_flex.fused(2)] == [limits, limits]
    assert asked == [(compiled_flex.flex_attention, {"dynamic": False})]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(compiled_flex, "flex_attention", lambda *given, **_: given)
    assert compiled_flex.fused(3) == (3,)


@pytest.mark.parametrize("width", [1, 5, NARROWEST, 2 * NARROWEST])
def test_heads_are_made_wide_enough_by_columns_of_zeros(width: int) -> None:
    heads = torch.randn(2, 3, 7, width)
    wide = wide_enough(heads)
    assert wide.shape == (2, 3, 7, max(width, NARROWEST))
    assert torch.equal(wide[..., :width], heads)
    assert not wide[..., width:].any()
