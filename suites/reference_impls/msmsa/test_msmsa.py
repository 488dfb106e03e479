"""Multi-scale self-attention: scales, windows, what it can't see, what it costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness.build import make
from harness.registry import builtins
from reference_impls.kernels import core
from reference_impls.kernels.caching import TensorCache
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.tiled import cutting
from reference_impls.mechanism import BadOption, Size
from reference_impls.msmsa import fused
from reference_impls.msmsa.fused import FusedMsmsa, cached_windows
from reference_impls.msmsa.modules import MaskedMsmsa, MsmsaLayer, PlainMsmsa
from reference_impls.msmsa.scales import (
    CANDIDATES,
    Scale,
    heads_per_scale,
    parse,
    scales_of_layers,
)
from reference_impls.msmsa.tiles import plan
from reference_impls.msmsa.windowed import WindowedMsmsa
from reference_impls.multi_scale_transformer.modules import (
    MaskedMultiScaleTransformer,
    PlainMultiScaleTransformer,
    WindowedMultiScaleTransformer,
)
from reference_impls.transformer.modules import PlainTransformer, SdpaTransformer
from suites.support.batches import D_IN, LargestTensor, assert_same, batch, error, run
from suites.support.parameters import few

torch.set_num_threads(1)

IMPLEMENTATIONS = (PlainMsmsa, MaskedMsmsa, WindowedMsmsa)
MODELS = (
    PlainMultiScaleTransformer,
    MaskedMultiScaleTransformer,
    WindowedMultiScaleTransformer,
)
NAMES = ("msmsa", "msmsa_layer", "multi_scale_transformer", "transformer")
READINGS: list[dict[str, Any]] = [
    {},
    {"width_reading": "radius"},
    {"scaling": "model_width"},
    {"width_reading": "radius", "scaling": "model_width", "layer": True},
]
SCALES = [1, 3, "n/16", 9, "n/4", 41, "n/2", 1, 3]
LENGTHS = (1, 2, 3, 7, 33, 65, 257)


def alike(kinds: Sequence[type], *sizes: int, **options: Any) -> list[Any]:
    """Modules of several kinds with the same float64 weights, none of them zero."""
    modules = [kind(*sizes, **options).double() for kind in kinds]
    with torch.no_grad():
        for weight in modules[0].parameters():
            weight.add_(0.1 * torch.randn(weight.shape, dtype=torch.float64))
    for module in modules[1:]:
        module.load_state_dict(modules[0].state_dict())
    return modules


def per_head(layer: MsmsaLayer, values: Tensor) -> Tensor:
    """Concatenated heads [B, N, H*d_h] of values [H, B, N, d_h], through W^o."""
    return values.permute(1, 2, 0, 3).flatten(2) @ layer.o_w


# Scales


def test_the_papers_example_of_a_distribution_is_exact() -> None:
    wanted = [[5, 2, 2, 1, 0], [4, 2, 2, 1, 1], [2, 2, 2, 2, 2]]
    assert heads_per_scale(5, 0.5, 10, 3) == wanted
    first = scales_of_layers(CANDIDATES, 0.5, 10, 3)[0]
    assert first == [1] * 5 + [3] * 2 + ["n/16"] * 2 + ["n/8"]


@pytest.mark.parametrize(("heads", "layers"), [(1, 1), (5, 3), (10, 3), (7, 12), (64, 2)])
def test_every_layer_gives_away_all_its_heads(heads: int, layers: int) -> None:
    for alpha, candidates in product((-300.0, -1.0, 0.0, 0.5, 40.0), (1, 3, 5)):
        rows = heads_per_scale(candidates, alpha, heads, layers)
        assert [len(row) for row in rows] == [candidates] * layers
        assert [sum(row) for row in rows] == [heads] * layers
        assert min(min(row) for row in rows) >= 0
        # The last layer looks at all scales alike.
        assert max(rows[-1]) - min(rows[-1]) <= 1


def test_alpha_above_zero_prefers_small_scales_in_low_layers() -> None:
    up, down = (heads_per_scale(5, alpha, 100, 4) for alpha in (1.0, -1.0))
    smallest = [row[0] for row in up]
    assert smallest == sorted(smallest, reverse=True)
    assert smallest[0] > 2 * smallest[-1]
    assert down[0][-1] > 2 * down[-1][-1]
    assert len({tuple(row) for row in heads_per_scale(5, 0.0, 100, 4)}) == 1


@pytest.mark.parametrize(
    ("scale", "length", "width"),
    [
        (1, 50, 1),
        (2, 50, 3),
        (3, 50, 3),
        (4.9, 50, 5),
        (9, 2, 9),
        ("n/16", 1, 1),
        ("n/16", 31, 1),
        ("n/16", 32, 3),
        ("n/16", 100, 7),
        ("n/2", 100, 51),
        ("n/4", 13, 3),
        ("n/3", 12, 5),
        ("n/1", 7, 7),
    ],
)
def test_widths_are_odd(scale: Any, length: int, width: int) -> None:
    total, radius = parse(scale, "total"), parse(scale, "radius")
    assert total.width(length) == radius.width(length) == width
    assert total.half(length) == (width - 1) // 2
    assert radius.half(length) == width
    value = length / int(scale[2:]) if isinstance(scale, str) else scale
    assert width == max(1, 2 * math.floor(value / 2) + 1)
    assert torch.equal(
        torch.as_tensor(total.width(torch.tensor([length, 2 * length]))).expand(2),
        torch.tensor([total.width(length), total.width(2 * length)]),
    )


@pytest.mark.parametrize("kind", IMPLEMENTATIONS)
def test_shares_of_n_are_of_each_samples_own_length(kind: type[MsmsaLayer]) -> None:
    module = kind(D_IN, 12, heads=3, scales=["n/16", "n/4", "n/2"]).double()
    lengths = (70, 33, 17, 2)
    x, mask = batch(lengths, padding=math.nan)
    out = module(x, mask)
    for b, n in enumerate(lengths):
        assert error(out[b, :n], module(x[b : b + 1, :n])[0]) < 1e-13


# Equalities


@pytest.mark.parametrize("options", READINGS, ids=str)
@pytest.mark.parametrize("n", few(LENGTHS, [2, 7, 65]))
def test_windowed_equals_masked_and_plain(n: int, options: dict[str, Any]) -> None:
    sizes = (D_IN, D_IN if options.get("layer") else 18)
    given = {"heads": len(SCALES), "scales": SCALES, "head_dim": 2, **options}
    plain, masked, windowed = alike(IMPLEMENTATIONS, *sizes, **given)
    ragged = (n, max(1, n // 2), max(1, n - 1), 1, 0)
    for x, mask in (batch(ragged, padding=math.nan), (batch((n, n))[0], None)):
        wanted = run(masked, x, mask)
        assert_same(run(windowed, x, mask), wanted, 1e-12)
        assert_same(run(plain, x, mask), wanted, 1e-12)


@pytest.mark.parametrize("options", READINGS[:2], ids=str)
@pytest.mark.parametrize("n", few([2, 40, 130], [40]))
def test_models_of_all_implementations_are_equal(n: int, options: dict[str, Any]) -> None:
    plain, masked, windowed = alike(MODELS, D_IN, 16, heads=4, layers=3, **options)
    for x, mask in (batch((n, n // 2, 1, 0), padding=math.nan), (batch((n, n))[0], None)):
        wanted = run(masked, x, mask)
        assert_same(run(windowed, x, mask), wanted, 1e-12)
        assert_same(run(plain, x, mask), wanted, 1e-12)


def test_scale_1_computes_no_queries_keys_or_scores() -> None:
    x = torch.randn(2, 64, 12)
    with FlopCounterMode(display=False) as counter:
        WindowedMsmsa(12, 8, heads=2, scales=[1, 1])(x)
    assert counter.get_total_flops() == 2 * 2 * 64 * (12 * 8 + 8 * 8)


def test_weights_shown_are_those_used() -> None:
    x, mask = batch((9, 5))
    module = PlainMsmsa(D_IN, 8, heads=4, scales=[1, 3, 5, "n/2"]).double()
    shown = module.attention(x, mask)["token2token_weights"]  # [H, B, N, N]
    values = shown @ (x @ module.v_w[:, None])
    assert error(module(x, mask), per_head(module, values)) < 1e-13
    assert error(shown.sum(-1), mask.double().expand(4, -1, -1)) < 1e-14


@pytest.mark.parametrize("factor", [10, 100])
@pytest.mark.parametrize("kind", [*MODELS, PlainTransformer, SdpaTransformer])
def test_large_scores_leave_float32_models_finite_and_exact(
    kind: type[nn.Module], factor: int
) -> None:
    single, exact = (kind(D_IN, 16, heads=4) for _ in range(2))
    with torch.no_grad():
        for name, weight in single.named_parameters():
            if name.endswith("q_w"):
                weight.mul_(factor)
    exact.load_state_dict(single.state_dict())
    x, mask = batch((65, 20, 1, 0))
    found = run(single, x.float(), mask)
    assert all(tensor.isfinite().all() for tensor in found.values())
    if factor == 10:
        # At 100 the second layer's scores magnify the first one's rounding errors.
        assert error(found["output"], exact.double()(x, mask)) < 2e-5


# What it can't see


def test_with_cls_or_with_positions_they_are_not() -> None:
    x, _ = batch((50, 50))
    scales: list[list[int | float | str]] = [[1, 3, 9, "n/4"]] * 2
    with_cls = WindowedMultiScaleTransformer(D_IN, 16, heads=4, scales=scales).double()
    assert error(with_cls(x.flip(1)), with_cls(x)) > 1e-3
    peer = SdpaTransformer(D_IN, 16, heads=4).double()
    assert error(peer(x.flip(1)), peer(x)) > 1e-3
    unordered = SdpaTransformer(D_IN, 16, heads=4, positions=False).double()
    assert error(unordered(x[:, torch.randperm(50)]), unordered(x)) < 1e-12


def test_cls_sees_what_its_window_holds_and_max_does_not_see_cls() -> None:
    x, _ = batch((20,))
    module = WindowedMultiScaleTransformer(D_IN, 16, heads=4, layers=1, scales=[[5] * 4]).double()
    before = module(x)[0]
    far, near = x.clone(), x.clone()
    far[0, 2] += 1
    near[0, 1] += 1
    assert torch.equal(module(far)[0, :8], before[:8])
    assert not torch.equal(module(near)[0, :8], before[:8])
    # With d_model = 8 the other half is the maximum over the tokens alone.
    states = module.states(x)[0]
    assert torch.equal(before, torch.cat([states[0], states[1:].amax(0)]))


# What it costs


@contextmanager
def products() -> Iterator[FlopCounterMode]:
    """Count products, those inside of fused attention too."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        yield counter


def cost(module: nn.Module, n: int, mask: Tensor | None = None) -> tuple[int, int]:
    """Products and the largest tensor of a forward and backward pass."""
    x = torch.randn(1, n, 12, requires_grad=True)
    with products() as counter:
        module(x, mask).sum().backward()
    with sdpa_kernel(SDPBackend.MATH), LargestTensor() as watch:
        module(x, mask).sum().backward()
    return counter.get_total_flops(), watch.bytes


@pytest.mark.parametrize(("scales", "masked"), [([1, 3], False), ([9, 65], True)])
def test_windowed_grows_with_n_and_masked_with_n_squared(scales: list, masked: bool) -> None:
    ratios = []
    # At the ends windows are cut: a short sequence has less than its share of whole ones.
    for kind, short, long in ((WindowedMsmsa, 1024, 4096), (MaskedMsmsa, 256, 1024)):
        module = kind(12, 8, heads=2, scales=scales)
        few, many = (
            cost(module, n, torch.ones(1, n, dtype=torch.bool) if masked else None)
            for n in (short, long)
        )
        ratios.append([b / a for a, b in zip(few, many, strict=True)])
    assert max(ratios[0]) < 4.3
    assert min(ratios[1]) > 12


@pytest.mark.parametrize("half", [8, 32, 64, 128])
def test_pairs_computed_are_a_few_windows(half: int) -> None:
    n = 8192
    (group,) = plan([parse(2 * half + 1)], n)
    assert group.method == "tiles"
    assert group.pairs(n) <= n * 3 * (2 * half + 1)


def test_neighbours_are_met_without_products() -> None:
    for n in (5, 8192):
        (group,) = plan([parse(3)], n)
        assert group.method == "near"
        assert group.pairs(n) == 0


# Formulas and presets


@pytest.mark.parametrize("n", [3, 9])
@pytest.mark.parametrize("scales", [[1, "n/4"], [1, 3], [1, 1], [3, 1]])
@pytest.mark.parametrize(
    "kind", [MaskedMsmsa, WindowedMsmsa, FusedMsmsa, partial(FusedMsmsa, backend="tiled")]
)
def test_heads_that_see_themselves_alone_have_gradients(kind: Any, scales: list, n: int) -> None:
    torch.manual_seed(0)
    plain, module = alike((PlainMsmsa, kind), D_IN, 8, heads=2, scales=scales)
    x, mask = batch((n, 2))
    alone = [h for h, scale in enumerate(module.scales) if scale.half(n) == 0]
    assert alone
    for given in (None, mask):
        assert_same(run(module, x, given), run(plain, x, given), 1e-12)
        for weight in (module.q_w, module.k_w):
            assert weight.grad is not None
            if kind is not MaskedMsmsa:  # which rounds a softmax over one key
                assert not weight.grad[alone].any()


@pytest.mark.parametrize("kind", [WindowedMsmsa, partial(FusedMsmsa, backend="tiled")])
def test_weights_that_nobody_reads_have_zero_gradients_whatever_they_hold(kind: Any) -> None:
    module = kind(D_IN, 8, heads=2, scales=[1, "n/4"])
    with torch.no_grad():
        module.q_w.fill_(math.inf)
        module.k_w.fill_(math.nan)
    module(torch.randn(2, 3, D_IN)).sum().backward()
    for name in ("q_w", "k_w"):
        gradient = module.get_parameter(name).grad
        assert gradient is not None
        assert torch.equal(gradient, torch.zeros_like(gradient))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("n", few([1, 7, 40, 200], [7, 200]))
@pytest.mark.parametrize(
    "name",
    ["transformer.sdpa", *(f"{m}.{i}" for m in NAMES[:3] for i in ("plain", "masked", "windowed"))],
)
def test_operations_are_the_products_that_are_done(name: str, n: int, training: bool) -> None:
    mechanism, _, own = name.partition(".")
    module, x, size = sized(mechanism, own, n, training)
    with products() as counter:
        out = module(x, None)
        if training:
            out.sum().backward()
    assert formula(mechanism, own)(size) == counter.get_total_flops()


def sized(name: str, implementation: str, n: int, training: bool) -> tuple[nn.Module, Tensor, Size]:
    """A module of four heads, 6 wide, an input and their size."""
    mechanism = builtins()[name]
    d_in, d_out = (24, 24) if mechanism.keeps_width else (10, 24)
    record = mechanism.implementation(implementation)
    options = {**mechanism.options, **record.options}
    module = make(mechanism, record.factory, d_in, d_out, 4, options)
    x = torch.randn(3, n, d_in, requires_grad=training)
    return module, x, Size(3, n, d_in, d_out, 4, training=training)


def formula(name: str, implementation: str) -> Callable[[Size], float]:
    mechanism = builtins()[name]
    found = mechanism.implementation(implementation).operations or mechanism.operations
    assert found is not None
    return found


@pytest.mark.parametrize("n", few([1, 2, 3, 7, 40, 200], [1, 7]))
@pytest.mark.parametrize("name", NAMES[:3])
def test_operations_of_fused_are_those_of_the_windows(
    name: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One query at a time: no pair is computed that is not open.
    for limit, value in (("SHORT", 0), ("LEAST_QUERIES", 1), ("SCORE_BYTES", {"cpu": 8})):
        monkeypatch.setattr(cutting, limit, value)
    met = 0

    def counted(scales: tuple[Scale, ...], length: int, like: Tensor) -> Geometry:
        nonlocal met
        halves = [scale.half(length) for scale in scales]
        met += 3 * sum(
            abs(i - j) <= h for h in halves for i in range(length) for j in range(length)
        )
        return cached_windows(scales, length, like)

    monkeypatch.setattr(fused, "cached_windows", counted)
    module, x, size = sized(name, "fused_tiled", n, False)
    with products() as counter, torch.no_grad():
        module(x, None)
    for backend in ("fused", "fused_tiled", "fused_native", "fused_triton", "fused_flex"):
        done = formula(name, backend)(size)
        # Beside each value stands a 1, whose sum is the denominator.
        assert done + 2 * met == counter.get_total_flops()
        assert formula(name, backend)(replace(size, training=True)) == 3 * done


def test_fused_has_one_geometry_for_all_calls_of_a_length(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Geometry] = []

    def attend(*arguments: Any) -> Tensor:
        seen.append(arguments[4])
        return core_attend(*arguments)

    core_attend = core.attend
    monkeypatch.setattr(core, "attend", attend)
    monkeypatch.setattr(fused, "_cache", TensorCache(2))
    module = FusedMsmsa(D_IN, 8, heads=2, scales=[3, "n/4"], backend="tiled")
    with torch.inference_mode():
        module(torch.randn(2, 16, D_IN))
    for n in (16, 16, 17):
        module(torch.randn(2, n, D_IN)).sum().backward()
    assert seen[0] is seen[1] is seen[2] is not seen[3]
    assert not seen[0].lo.is_inference()
    module(torch.randn(2, 18, D_IN))
    assert len(fused._cache) == 1  # never more than the most
    x, mask = torch.randn(2, 16, D_IN), torch.arange(16) < torch.tensor([16, 9])[:, None]
    module(x, mask)
    assert seen[-1].lo.shape == (2, 2)  # a sample's own


@pytest.mark.parametrize("name", NAMES[:3])
def test_what_does_less_counts_less(name: str) -> None:
    *_, size = sized(name, "plain", 200, True)
    ways = [formula(name, own)(size) for own in ("plain", "masked", "windowed", "fused")]
    assert ways[0] == ways[1] > ways[2] > ways[3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scales": [1, 3]}, "2 scales given for 4 heads; give one per head"),
        ({"scales": "n/4"}, "scales='n/4'; expected a list with one scale per head"),
        ({"scales": [1, 3, 5, 0]}, "scale 0; expected a number of at least 1, or n/K"),
        ({"scales": [1, 3, 5, "n/0"]}, "scale 'n/0'; expected a number of at least 1, or n/K"),
        ({"scales": [1, 3, 5, "N/4"]}, "scale 'N/4'; expected"),
        ({"scales": [1, 3, 5, True]}, "scale True; expected"),
        ({"scales": [1, 3, 5, math.inf]}, "scale inf; expected"),
        ({"width_reading": "half"}, "width_reading='half'; expected 'total' or 'radius'"),
        ({"scaling": "none"}, "scaling='none'; expected 'head_width' or 'model_width'"),
        ({"layer": True}, "d_out=16, but layer=True adds the output to x of d_in=12"),
        ({"layer": 1}, "layer=1; expected True or False"),
        ({"ln_epsilon": -1}, "ln_epsilon=-1; expected a number of at least 0"),
        ({"head_dim": 0}, "head_dim=0; expected an integer of at least 1"),
        ({"window": 3}, "msmsa has no option 'window'; it has heads, scales"),
    ],
    ids=str,
)
def test_layers_that_do_not_exist_are_refused(options: dict[str, Any], message: str) -> None:
    for kind in IMPLEMENTATIONS:
        with pytest.raises(BadOption, match=message) as caught:
            kind(12, 16, **{"heads": 4, **options})
        assert "\n" not in str(caught.value)


@pytest.mark.nightly
@pytest.mark.parametrize("name", NAMES)
def test_compiles_into_one_graph(name: str) -> None:
    mechanism = builtins()[name]
    d_in = 16 if mechanism.keeps_width else D_IN
    for implementation in mechanism.implementations:
        if "cpu" not in implementation.devices:
            continue
        torch._dynamo.reset()
        options = {**mechanism.options, **implementation.options}
        module = make(mechanism, implementation.factory, d_in, 16, 4, options).double()
        compiled: Any = torch.compile(module, fullgraph=True, backend="eager")
        for n in (5, 70):
            x = torch.randn(2, n, d_in, dtype=torch.float64)
            mask = torch.arange(n) < torch.tensor([n, n // 2])[:, None]
            assert error(compiled(x, mask), module(x, mask)) < 1e-12
            assert error(compiled(x, None), module(x, None)) < 1e-12
