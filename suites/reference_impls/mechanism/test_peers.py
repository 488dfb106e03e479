"""Peers are never handicapped: never slower than torch's own, forced kernels, FlexAttention."""

from __future__ import annotations

import math
import random
import sys
import time
import types
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from harness.measure.cpu_clock import undisturbed
from harness.stats import block_time, noise_floor, ratio_interval
from reference_impls.bi_lstm import modules as lstm
from reference_impls.bi_lstm.modules import PackedBiLstm
from reference_impls.compiled_flex import BLOCK
from reference_impls.mechanism import Unsupported
from reference_impls.multi_head import fused
from reference_impls.multi_head import modules as multi_head
from reference_impls.multi_head.flex import FlexMultiHead, flexed, real_keys_only
from reference_impls.multi_head.fused import FlashMultiHead, SdpaMultiHead
from reference_impls.multi_head.modules import visible_keys
from suites.support.batches import (
    D_IN,
    D_OUT,
    MECHANISMS,
    assert_same,
    batch,
    build,
    error,
    run,
)
from suites.support.parameters import few


@pytest.mark.parametrize(("lengths", "turned"), [((9, 5, 0, 8), True), ((9, 1, 0, 2), False)])
def test_an_lstm_on_a_cpu_packs_only_what_is_mostly_padding(
    lengths: tuple[int, ...], turned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = PackedBiLstm(D_IN, 16).double()
    x, mask = batch(lengths, padding=7.0)
    assert (float(mask.double().mean()) >= lstm.FILLED) == turned
    packing = Mock(wraps=lstm.pack_padded_sequence)
    monkeypatch.setattr(lstm, "pack_padded_sequence", packing)
    found = []
    for least in (lstm.FILLED, 0.0, 1.0):
        monkeypatch.setattr(lstm, "FILLED", least)
        found.append(run(module, x, mask))
    assert all(t.any() for t in found[0].values())
    assert packing.call_count == (1 if turned else 2)  # at 1.0 always, at 0.0 never
    for one in found[1:]:
        assert_same(one, found[0], 1e-12)


# Multi-head against torch's own

MARGIN = 1.05
"""How far beyond the noise floor the whole interval must lie before we call ours slower."""
LARGEST_FLOOR = 1.15
"""So disturbed a machine would let anything pass: more blocks are taken, or nothing is said."""
BLOCKS, MOST_BLOCKS = 8, 32


def seconds_of(calls: dict[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Times of calls, block by block in random order, each without waiting for a core.

    `BLOCKS` of them, and as many more, up to `MOST_BLOCKS`, while they do not tell "ours" from
    "theirs".
    """
    found: dict[str, list[float]] = {name: [] for name in calls}
    once = {}
    for name, call in calls.items():
        for _ in range(3):
            begun = time.perf_counter()
            call()
            once[name] = time.perf_counter() - begun
    order = list(calls)
    for block in range(MOST_BLOCKS):
        if block and block % BLOCKS == 0 and judged(found)[0] != "inconclusive":
            break
        random.Random(block).shuffle(order)
        for name in order:
            (sampled,) = undisturbed([calls[name]], 5, 0.02, [once[name]])
            found[name].append(block_time(sampled.samples))
    return found


def judged(found: dict[str, list[float]]) -> tuple[str, str]:
    """Whether "ours" is slower than "theirs", and the numbers; "again" is ours once more."""
    control = [a / b for a, b in zip(found["again"], found["ours"], strict=True)]
    ratios = [a / b for a, b in zip(found["ours"], found["theirs"], strict=True)]
    floor, interval = noise_floor(ratio_interval(control)), ratio_interval(ratios)
    numbers = f"{interval}, noise floor {floor:.3f} after {len(ratios)} blocks"
    if interval.low > floor * MARGIN:
        return "slower", numbers
    return "not slower" if floor <= LARGEST_FLOOR else "inconclusive", numbers


@pytest.mark.alone
@pytest.mark.parametrize(
    ("size", "bias", "training"),
    [
        pytest.param((4, 64, 512), False, False, marks=pytest.mark.nightly),
        ((4, 64, 512), False, True),
        ((4, 64, 512), True, False),
        ((1, 512, 256), True, False),
    ],
    ids=["without-bias", "without-bias-training", "torch-with-bias", "one-long-sequence"],
)
def test_not_slower_than_torchs_multi_head(
    size: tuple[int, int, int], bias: bool, training: bool
) -> None:
    """Same widths, no positions, no padding; torch's fast path in evaluation wants biases.

    Without biases both compute the same. With them torch adds four vectors that ours does not have:
    that is there so that its fast path is met too, where it is faster.
    """
    b, n, d = size
    torch.manual_seed(0)
    ours = SdpaMultiHead(d, d, heads=8, positions=None).train(training)
    theirs = nn.MultiheadAttention(d, 8, bias=bias, batch_first=True).train(training)
    x = torch.randn(b, n, d, requires_grad=training)
    g = torch.randn(b, n, d)

    leaves = (x, *ours.parameters(), *theirs.parameters())
    expect_not_slower(
        passing(lambda: ours(x), leaves, g, training),
        passing(lambda: theirs(x, x, x, need_weights=False)[0], leaves, g, training),
    )


def passing(
    call: Callable[[], Tensor], leaves: tuple[Tensor, ...], g: Tensor, training: bool
) -> Callable[[], None]:
    """A pass of a layer: forward in inference mode, or forward and backward from no gradients."""

    def forward() -> None:
        with torch.inference_mode():
            call()

    def both_ways() -> None:
        out = call()
        for leaf in leaves:
            leaf.grad = None
        out.backward(g)

    return both_ways if training else forward


def expect_not_slower(ours: Callable[[], None], theirs: Callable[[], None]) -> None:
    """Fail if ours is slower beyond the noise floor; skip where that is too high."""
    verdict, numbers = judged(seconds_of({"ours": ours, "again": ours, "theirs": theirs}))
    if verdict == "inconclusive":
        pytest.skip(f"the machine is too disturbed: {numbers}; expected at most {LARGEST_FLOOR}")
    assert verdict == "not slower", numbers


@pytest.mark.alone
@pytest.mark.parametrize("training", few([False, True], [False]))
def test_with_padding_not_slower_than_torchs_packed_lstm(training: bool) -> None:
    torch.manual_seed(0)
    ours = PackedBiLstm(64, 128).train(training)
    lengths = torch.tensor([32, 20, 26, 16])
    mask = torch.arange(32) < lengths[:, None]
    x = torch.randn(4, 32, 64, requires_grad=training)

    def call_theirs() -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(ours.lstm(packed)[0], batch_first=True, total_length=32)[0]

    leaves, g = (x, *ours.parameters()), torch.randn(4, 32, 128)
    expect_not_slower(
        passing(lambda: ours(x, mask), leaves, g, training),
        passing(call_theirs, leaves, g, training),
    )


# Multi-head: positions and forced backends


def test_positions_are_computed_once_for_each_power_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Mock(wraps=multi_head.sinusoids)
    monkeypatch.setattr(multi_head, "sinusoids", made)
    module = build("multi_head.sdpa")
    for n in (8, 8, 5, 9, 16, 17):
        module(*batch((n, 2)))
    assert [one.args[0] for one in made.call_args_list] == [8, 16, 32]


@pytest.mark.parametrize(
    ("backend", "device", "dtype", "masked", "reason"),
    [
        ("efficient", "cpu", torch.float32, False, "runs on CUDA only"),
        ("cudnn", "cpu", torch.float16, False, "runs on CUDA only"),
        ("flash", "cpu", torch.float32, True, ""),
        ("math", "cpu", torch.float64, True, ""),
        ("flash", "cuda", torch.float16, True, "takes no padding mask on CUDA"),
        ("flash", "cuda", torch.float16, False, ""),
        ("flash", "cuda", torch.float32, False, "not float32"),
        ("cudnn", "cuda", torch.float32, True, "not float32"),
        ("cudnn", "cuda", torch.bfloat16, True, ""),
        ("efficient", "cuda", torch.float32, True, ""),
        ("math", "cuda", torch.float64, True, ""),
    ],
)
def test_a_backend_is_refused_where_it_is_known_not_to_run(
    backend: str, device: str, dtype: torch.dtype, masked: bool, reason: str
) -> None:
    query: Any = SimpleNamespace(device=SimpleNamespace(type=device), dtype=dtype)
    said = fused._refusal(backend, query, torch.ones(1) if masked else None)
    assert (reason in said) if reason else not said


@pytest.mark.parametrize(
    ("message", "masked", "raised"),
    [
        ("No available kernel. Aborting execution.", True, "head width 4, a mask"),
        ("No viable backend for it", False, "head width 4, no mask"),
        ("something else", True, None),
    ],
)
def test_a_backend_without_a_kernel_is_unsupported(
    message: str, masked: bool, raised: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = SdpaMultiHead(D_IN, D_OUT, heads=4, backend="math").double()
    x, mask = batch((3, 2))
    fails = Mock(side_effect=RuntimeError(message))
    monkeypatch.setattr(fused, "scaled_dot_product_attention", fails)
    if raised is None:
        with pytest.raises(RuntimeError, match=message):
            module(x, None)
        return
    with pytest.raises(Unsupported, match=f"sdpa backend math has no kernel on cpu .*{raised}"):
        module(x, mask if masked else None)


# Heads with columns of zeros, and FlashAttention of its own package


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("options", [{}, {"output_layer": False}, {"relu_projections": True}])
def test_padded_heads_change_nothing(options: dict[str, Any], training: bool) -> None:
    plain, padded = (
        SdpaMultiHead(D_IN, 15, heads=3, padded=wide, **options).double() for wide in (False, True)
    )
    padded.load_state_dict(plain.state_dict())
    assert padded.room == 3
    x, mask = batch((7, 4))
    found = []
    for module in (plain.train(training), padded.train(training)):
        given = x.clone().requires_grad_(training)
        with torch.set_grad_enabled(training):
            out = [module(given, mask), module(given, mask)]  # the second by what is kept
        leaves = (given, *module.parameters()) if training else ()
        found.append([*out, *(torch.autograd.grad(out[1].sin().sum(), leaves) if training else ())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_padded_heads_are_whole_eights_and_weights_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attend = Mock(wraps=scaled_dot_product_attention)
    monkeypatch.setattr(fused, "scaled_dot_product_attention", attend)
    module = SdpaMultiHead(300, 600, heads=8, padded=True)
    module(torch.zeros(1, 2, 300))
    SdpaMultiHead(300, 512, heads=8, padded=True)(torch.zeros(1, 2, 300))
    seen = [(one.args[0].shape[-1], one.kwargs["scale"]) for one in attend.call_args_list]
    assert seen == [(80, 1 / math.sqrt(75)), (64, 0.125)]
    assert module.q_w.shape == (8, 300, 75)


class OnHopper(NamedTuple):
    """Stands for queries, keys and values [B, H, N, d] there."""

    tensor: Tensor
    dtype: torch.dtype = torch.bfloat16
    device: Any = SimpleNamespace(type="cuda")

    @property
    def shape(self) -> torch.Size:
        """[B, H, N, d]."""
        return self.tensor.shape

    def transpose(self, *axes: int) -> Tensor:
        """As [B, N, H, d]."""
        return self.tensor.transpose(*axes)


@pytest.mark.parametrize("release", fused.RELEASES)
@pytest.mark.parametrize("beside", [False, True])
def test_flash_attention_of_its_own_package_is_given_tokens_first(
    release: str, beside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flash_attn_func(*given: Tensor, softmax_scale: float, causal: bool) -> Any:
        q, k, v = (t.transpose(1, 2) for t in given)
        out = scaled_dot_product_attention(q, k, v, scale=softmax_scale, is_causal=causal)
        return (out.transpose(1, 2), None) if beside else out.transpose(1, 2)

    monkeypatch.setattr(fused, "release_of", lambda _: flash_attn_func)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    q, k, v = torch.randn(3, 2, 4, 5, 8).unbind(0)
    hopper: Any = tuple(OnHopper(t) for t in (q, k, v))
    ask: Callable[..., Tensor] = partial(fused.by_release, release)
    found = ask(*hopper, scale=0.3, causal=True)
    wanted = scaled_dot_product_attention(q, k, v, scale=0.3, is_causal=True)
    torch.testing.assert_close(found, wanted)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    with pytest.raises(Unsupported, match=r"for compute capability 9.x.*, this is 8.0; take sdpa"):
        ask(*hopper, scale=0.3)
    single: Any = tuple(OnHopper(t, torch.float32) for t in (q, k, v))
    with pytest.raises(Unsupported, match="takes float16 and bfloat16, not float32"):
        ask(*single, scale=0.3)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    odd: Any = tuple(OnHopper(t[..., :7]) for t in (q, k, v))
    with pytest.raises(Unsupported, match="a multiple of 8, not 7; take sdpa_flash"):
        ask(*odd, scale=0.3)


@pytest.mark.parametrize("release", fused.RELEASES)
def test_flash_attention_that_is_not_there_is_said_in_one_line(
    release: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    title, package, _ = fused.RELEASES[release]
    with pytest.raises(Unsupported, match=f"{title} runs on CUDA only, x is on cpu"):
        FlashMultiHead(D_IN, 16, heads=4, release=release)(torch.zeros(1, 2, D_IN))
    with pytest.raises(Unsupported, match=f"{title} takes no padding mask"):
        FlashMultiHead(D_IN, 16, heads=4, release=release)(
            torch.zeros(1, 2, D_IN), torch.ones(1, 2, dtype=torch.bool)
        )
    fused.release_of.cache_clear()
    for there in (None, types.ModuleType(package)):
        monkeypatch.setitem(sys.modules, package, there)
        with pytest.raises(Unsupported, match=f"{title}: no flash_attn_func in a package"):
            fused.release_of(release)


# FlexAttention, by its definition: its kernels are for CUDA


def test_flex_is_refused_where_it_can_not_run() -> None:
    module = FlexMultiHead(D_IN, 16, heads=4)
    x, mask = batch((7, 4))
    with pytest.raises(Unsupported, match="flex runs on CUDA only, x is on cpu; take sdpa"):
        module(x.float(), mask)
    assert MECHANISMS["multi_head"].implementation("flex").devices == ("cuda",)


@pytest.mark.parametrize("n", [5, BLOCK, BLOCK + 1, 3 * BLOCK + 7])
def test_blocks_of_padding_are_left_out(n: int) -> None:
    real = torch.zeros(4, n, dtype=torch.bool)
    for b, length in enumerate((n, n // 2, 1, 0)):
        real[b, :length] = True
    real[1] = real[1].flip(0)  # padding in front
    visible = visible_keys(real)
    blocks = real_keys_only(visible)
    assert blocks.shape == (4, 1, n, n)
    kept = blocks.to_dense()  # [B, 1, Q, K]
    for b in range(4):
        for j in range(kept.shape[-1]):
            some = bool(visible[b, j * BLOCK : (j + 1) * BLOCK].any())
            assert (kept[b, 0, :, j] == int(some)).all()
    causal = real_keys_only(visible, causal=True).to_dense()
    assert (causal == kept.tril()).all()


@pytest.mark.parametrize("d", [4, 30])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_is_fused_attention(d: int) -> None:
    torch.manual_seed(0)
    n = BLOCK + 40
    q, k, v = (
        torch.randn(3, 2, n, 3, 2, d).double().permute(0, 1, 3, 4, 2, 5).flatten(2, 3).unbind(0)
    )
    real = torch.arange(n) < torch.tensor([n, 60])[:, None]
    for mask in (real, None):
        keys = None if mask is None else mask[:, None, None, :]
        wanted = scaled_dot_product_attention(q, k, v, attn_mask=keys, scale=0.3)
        torch._dynamo.reset()
        assert error(flexed(q, k, v, mask, 0.3, flex_attention), wanted) < 1e-13
        up_to = torch.ones(n, n, dtype=torch.bool).tril()
        pairs = up_to if keys is None else up_to & keys
        wanted = scaled_dot_product_attention(q, k, v, attn_mask=pairs, scale=0.3)
        torch._dynamo.reset()
        assert error(flexed(q, k, v, mask, 0.3, flex_attention, True), wanted) < 1e-13
