"""The oracles of multi-scale attention and of the two sentence encoders, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from reference_impls.msmsa.naive import width
from reference_impls.multi_scale_transformer.naive import head_numbers, scales_of_layers
from suites.support.oracles import (
    D_H,
    Config,
    D,
    N,
    close,
    naive_of,
    normed,
)

msmsa = naive_of("msmsa")
multi_head = naive_of("multi_head")
multi_scale_transformer = naive_of("multi_scale_transformer")
transformer = naive_of("transformer")


@pytest.mark.parametrize(
    ("scale", "n", "want"),
    [
        (1, 9, 1),
        (2, 9, 3),
        (3, 9, 3),
        (4.5, 9, 5),
        (0.5, 9, 1),
        (100, 9, 101),
        ("n/16", 9, 1),
        ("n/4", 7, 1),
        ("n/4", 8, 3),
        ("n/4", 15, 3),
        ("n/4", 16, 5),
        ("n/2", 20, 11),
    ],
)
def test_scales_are_forced_odd(scale: float | str, n: int, want: int) -> None:
    assert width(scale, n) == want


@pytest.mark.parametrize("scales", [(2 * N - 1, 50), ("n/1", "n/1")])
def test_windows_beyond_the_sentence_are_full_attention(scales: tuple[float | str, ...]) -> None:
    x, weights, rng = Config("msmsa", "full", {"heads": 2}).draw()
    g = rng.normal(size=(N, 5))
    reading = "radius" if isinstance(scales[0], str) else "total"
    options = {"heads": 2, "scales": scales, "width_reading": reading}
    got = msmsa(x, weights, None, g, **options)
    want = multi_head(x, weights, None, g, heads=2, positions=None)
    close(got[0], want[0])
    close(got[1], want[1])
    for name in weights:
        close(got[2][name], want[2][name])


def test_scale_1_works_position_by_position() -> None:
    x, weights, _ = Config("msmsa", "1", {"heads": 2}).draw()
    values = np.concatenate([x @ weights["v_w"][c] for c in range(2)], axis=1)
    out = msmsa(x, weights, heads=2, scales=(1, 1))[0]
    close(out, values @ weights["o_w"], 1e-14)


def test_equal_scores_average_a_window_cut_at_the_ends() -> None:
    x, weights, _ = Config("msmsa", "mean", {"heads": 1}).draw()
    weights["q_w"] = 0 * weights["q_w"]
    v = x @ weights["v_w"][0]
    for scale, reading, half in ((3, "total", 1), (3, "radius", 3), ("n/2", "total", 1)):
        mean = [v[max(0, i - half) : i + half + 1].mean(axis=0) for i in range(N)]
        out = msmsa(x, weights, heads=1, scales=[scale], width_reading=reading)[0]
        close(out, mean @ weights["o_w"], 1e-14)


def test_model_width_divides_scores_by_the_root_of_the_models_width() -> None:
    x, weights, _ = Config("msmsa", "scaling", {"heads": 2}).draw()
    narrower = weights | {"q_w": weights["q_w"] * np.sqrt(D_H / D)}
    close(
        msmsa(x, weights, heads=2, scales=(3, 5), scaling="model_width")[0],
        msmsa(x, narrower, heads=2, scales=(3, 5))[0],
        1e-14,
    )


def test_default_scales_are_repeated_over_the_heads() -> None:
    x, weights, _ = Config("msmsa", "cycle", {"heads": 6}).draw(40)
    scales = (1, 3, "n/16", "n/8", "n/4", 1)
    np.testing.assert_array_equal(
        msmsa(x, weights, heads=6)[0], msmsa(x, weights, heads=6, scales=scales)[0]
    )


def test_multi_scale_layer_is_norm_of_input_plus_relu() -> None:
    x, weights, _ = Config("msmsa", "layer", {"heads": 2, "layer": True}).draw()
    plain = {k: w for k, w in weights.items() if not k.startswith("ln")}
    inner = msmsa(x, plain, heads=2)[0]
    want = normed(x + np.maximum(inner, 0), 0.1) * weights["ln_scale"] + weights["ln_offset"]
    out = msmsa(x, weights, heads=2, layer=True, ln_epsilon=0.1)[0]
    close(out, want)


@pytest.mark.parametrize("layer", [True, False])
def test_reversed_sentences_give_reversed_tokens(layer: bool) -> None:
    x, weights, _ = Config("msmsa", "reverse", {"heads": 5, "layer": layer}).draw()
    forth = msmsa(x, weights, heads=5, layer=layer)[0]
    back = msmsa(x[::-1], weights, heads=5, layer=layer)[0]
    close(back[::-1], forth)


def test_transformer_of_zero_weights_is_the_norm_of_its_input() -> None:
    config = Config("transformer", "zero", {"heads": 2, "layers": 1})
    x, weights, _ = config.draw()
    for name in weights:
        if name.startswith("l0_"):
            weights[name] = np.full(weights[name].shape, float(name.endswith("scale")))
    H = np.vstack([weights["cls"], x])
    m, i = np.arange(D) // 2, np.arange(N + 1)[:, None]
    angle = i / 10000 ** (2 * m / D)
    placed = H + np.where(np.arange(D) % 2 == 0, np.sin(angle), np.cos(angle))
    for positions, start in ((True, placed), (False, H)):
        top = normed(start)  # of variance 1: the second norm changes nothing
        want = np.concatenate([top[0], top[1:].max(axis=0)])
        for readout, expected in (("concat", want), ("sum", want[:D] + want[D:])):
            out = transformer(
                x, weights, positions=positions, readout=readout, ln_epsilon=0.0, **config.options
            )[0]
            close(out, expected)


def test_transformer_layer_is_attention_then_feed_forward() -> None:
    config = Config("transformer", "one", {"heads": 2, "layers": 1}, narrow=True)
    x, weights, _ = config.draw()
    W = {k.removeprefix("l0_"): w for k, w in weights.items()}
    H = np.vstack([W["cls"], x @ W["in_w"]])
    attended = multi_head(H, W, heads=2, positions=None)[0]
    Z = normed(H + attended, 1e-5) * W["ln1_scale"] + W["ln1_offset"]
    F = np.maximum(Z @ W["ff1_w"] + W["ff1_b"], 0) @ W["ff2_w"] + W["ff2_b"]
    top = normed(Z + F, 1e-5) * W["ln2_scale"] + W["ln2_offset"]
    out = transformer(x, weights, positions=False, **config.options)[0]
    want = np.concatenate([top[0], top[1:].max(axis=0)])
    close(out, want, 1e-12)
    shuffled = transformer(x[::-1], weights, positions=False, **config.options)[0]
    close(shuffled, out, 1e-12)
    assert np.abs(transformer(x, weights, **config.options)[0] - out).max() > 1e-3


def test_head_numbers_of_the_papers_example() -> None:
    want = [[5, 2, 2, 1, 0], [4, 2, 2, 1, 1], [2, 2, 2, 2, 2]]
    assert head_numbers(0.5, 10, 3, 5) == want
    omega = scales_of_layers(0.5, 10, 3, (1, 3, "n/16", "n/8", "n/4"))
    assert omega[0] == [1, 1, 1, 1, 1, 3, 3, "n/16", "n/16", "n/8"]
    assert head_numbers(0.5, 5, 1, 5) == [[1, 1, 1, 1, 1]]


@pytest.mark.parametrize("alpha", [-1.0, -0.5, 0.0, 0.5, 1.0])
@pytest.mark.parametrize("heads", [1, 4, 5, 10, 30])
def test_head_numbers_share_out_all_heads(alpha: float, heads: int) -> None:
    rows = head_numbers(alpha, heads, 4, 5)
    assert [sum(row) for row in rows] == [heads] * 4
    assert min(min(row) for row in rows) >= 0
    small = [sum(row[:2]) for row in rows[:-1]]
    assert small == sorted(small, reverse=alpha > 0)
    if heads % 5 == 0:
        assert rows[-1] == [heads // 5] * 5
        assert alpha != 0 or rows[0] == rows[-1]


@pytest.mark.parametrize("narrow", [True, False])
def test_multi_scale_transformer_is_layers_over_cls_and_tokens(narrow: bool) -> None:
    scales = ((1, "n/2"), ("n/3", 3))
    x, weights, _ = Config("multi_scale_transformer", "by hand", {"heads": 2}, narrow).draw()
    H = np.vstack([weights["cls"], x @ weights["in_w"] if narrow else x])
    for i, widths in enumerate(((1, 3), (3, 3))):  # of 7 positions: n/2 is 3.5, n/3 is 2.3
        W = {k[3:]: w for k, w in weights.items() if k.startswith(f"l{i}_")}
        H = msmsa(H, W, heads=2, scales=widths, layer=True)[0]
    peak = H[1:].max(axis=0)
    for readout, want in (
        ("concat", np.concatenate([H[0], peak])),
        ("sum", H[0] + peak),
        ("max", peak),
    ):
        out = multi_scale_transformer(x, weights, heads=2, scales=scales, readout=readout)[0]
        close(out, want)


def test_multi_scale_transformer_without_cls_reads_no_order() -> None:
    options = {"heads": 4, "cls": False, "readout": "max"}
    x, weights, _ = Config("multi_scale_transformer", "order", options).draw()
    both = [multi_scale_transformer(s, weights, **options)[0] for s in (x, x[::-1])]
    close(both[0], both[1])
    words = [multi_scale_transformer(x[[i]], weights, **options)[0] for i in range(N)]
    alone = multi_scale_transformer(x, weights, scales=[[1] * 4] * 2, **options)[0]
    close(alone, np.max(words, axis=0))
