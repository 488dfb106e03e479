"""Windows by shifts, in tiles and by kernels: as all pairs under a mask, and never N x N."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from harness.verify.batches import ragged
from reference_impls.kernels.caching import TensorCache
from reference_impls.msmsa import tiles, windowed
from reference_impls.msmsa.fused import windows
from reference_impls.msmsa.modules import MaskedMsmsa
from reference_impls.msmsa.scales import GivenScale, Scale
from reference_impls.msmsa.tiles import Piece, pieces, plan, tile_for
from reference_impls.msmsa.windowed import Bands, Neighbours, WindowedMsmsa, _masks
from suites.reference_impls.msmsa.test_msmsa import alike
from suites.support.batches import D_IN, LargestTensor, assert_same, batch, error, run
from suites.support.parameters import few

GOAL: list[GivenScale] = [1, 1, 1, 1, 1, 3, 3, "n/16", "n/16", "n/8"]
"""The scales that the goals are stated for."""


def assert_equal_to_masked(n: int, scales: list[GivenScale]) -> None:
    """Values and gradients, with and without padding."""
    torch.manual_seed(0)
    sizes, options = (D_IN, 2 * len(scales)), {"heads": len(scales), "scales": scales}
    windowed, masked = alike((WindowedMsmsa, MaskedMsmsa), *sizes, **options)
    for x, mask in (batch(ragged(n), padding=math.nan), (batch((n, n))[0], None)):
        assert_same(run(windowed, x, mask), run(masked, x, mask), 1e-12)
        with torch.inference_mode():  # results take the place of the projections
            assert error(windowed(x, mask), masked(x, mask)) <= 1e-12


# Arithmetic


@given(half=st.integers(1, 40), tile=st.integers(1, 40), more=st.integers(0, 200))
@settings(max_examples=200, deadline=None)
def test_pieces_hold_every_query_once_and_its_whole_window(half: int, tile: int, more: int) -> None:
    length = 2 * half + tile + more
    met = []
    for piece in pieces(half, tile, length):
        for m in range(piece.tiles):
            first = piece.first + m * piece.tile
            assert first >= 0
            assert first + piece.band <= length
            for i in range(piece.start + m * piece.tile, piece.start + (m + 1) * piece.tile):
                met.append(i)
                assert first <= max(0, i - half)
                assert min(length - 1, i + half) < first + piece.band
    assert met == list(range(length))


def test_tiles_are_taken_where_they_save_pairs() -> None:
    assert tile_for(half=8, length=64, batch=1) == 0
    assert tile_for(half=128, length=300, batch=1) == 0
    for half in (4, 64, 512):
        tile = tile_for(half, 8192, 1)
        assert tile > 0
        computed = sum(piece.pairs for piece in pieces(half, tile, 8192))
        assert computed < 8192 * (2 * half + 1 + 300)
    # A larger batch is worth more calls.
    assert tile_for(half=16, length=200, batch=64) > 0


@pytest.mark.parametrize(
    ("length", "batch", "method"),
    [(16, 1, "all"), (64, 32, "all"), (128, 1, "all"), (128, 8, "near"), (256, 1, "near")],
)
def test_neighbours_are_met_by_shifting_where_that_is_worth_its_calls(
    length: int, batch: int, method: str
) -> None:
    assert [group.method for group in plan([Scale(3)], length, batch)] == [method]


# Equalities


@pytest.mark.parametrize("tile", few([1, 7, 16, 64], [1, 16]))
@pytest.mark.parametrize("half", few([1, 3, 16, 40], [1, 16]))
def test_tiles_of_any_size_equal_all_pairs(
    half: int, tile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiles, "NEAREST", 0)
    monkeypatch.setattr(tiles, "tile_for", lambda half, length, batch: tile)
    for n in (2 * half + tile, 2 * half + 3 * tile + 5):
        assert_equal_to_masked(n, [2 * half + 1, 2 * half])
    assert_equal_to_masked(33 * half + tile, ["n/16", "n/17"])


@pytest.mark.parametrize("half", few([1, 2, 5], [1, 5]))
@pytest.mark.parametrize("n", few([1, 2, 5, 40], [1, 5, 40]))
def test_shifts_equal_all_pairs(n: int, half: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiles, "NEAREST", half)
    monkeypatch.setattr(tiles, "by_shifts", lambda length, batch: True)
    assert_equal_to_masked(n, [2 * half + 1, 3])
    assert_equal_to_masked(n, ["n/4", 2 * half + 1])


@pytest.mark.parametrize("n", few([17, 40, 130, 300, 400], [40, 300, 400]))
@pytest.mark.parametrize("scales", [GOAL, [3, 1, 129, "n/4", 1, 3, "n/16"]], ids=["goal", "mixed"])
def test_heads_of_many_scales_equal_all_pairs(n: int, scales: list[GivenScale]) -> None:
    assert_equal_to_masked(n, scales)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_neighbours_in_half_precision_are_summed_in_float32(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 50, 3, 64).to(dtype) for _ in range(3))
    found = Neighbours.apply(q, k, v, 1, None)
    exact = Neighbours.apply(q.double(), k.double(), v.double(), 1, None)
    assert found.dtype == dtype
    # One rounding, that of the result.
    assert ((found - exact).abs() <= torch.finfo(dtype).eps * exact.abs() + 1e-5).all()


# What it costs


def test_what_is_added_to_scores_lies_in_rows() -> None:
    """Fused attention copies any other for each head, at 512 rows in twice its own time."""
    q, scales = torch.randn(3, 400, 2, 30), (Scale(33), Scale(divisor=8))
    mask = torch.ones(3, 400, dtype=torch.bool)
    for padding in (None, mask):
        masks = _masks(pieces(16, 32, 400), scales[:1], padding, q)
        for found in [*masks, *_masks([Piece(0, 1, 400, 0, 400)], scales, padding, q)]:
            assert found.stride(-1) == 1
            assert found.stride(-2) >= found.shape[-1]


def test_a_mask_is_made_once_for_a_length_and_a_large_one_is_not_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(windowed, "_cache", TensorCache(2))
    module = WindowedMsmsa(24, 24, heads=2, scales=["n/4", 3])
    x = torch.randn(1, 64, 24)
    with torch.inference_mode():
        module(x)
    module(x).sum().backward()  # by what was made in inference mode
    assert module.q_w.grad is not None
    assert len(windowed._cache) == 1
    q, whole = torch.randn(1, 64, 1, 12), [Piece(0, 1, 64, 0, 64)]
    first, again, other = (_masks(whole, [Scale(w)], None, q)[0] for w in (17, 17, 33))
    assert first.untyped_storage().data_ptr() == again.untyped_storage().data_ptr()
    assert int((first == 0).sum()) < int((other == 0).sum())
    (half,) = _masks(whole, [Scale(17)], None, q.bfloat16())
    assert half.dtype == torch.bfloat16
    assert torch.equal(half.float(), first)
    held, large = len(windowed._cache), torch.randn(1, 600, 1, 12)
    _masks([Piece(0, 1, 600, 0, 600)], [Scale(17)], None, large)
    assert len(windowed._cache) == held


def test_bands_are_views() -> None:
    t = torch.randn(2, 400, 90)[..., 30:60].unflatten(-1, (3, 10))
    cut = pieces(16, 32, 400)
    bands = Bands.apply(t, cut)
    assert len(bands) == 3 * len(cut)
    for band in bands:
        assert band.untyped_storage().data_ptr() == t.untyped_storage().data_ptr()
        assert band.stride(-1) == 1


@pytest.mark.parametrize("masked", [False, True])
def test_nothing_of_n_times_n_is_held(masked: bool) -> None:
    n, d = 4096, 20
    module = WindowedMsmsa(d, d, heads=10, scales=GOAL)
    x = torch.randn(1, n, d, requires_grad=True)
    mask = torch.ones(1, n, dtype=torch.bool) if masked else None
    with LargestTensor() as watch:
        module(x, mask).sum().backward()
    # With padding every tile has a mask of its own: N times a band, an eighth of n and a tile.
    bound = n * (n // 8 + 2 * max(tiles.TILES)) if masked else n * 3 * d
    assert watch.bytes <= 4 * bound


class Readings(TorchDispatchMode):
    """Where a value is read from a tensor: on a GPU that waits for all that is queued."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default):
            self.found.append(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("n", [40, 400])
def test_no_length_is_read_from_the_device(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed, "_cache", TensorCache(2))  # no mask that another test has made
    module = WindowedMsmsa(D_IN, 20, heads=10, scales=GOAL).double()
    for x, mask in (batch((n, n // 2, 0)), (batch((n, n))[0], None)):
        with Readings() as readings, sdpa_kernel(SDPBackend.MATH):
            module(x, mask)
            windows(module.scales, n, mask, x.device)
        assert readings.found == []
