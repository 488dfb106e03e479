"""Against torch's own layers: oracles of mechanisms that are made of them, and have no golden."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, scaled_dot_product_attention

from suites.support.batches import (
    D_OUT,
    HEADS,
    batch,
    build,
    cotangent_of,
    error,
    made,
    options_of,
    run,
)
from suites.support.visibility import reaches

EXACT = 1e-11
LENGTHS = (7, 4, 1)


def assert_is(
    module: nn.Module,
    theirs: Callable[[Tensor, dict[str, Tensor]], Tensor],
    x: Tensor,
    mask: Tensor,
) -> None:
    """Assert equal values, and equal gradients of x and of the weights.

    The module's rows at padding are zero, theirs anything.
    """
    wanted_x = x.clone().requires_grad_()
    leaves = {n: p.detach().clone().requires_grad_() for n, p in module.named_parameters()}
    out = theirs(wanted_x, leaves)
    found = run(module, x, mask)
    if out.ndim == 3:
        out = out.masked_fill(~mask[..., None], 0)
    assert error(found["output"], out) < EXACT
    (out * cotangent_of(out)).sum().backward()
    assert wanted_x.grad is not None
    assert error(found["x"], wanted_x.grad.masked_fill(~mask[..., None], 0)) < EXACT
    for name, leaf in leaves.items():
        if leaf.grad is not None and name in found:
            assert error(found[name], leaf.grad) < EXACT, name


def columns(weight: Tensor) -> Tensor:
    """Per-head weights [H, D, d] side by side, [D, H * d]."""
    return weight.transpose(0, 1).flatten(1)


def _fused(x: Tensor, w: Mapping[str, Tensor], seen: Tensor) -> Tensor:
    """Attended values of all heads [B, N, H * d], each over the pairs that it sees [H, N, N]."""
    q, k, v = (x[:, None] @ w[name] for name in ("q_w", "k_w", "v_w"))  # [B, H, N, d]
    out = scaled_dot_product_attention(q, k, v, attn_mask=seen)
    return out.transpose(1, 2).flatten(2)


def test_additive_pooling_is_attention_with_one_query() -> None:
    x, mask = batch(LENGTHS)

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        s = (x @ w["s1_w"] + w["s1_b"]).tanh() @ w["s2_w"] + w["s2_b"]  # [B, N, 1]
        one = torch.ones_like(s[:, :1])
        return scaled_dot_product_attention(one, s, x, attn_mask=mask[:, None], scale=1.0)[:, 0]

    assert_is(build("additive.oracle"), theirs, x, mask)


@pytest.mark.parametrize("variant", ["default", "no_positions", "sum"])
def test_transformer_is_made_of_torchs_layers(variant: str) -> None:
    module = build("transformer.oracle", variant)
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
def test_multi_scale_transformer_is_layers_of_windows_over_cls_and_tokens(variant: str) -> None:
    options = options_of("multi_scale_transformer", variant)
    scales = options["scales"] or [[1, 3, "n/2", 5], ["n/4", 1, 3, 999]]
    options |= {"scales": scales}
    module = made("multi_scale_transformer.oracle", options)
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


def test_no_fusion_is_a_linear_layer() -> None:
    x, mask = batch(LENGTHS)

    def theirs(x: Tensor, w: Mapping[str, Tensor]) -> Tensor:
        return nn.functional.linear(x, w["map_w"].T, w["map_b"]).relu()

    assert_is(build("none.oracle"), theirs, x, mask)
