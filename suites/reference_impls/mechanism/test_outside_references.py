"""Against torch's own layers, where a mechanism coincides with one: values and gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv1d, glu, layer_norm, scaled_dot_product_attention

from suites.support.batches import (
    D_IN,
    D_OUT,
    HEADS,
    MECHANISMS,
    batch,
    build,
    error,
    implementations,
    made,
    options_of,
    run,
)
from suites.support.visibility import keys_of, reaches

torch.set_num_threads(1)

EXACT = 1e-11
LENGTHS = (7, 4, 1)


def assert_is(
    module: nn.Module,
    theirs: Callable[..., Tensor],
    x: Tensor,
    mask: Tensor,
) -> None:
    """Assert equal values, and equal gradients of x and of the weights.

    Parameters
    ----------
    theirs : callable
        ``(x, weights) -> out``; the module's rows at padding are zero, theirs anything.
    """
    wanted_x = x.clone().requires_grad_()
    leaves = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters()}
    out = theirs(wanted_x, leaves)
    found = run(module, x, mask)
    if out.ndim == 3:
        out = out.masked_fill(~mask[..., None], 0)
    assert error(found["output"], out) < EXACT
    generator = torch.Generator().manual_seed(2)  # as in `run`
    (out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum().backward()
    assert wanted_x.grad is not None
    assert error(found["x"], wanted_x.grad.masked_fill(~mask[..., None], 0)) < EXACT
    for name, leaf in leaves.items():
        if leaf.grad is not None and name in found:
            assert error(found[name], leaf.grad) < EXACT, name


def columns(weight: Tensor) -> Tensor:
    """Per-head weights [H, D, d] side by side, [D, H * d]."""
    return weight.transpose(0, 1).flatten(1)


@pytest.mark.parametrize("name", implementations("multi_head"))
def test_multi_head_is_torchs(name: str) -> None:
    x, mask = batch(LENGTHS)
    theirs = nn.MultiheadAttention(
        D_OUT, HEADS, bias=False, kdim=D_IN, vdim=D_IN, batch_first=True, dtype=torch.float64
    )

    def call(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        loaded = {
            # Its queries have the width of the output: they are projected beforehand.
            "q_proj_weight": torch.eye(D_OUT, dtype=torch.float64),
            "k_proj_weight": columns(w["k_w"]).T,
            "v_proj_weight": columns(w["v_w"]).T,
            "out_proj.weight": w["o_w"].T,
        }
        arguments = (x @ columns(w["q_w"]), x, x)
        options = {"key_padding_mask": ~mask, "need_weights": False}
        out: Tensor = functional_call(theirs, loaded, arguments, options)[0]
        return out

    assert_is(build(name, "no_positions"), call, x, mask)


def _fused(
    x: Tensor, w: Mapping[str, Tensor], scores: Tensor | None, scale: float | None = None
) -> Tensor:
    """Attended values of all heads [B, N, H * d]; ``scores`` is what is added, or a bool mask."""
    q, k, v = (x[:, None] @ w[name] for name in ("q_w", "k_w", "v_w"))  # [B, H, N, d]
    out = scaled_dot_product_attention(q, k, v, attn_mask=scores, scale=scale)
    return out.transpose(1, 2).flatten(2)


MTSA_MASKS = (
    ["none"] * 4,
    ["diagonal", "forward_inclusive", "backward_inclusive", "window:1"],
    ["forward", "backward", "distance:0.7", "window:0"],
)


@pytest.mark.parametrize("masks", MTSA_MASKS, ids=str)
@pytest.mark.parametrize("name", implementations("mtsa"))
def test_mtsa_without_scores_of_the_source_is_dot_product_attention(
    name: str, masks: list[str]
) -> None:
    # The scores s are made constant; masks and distances go to torch as what is added to scores.
    options = {**options_of("mtsa"), "masks": masks, "scale_t": "identity"}
    module = made(name, options)
    with torch.no_grad():
        module.get_parameter("s2_w").zero_()
    x, mask = batch((6, 4, 1))
    added = torch.stack(
        [torch.zeros(6, 6, dtype=x.dtype).masked_fill(~keys_of(m, 6), -math.inf) for m in masks]
    )
    if "distance:0.7" in masks:
        apart = torch.arange(6)[:, None] - torch.arange(6)
        added[masks.index("distance:0.7")] -= 0.7 * apart.abs().double()
    added = added.masked_fill(~mask[:, None, None], -math.inf)  # [B, H, N, N]

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        some = added.isfinite().any(-1, keepdim=True)  # torch's softmax over nothing is NaN
        out = _fused(x, w, added.where(some, 0.0)).unflatten(-1, (4, -1))
        return (out * some.transpose(1, 2)).flatten(2) @ w["o_w"]

    assert_is(module, theirs, x, mask)


@pytest.mark.parametrize("name", implementations("mtsa_nmt"))
@pytest.mark.parametrize("variant", ["default", "bi_direction"])
def test_the_translation_form_without_scores_of_the_source(name: str, variant: str) -> None:
    options = {**options_of("mtsa_nmt", variant), "scale_t": "identity"}
    module = made(name, options)
    with torch.no_grad():
        module.get_parameter("s1_w").zero_()
    x, mask = batch((6, 6))
    assert MECHANISMS["mtsa_nmt"].options["output_layer"]

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        if not options["bi_direction"]:
            return _fused(x, w, None) @ w["o_w"]
        q, k, v = (x[:, None] @ w[name] for name in ("q_w", "k_w", "v_w"))  # [B, H, N, d]
        first = scaled_dot_product_attention(q[:, :2], k[:, :2], v[:, :2], is_causal=True)
        q, k, v = (t[:, 2:].flip(2) for t in (q, k, v))
        second = scaled_dot_product_attention(q, k, v, is_causal=True).flip(2)
        return torch.cat([first, second], dim=1).transpose(1, 2).flatten(2) @ w["o_w"]

    assert_is(module, theirs, x, mask)


@pytest.mark.parametrize("variant", ["default", "wide", "radius", "model_width"])
@pytest.mark.parametrize("name", implementations("msmsa"))
def test_windows_are_dot_product_attention_with_a_mask(name: str, variant: str) -> None:
    module, options = build(name, variant), options_of("msmsa", variant)
    x, mask = batch((13, 13))
    apart = (torch.arange(13)[:, None] - torch.arange(13)).abs()
    windows = torch.stack([apart <= reach for reach in reaches(options, 13)])
    scale = 1 / math.sqrt(D_IN) if variant == "model_width" else None

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        return _fused(x, w, windows, scale) @ w["o_w"]

    assert_is(module, theirs, x, mask)


@pytest.mark.parametrize("name", implementations("msmsa_layer"))
def test_a_layer_of_windows_is_torchs_norm_of_a_sum(name: str) -> None:
    module, options = build(name), options_of("msmsa_layer")
    x, mask = batch((13, 13))
    apart = (torch.arange(13)[:, None] - torch.arange(13)).abs()
    windows = torch.stack([apart <= reach for reach in reaches(options, 13)])

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        mixed = _fused(x, w, windows) @ w["o_w"]
        return layer_norm(x + mixed.relu(), (D_IN,), w["ln_scale"], w["ln_offset"], 1e-5)

    assert_is(module, theirs, x, mask)


@pytest.mark.parametrize("name", implementations("additive"))
def test_additive_pooling_is_attention_with_one_query(name: str) -> None:
    x, mask = batch(LENGTHS)

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        s = (x @ w["s1_w"] + w["s1_b"]).tanh() @ w["s2_w"] + w["s2_b"]  # [B, N, 1]
        one = torch.ones_like(s[:, :1])
        return scaled_dot_product_attention(one, s, x, attn_mask=mask[:, None], scale=1.0)[:, 0]

    assert_is(build(name), theirs, x, mask)


@pytest.mark.parametrize("name", implementations("source2token"))
def test_source2token_is_attention_with_one_head_per_feature(name: str) -> None:
    x, mask = batch(LENGTHS)

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        s = (x @ w["s1_w"] + w["s1_b"]).relu() @ w["s2_w"] + w["s2_b"]  # [B, N, D]
        keys, values = s.mT[..., None], x.mT[..., None]  # [B, D, N, 1]
        keep = mask[:, None, None]
        one = torch.ones_like(keys[:, :, :1])
        return scaled_dot_product_attention(one, keys, values, attn_mask=keep, scale=1.0).flatten(1)

    assert_is(build(name), theirs, x, mask)


@pytest.mark.parametrize("variant", ["default", "no_positions", "sum"])
@pytest.mark.parametrize("name", implementations("transformer"))
def test_transformer_is_made_of_torchs_layers(name: str, variant: str) -> None:
    module = build(name, variant)
    w = {n: p.detach() for n, p in module.named_parameters()}
    d = D_OUT if variant == "sum" else D_OUT // 2
    x, mask = batch(LENGTHS)
    first = w["cls"].expand(len(x), 1, d)
    h = torch.cat([first, x @ w["in_w"]], dim=1)
    if variant != "no_positions":
        i, m = torch.arange(8.0)[:, None].double(), torch.arange(0, d, 2).double()
        angle = i / 10000 ** (m / d)
        h = h + torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)
    keys = nn.functional.pad(mask, (1, 0), value=True)
    for layer in range(2):
        theirs = nn.TransformerEncoderLayer(
            d,
            HEADS,
            4 * d,
            dropout=0.0,
            activation="relu",
            batch_first=True,
            norm_first=False,
            dtype=torch.float64,
        )
        ours = {n.removeprefix(f"l{layer}_"): p for n, p in w.items()}
        zeros = torch.zeros(d, dtype=torch.float64)
        theirs.load_state_dict(
            {
                "self_attn.in_proj_weight": torch.cat(
                    [columns(ours[n]).T for n in ("q_w", "k_w", "v_w")]
                ),
                "self_attn.in_proj_bias": zeros.repeat(3),
                "self_attn.out_proj.weight": ours["o_w"].T,
                "self_attn.out_proj.bias": zeros,
                "linear1.weight": ours["ff1_w"].T,
                "linear1.bias": ours["ff1_b"],
                "linear2.weight": ours["ff2_w"].T,
                "linear2.bias": ours["ff2_b"],
                "norm1.weight": ours["ln1_scale"],
                "norm1.bias": ours["ln1_offset"],
                "norm2.weight": ours["ln2_scale"],
                "norm2.bias": ours["ln2_offset"],
            }
        )
        h = theirs(h, src_key_padding_mask=~keys)
    largest = h[:, 1:].masked_fill(~mask[..., None], -math.inf).amax(1)
    wanted = h[:, 0] + largest if variant == "sum" else torch.cat([h[:, 0], largest], dim=-1)
    assert error(module(x, mask), wanted) < EXACT


@pytest.mark.parametrize("variant", ["scales", "sum", "max", "radius"])
@pytest.mark.parametrize("name", implementations("multi_scale_transformer"))
def test_multi_scale_transformer_is_layers_of_windows_over_cls_and_tokens(
    name: str, variant: str
) -> None:
    options = options_of("multi_scale_transformer", variant)
    scales = options["scales"] or [[1, 3, "n/2", 5], ["n/4", 1, 3, 999]]
    options |= {"scales": scales}
    module = made(name, options)
    x, mask = batch((13, 13))

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        h = x @ w["in_w"]
        if options["cls"]:
            h = torch.cat([w["cls"].expand(len(x), 1, -1), h], dim=1)
        n, d = h.shape[1:]
        apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()
        for layer, own in enumerate(scales):
            ours = {m.removeprefix(f"l{layer}_"): p for m, p in w.items()}
            reach = reaches({**options, "scales": own}, n)
            mixed = _fused(h, ours, torch.stack([apart <= r for r in reach])) @ ours["o_w"]
            h = layer_norm(h + mixed.relu(), (d,), ours["ln_scale"], ours["ln_offset"], 1e-5)
        first, largest = h[:, 0], h[:, 1 if options["cls"] else 0 :].amax(1)
        return {
            "concat": torch.cat([first, largest], dim=-1),
            "sum": first + largest,
            "max": largest,
        }[options["readout"]]

    assert_is(module, theirs, x, mask)


def assert_is_recurrent(module: nn.Module, theirs: nn.RNNBase) -> None:
    """Assert that every sequence alone gives the same in torch's layer, gradients of x too."""
    x, mask = batch(LENGTHS, padding=math.nan)
    found = run(module, x, mask)
    cotangent = torch.randn(
        found["output"].shape, generator=torch.Generator().manual_seed(2), dtype=x.dtype
    )  # as in `run`
    for b, n in enumerate(LENGTHS):
        alone = x[b : b + 1, :n].clone().requires_grad_()
        out = theirs(alone)[0]
        assert error(found["output"][b, :n], out[0]) < EXACT
        (out * cotangent[b : b + 1, :n]).sum().backward()
        assert alone.grad is not None
        assert error(found["x"][b, :n], alone.grad[0]) < EXACT
        assert not found["output"][b, n:].any()


@pytest.mark.parametrize("name", implementations("bi_lstm"))
def test_bi_lstm_is_torchs(name: str) -> None:
    module = build(name)
    theirs = nn.LSTM(D_IN, D_OUT // 2, batch_first=True, bidirectional=True).double()
    theirs.load_state_dict({n.removeprefix("lstm."): w for n, w in module.state_dict().items()})
    assert_is_recurrent(module, theirs)


def _their_gru(state: Mapping[str, Tensor]) -> nn.GRU:
    """Torch's GRU, whose gates are reset, update, candidate, with our weights."""
    theirs = nn.GRU(D_IN, D_OUT // 2, batch_first=True, bidirectional=True).double()
    found = {}
    for prefix, suffix in (("fw_", "_l0"), ("bw_", "_l0_reverse")):
        both = torch.cat([state[f"{prefix}gates_w"], state[f"{prefix}cand_w"]], dim=1)  # [D+h, 3h]
        gates_b, cand_b = state[f"{prefix}gates_b"], state[f"{prefix}cand_b"]
        inside = state.get(f"{prefix}cand_hb", torch.zeros_like(cand_b))
        found[f"weight_ih{suffix}"] = both[:D_IN].T
        found[f"weight_hh{suffix}"] = both[D_IN:].T
        found[f"bias_ih{suffix}"] = torch.cat([gates_b, cand_b])
        found[f"bias_hh{suffix}"] = torch.cat([torch.zeros_like(gates_b), inside])
    theirs.load_state_dict(found)
    return theirs


@pytest.mark.parametrize("name", implementations("bi_gru"))
def test_bi_gru_is_torchs(name: str) -> None:
    module = build(name)
    assert MECHANISMS["bi_gru"].options["reset"] == "after"
    assert_is_recurrent(module, _their_gru(module.state_dict()))


@pytest.mark.parametrize("name", implementations("bi_gru_released"))
def test_the_released_bi_gru_is_torchs_where_nothing_is_reset(name: str) -> None:
    # With an open reset gate it does not matter on which side of the product it stands.
    module = build(name)
    with torch.no_grad():
        for prefix in ("fw_", "bw_"):
            module.get_parameter(f"{prefix}gates_b")[: D_OUT // 2] = 60
    assert_is_recurrent(module, _their_gru(module.state_dict()))


def _convolved(x: Tensor, weight: Tensor, bias: Tensor, padding: str | int) -> Tensor:
    """[B, N, D] by [k, D, F] -> [B, F, N']."""
    return conv1d(x.mT, weight.permute(2, 1, 0), bias, padding=padding)


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("variant", ["default", "1_2_6"])
@pytest.mark.parametrize("name", implementations("multi_cnn"))
def test_multi_cnn_is_conv1d(name: str, variant: str) -> None:
    x, mask = batch(LENGTHS)
    sizes = options_of("multi_cnn", variant)["kernel_sizes"]

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        # torch's "same" puts the odd position of an even kernel behind, too.
        found = [_convolved(x, w[f"w{k}"], w[f"b{k}"], "same") for k in sizes]
        return torch.cat(found, dim=1).relu().mT

    assert_is(build(name, variant), theirs, x, mask)


@pytest.mark.parametrize("n", [7, 2])
@pytest.mark.parametrize("name", implementations("kim_cnn") + implementations("kim_cnn_released"))
def test_kim_cnn_is_conv1d_and_a_maximum(name: str, n: int) -> None:
    x, mask = batch((n, n))

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        found = []
        for k in (3, 4, 5):
            own = nn.functional.pad(x, (0, 0, 0, max(0, k - n)))  # one window at least
            found.append(_convolved(own, w[f"w{k}"], w[f"b{k}"], 0).relu().amax(-1))
        return torch.cat(found, dim=-1)

    assert_is(build(name), theirs, x, mask)


@pytest.mark.parametrize(
    "name", implementations("hrchy_cnn") + implementations("hrchy_cnn_released")
)
def test_hierarchical_cnn_is_conv1d_and_glu(name: str) -> None:
    x, mask = batch(LENGTHS)
    released = name.startswith("hrchy_cnn_released")

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        y = x
        for i in range(3):
            z = _convolved(y, w[f"l{i}_w"], w[f"l{i}_b"], "same")
            out = glu(z.relu() if released else z, dim=1).mT
            y = out + y if i else out
            if not released:
                y = y.masked_fill(~mask[..., None], 0)
        return y

    assert_is(build(name), theirs, x, mask)


@pytest.mark.parametrize("name", implementations("none"))
def test_no_fusion_is_a_linear_layer(name: str) -> None:
    x, mask = batch(LENGTHS)

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        return nn.functional.linear(x, w["map_w"].T, w["map_b"]).relu()

    assert_is(build(name), theirs, x, mask)
