"""The oracles of the stacked and of the translation form, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from suites.support.oracles import (
    D_H,
    Config,
    N,
    close,
    naive_of,
    normed,
)

mtsa = naive_of("mtsa")
mtsa_nmt = naive_of("mtsa_nmt")
mtsa_stack = naive_of("mtsa_stack")


def test_stack_without_attention_is_layers_of_feed_forward_and_norms() -> None:
    x, weights, _ = Config("mtsa_stack", "zero", {"heads": 2}).draw()
    for i in range(2):
        weights[f"l{i}_o_w"] = 0 * weights[f"l{i}_o_w"]
        weights[f"l{i}_o_b"] = np.abs(weights[f"l{i}_o_b"])
    want = x
    for i in range(2):
        W = {k[3:]: w for k, w in weights.items() if k.startswith(f"l{i}_")}
        want = want + np.maximum(want @ W["ffn_w"] + W["ffn_b"], 0)
        want = normed(want, 1e-6) * W["ln1_scale"] + W["ln1_offset"] + W["o_b"]
        want = normed(want, 1e-6) * W["ln2_scale"] + W["ln2_offset"]
    close(mtsa_stack(x, weights, heads=2)[0], want, 1e-12)


@pytest.mark.parametrize("directions", [True, False])
@pytest.mark.parametrize("scale_s", ["identity", "log_sigmoid"])
def test_nmt_with_scores_of_keys_is_mtsa(scale_s: str, directions: bool) -> None:
    options = {"heads": 2, "hidden_activation": "elu", "scale_s": scale_s}
    x, weights, rng = Config("mtsa_nmt", "paper", options).draw()
    g = rng.normal(size=(N, 5))
    got = mtsa_nmt(
        x,
        weights,
        None,
        g,
        source2token_scaled=False,
        source2token_from_keys=True,
        bi_direction=directions,
        **options,
    )
    masks = ("forward_inclusive", "backward_inclusive") if directions else ("none", "none")
    want = mtsa(
        x,
        weights,
        None,
        g,
        heads=2,
        masks=masks,
        scale_t="identity",
        scale_s=scale_s,
        activation="elu",
    )
    close(got[0], want[0])
    close(got[1], want[1])
    for name in weights:
        close(got[2][name], want[2][name])


@pytest.mark.parametrize("from_keys", [True, False])
def test_nmt_scores_come_scaled_from_keys_or_values(from_keys: bool) -> None:
    x, weights, _ = Config("mtsa_nmt", "scores", {"heads": 1, "output_layer": False}).draw()
    weights["q_w"] = 0 * weights["q_w"]
    v = x @ weights["v_w"][0]
    u = x @ weights["k_w"][0] if from_keys else v
    score = 1 / (1 + np.exp(-(u @ weights["s1_w"][0] + weights["s1_b"][0]) / np.sqrt(D_H)))
    out = mtsa_nmt(x, weights, heads=1, source2token_from_keys=from_keys, output_layer=False)[0]
    want = (score * v).sum(axis=0) / score.sum(axis=0)
    close(out, np.tile(want, (N, 1)))
