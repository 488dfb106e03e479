"""Named faults as changes of one place of the source: each must be noticed by the verifier.

Together with the classes in `mutants` there are at least three for every package.
"""

from __future__ import annotations

from suites.support.patching import Patch

PATCHES = (
    Patch(
        "gate reads the attended vector first", "mtsa_released.algorithm1", "mtsa/released.py",
        "torch.cat([v, attended], dim=-1)", "torch.cat([attended, v], dim=-1)",
    ),
    Patch(
        "bias of the values left out", "mtsa_released.algorithm1", "mtsa/released.py",
        "v = v + self.v_b[:, None, None]", "v = v + 0 * self.v_b[:, None, None]",
    ),
    Patch(
        "halves of the heads swapped", "mtsa_released.plain", "mtsa/released.py",
        '["forward_inclusive"] * half + ["backward_inclusive"] * half',
        '["backward_inclusive"] * half + ["forward_inclusive"] * half',
    ),
    Patch(
        "denominator without the maximum's exponent", "mtsa.algorithm1", "mtsa/optimized.py",
        "    return (s - highest).exp()", "    return (s - highest.detach() / 2).exp()",
    ),
    Patch(
        "window one too wide", "mtsa.algorithm1", "masks.py",
        "lo=-int(value), hi=int(value)", "lo=-int(value) - 1, hi=int(value)",
    ),
    Patch(
        "distance counted without its sign's absolute", "mtsa.algorithm1", "masks.py",
        "_offsets(length, device, rows).abs().to(dtype)",
        "_offsets(length, device, rows).to(dtype)",
    ),
    Patch(
        "the paper's exponent of positions", "multi_head_released.matmul", "multi_head/modules.py",
        "exponent = 2 * exponent", "exponent = 1 * exponent",
    ),
    Patch(
        "relu forgotten", "multi_head_relu.sdpa", "multi_head/modules.py",
        "nn.functional.linear(x, weight.T, bias).relu_()",
        "nn.functional.linear(x, weight.T, bias)",
    ),
    Patch(
        "biases in another order", "multi_head_relu.matmul", "multi_head/modules.py",
        "_in_a_row, self.q_b, self.k_b, self.v_b", "_in_a_row, self.k_b, self.q_b, self.v_b",
    ),
    Patch(
        "causal mask made strict", "multi_head.matmul", "multi_head/modules.py",
        ".tril()", ".tril(-1)",
    ),
    Patch(
        "the future seen without padding", "multi_head.sdpa", "multi_head/modules.py",
        "causal = self.causal and keys is None", "causal = False",
    ),
    Patch(
        "the future seen beside padding", "multi_head.sdpa", "multi_head/modules.py",
        "(mask[:, None, :] | own) & up_to_each(n, mask.device)", "mask[:, None, :] | own",
    ),
    Patch(
        "heads interleaved", "multi_head.sdpa", "multi_head/modules.py",
        "out = attended.transpose(1, 2).flatten(2)",
        "out = attended.permute(0, 2, 3, 1).flatten(2)",
    ),
    Patch(
        "fusion gate's complement", "disa.broadcast", "disa/modules.py",
        "return gate * h + (1 - gate) * a", "return gate * a + (1 - gate) * h",
    ),
    Patch(
        "one bias of the gate left out", "disa.broadcast", "disa/modules.py",
        'for n in ("fi_b", "fa_b", "o_b"))', 'for n in ("fi_b", "o_b"))',
    ),
    Patch(
        "backward block reads forward", "disan.broadcast", "disa/modules.py",
        '("bw_", parse("backward"))', '("bw_", parse("forward"))',
    ),
    Patch(
        "pooling sees padding", "disan.broadcast", "disan/modules.py",
        "return self.pooling(self.fusion(x, mask), mask)",
        "return self.pooling(self.fusion(x, mask), None)",
    ),
    Patch(
        "activation of one part only", "disan.plain", "disan/modules.py",
        "self.pooling_type(d_out, d_out, activation=activation)", "self.pooling_type(d_out, d_out)",
    ),
    Patch(
        "activation of the scores left out", "source2token.direct", "source2token/modules.py",
        "return self.activation(x @ self.s1_w + self.s1_b) @ self.s2_w",
        "return (x @ self.s1_w + self.s1_b) @ self.s2_w",
    ),
    Patch(
        "forget and input gate swapped", "bi_lstm.plain", "bi_lstm/modules.py",
        "i, f, g, o = gates.chunk(4, dim=-1)", "f, i, g, o = gates.chunk(4, dim=-1)",
    ),
    Patch(
        "state runs on over padding", "bi_lstm.plain", "bi_lstm/modules.py",
        "            if mask is None:\n                h, c",
        "            if True:\n                h, c",
    ),
    Patch(
        "relu forgotten", "multi_cnn.conv", "multi_cnn/modules.py",
        "self.side_by_side(x).relu_()", "self.side_by_side(x)",
    ),
    Patch(
        "kernel read backwards", "multi_cnn.conv", "multi_cnn/modules.py",
        "convolved(x, weight, bias,", "convolved(x, weight.flip(0), bias,",
    ),
    Patch(
        "bias left out", "none.plain", "none/modules.py",
        "x @ self.map_w + self.map_b", "x @ self.map_w",
    ),
    Patch(
        "activation left out", "none.fused", "none/modules.py",
        "self.activation(self.map(zero_at_padding(x, mask)))", "self.map(zero_at_padding(x, mask))",
    ),
    Patch(
        "padded rows hold values", "none.fused", "none/modules.py",
        "return zero_at_padding(self.activation(self.map(zero_at_padding(x, mask))), mask)",
        "return self.activation(self.map(zero_at_padding(x, mask)))",
    ),
    Patch(
        "bias of the hidden layer left out", "additive.direct", "additive/modules.py",
        "self.activation(x @ self.s1_w + self.s1_b)", "self.activation(x @ self.s1_w)",
    ),
    Patch(
        "padding takes weight", "additive.direct", "additive/modules.py",
        "s = s.masked_fill(~mask & mask.any(1, keepdim=True), -math.inf)", "pass",
    ),
    Patch(
        "sum around zero without the centre", "additive.direct", "additive/modules.py",
        "@ (x - centre) + centre)", "@ (x - centre))",
    ),
    Patch(
        "gates swapped", "bi_gru.plain", "bi_gru/modules.py",
        "r, u = gates.chunk(2, dim=-1)", "u, r = gates.chunk(2, dim=-1)",
    ),
    Patch(
        "update gate's complement", "bi_gru_released.batched", "bi_gru/modules.py",
        "new = c + u * (state - c)", "new = state + u * (c - state)",
    ),
    Patch(
        "reset acts before instead of after", "bi_gru.batched", "bi_gru/modules.py",
        "from_state = r * (products[..., 2 * h :] + cand_hb)",
        "from_state = products[..., 2 * h :] + cand_hb",
    ),
    Patch(
        "backward direction not turned back", "bi_gru.batched", "bi_gru/modules.py",
        "torch.cat([forward, backward.flip(1)], dim=-1)", "torch.cat([forward, backward], dim=-1)",
    ),
    Patch(
        "windows reach into padding", "kim_cnn.conv", "kim_cnn/modules.py",
        'if mask is None or self.windows == "padded":', "if True:",
    ),
    Patch(
        "windows of padding left out", "kim_cnn_released.conv", "kim_cnn/modules.py",
        'if mask is None or self.windows == "padded":', "if mask is None:",
    ),
    Patch(
        "mean for maximum", "kim_cnn.conv", "kim_cnn/modules.py",
        "return z.amax(1)", "return z.logsumexp(1)",
    ),
    Patch(
        "relu before the gate in the paper's form", "hrchy_cnn.conv", "hrchy_cnn/modules.py",
        'glu(z.relu() if self.form == "released" else z)', "glu(z.relu())",
    ),
    Patch(
        "padding zeroed between layers", "hrchy_cnn_released.conv", "hrchy_cnn/modules.py",
        'self.stack(x, mask if self.form == "paper" else None)', "self.stack(x, mask)",
    ),
    Patch(
        "no residual", "hrchy_cnn.conv", "hrchy_cnn/modules.py",
        "else z)\n            y = gated + y if i else gated", "else z)\n            y = gated",
    ),
    Patch(
        "block rule one too long", "biblosa.folded", "biblosa/modules.py",
        "(cubes < 2 * count)", "(cubes <= 2 * count)",
    ),
    Patch(
        "blocks in the other direction", "biblosa.folded", "biblosa/modules.py",
        'prefix + "blk_", direction)', 'prefix + "blk_", parse("diagonal"))',
    ),
    Patch(
        "combination's gate reads the candidate's half", "biblosa.folded", "biblosa/modules.py",
        "candidate, gate = fused.chunk(2, dim=-1)", "gate, candidate = fused.chunk(2, dim=-1)",
    ),
    Patch(
        "empty blocks take no part", "biblosa_released.folded", "biblosa/modules.py",
        "return Layout(real.view(batch, blocks, length))",
        "real = real.view(batch, blocks, length)\n    return Layout(real, real.any(-1))",
    ),
    Patch(
        "window one too wide", "msmsa.masked", "msmsa/modules.py",
        "(distance <= scale.half(real))", "(distance <= scale.half(real) + 1)",
    ),
    Patch(
        "fractions of the batch's length", "msmsa.plain", "msmsa/modules.py",
        "real = mask.sum(1)[:, None, None]", "real = 0 * mask.sum(1)[:, None, None] + length",
    ),
    Patch(
        "norm without relu", "msmsa_layer.windowed", "msmsa/modules.py",
        "x + mixed.relu_()", "x + mixed",
    ),
    Patch(
        "scores divided for the model's width", "msmsa.windowed", "msmsa/modules.py",
        "math.sqrt(head_width if head else model_width)", "math.sqrt(model_width)",
    ),
    Patch(
        "layers share out heads alike", "multi_scale_transformer.masked", "msmsa/scales.py",
        "alpha / layer\n", "alpha\n",
    ),
    Patch(
        "readout in another order", "multi_scale_transformer.windowed", "transformer/modules.py",
        "torch.cat([h[:, 0], sentence], dim=-1)", "torch.cat([sentence, h[:, 0]], dim=-1)",
    ),
    Patch(
        "padded states are read", "multi_scale_transformer.masked", "transformer/modules.py",
        "tokens = tokens.masked_fill(~mask[..., None], -math.inf)", "pass",
    ),
    Patch(
        "no positions", "transformer.sdpa", "transformer/modules.py",
        "self.positions.added_to(h)", "h",
    ),
    Patch(
        "feed-forward block without residual", "transformer.sdpa", "transformer/modules.py",
        "(h + narrow).add_(", "narrow.add(",
    ),
    Patch(
        "no division by sqrt(d_h)", "transformer.plain", "transformer/modules.py",
        "q @ k.mT / math.sqrt(q.shape[-1])", "q @ k.mT",
    ),
    Patch(
        "heads and dependents swapped", "resa.gathered", "resa/modules.py",
        "torch.stack([real, selection.heads & real, selection.dependents & real])",
        "torch.stack([real, selection.dependents & real, selection.heads & real])",
    ),
    Patch(
        "the token itself counts among the others", "resa.masked", "resa/modules.py",
        "total, count = total - values, count - 1", "pass",
    ),
    Patch(
        "selected below the threshold", "resa.masked", "resa/selecting.py",
        "THRESHOLD = 0.5", "THRESHOLD = 0.45",
    ),
    Patch(
        "dropped tokens are pooled", "resan.plain", "resan/modules.py",
        "kept = selection.heads & real if self.drops_unselected else real", "kept = real",
    ),
    Patch(
        "dependents' selection decides what is pooled", "resan.plain", "resan/modules.py",
        "kept = selection.heads & real if self.drops_unselected else real",
        "kept = selection.dependents & real if self.drops_unselected else real",
    ),
    Patch(
        "unselected words are pooled", "resan_no_fusion.plain", "resan/modules.py",
        "self.chosen(x, real, selection).heads & real)", "real)",
    ),
    Patch(
        "norm before the residual", "mtsa_stack.algorithm1", "mtsa_stack/modules.py",
        'self._normalised(layer, "ln2", x + self.activation(fused))',
        'x + self._normalised(layer, "ln2", self.activation(fused))',
    ),
    Patch(
        "norms of a layer swapped", "mtsa_stack.plain", "mtsa_stack/modules.py",
        'self._normalised(layer, "ln1", x + hidden)', 'self._normalised(layer, "ln2", x + hidden)',
    ),
    Patch(
        "keys and queries swapped", "mtsa_stack.algorithm1", "mtsa_stack/modules.py",
        'for name in ("q_w", "k_w", "v_w", "s2_w"))', 'for name in ("k_w", "q_w", "v_w", "s2_w"))',
    ),
    Patch(
        "source2token scores unscaled", "mtsa_nmt.algorithm1", "mtsa_nmt/modules.py",
        "            s = s / root", "            s = s * 1",
    ),
    Patch(
        "scores read the keys", "mtsa_nmt.algorithm1", "mtsa_nmt/modules.py",
        "per_head(k if self.from_keys else v, self.s1_w", "per_head(k, self.s1_w",
    ),
    Patch(
        "strict directions", "mtsa_nmt.plain", "mtsa_nmt/modules.py",
        '["forward_inclusive"] * half + ["backward_inclusive"] * half',
        '["forward"] * half + ["backward"] * half',
    ),
    Patch(
        "queries and keys change places", "multi_head.sdpa", "multi_head/modules.py",
        "weights = (self.q_w, self.k_w, self.v_w)", "weights = (self.v_w, self.k_w, self.q_w)",
    ),
    Patch(
        "no neighbour behind", "msmsa.windowed", "msmsa/windowed.py",
        "for offset in range(-half, half + 1):", "for offset in range(-half, half):",
    ),
    Patch(
        "neighbours' gradient without the softmax's", "msmsa.windowed", "msmsa/windowed.py",
        "p * (g_p - (p * g_p).sum(0))", "p * g_p",
    ),
    Patch(
        "bands begin one key late", "msmsa.windowed", "msmsa/tiles.py",
        "Piece(half, tiles, tile, 0, tile + 2 * half)",
        "Piece(half, tiles, tile, 1, tile + 2 * half)",
    ),
    Patch(
        "tiles take the batch's length", "msmsa.windowed", "msmsa/windowed.py",
        "reach = reaches(group.scales[:1], mask)[..., None, None]", "reach = group.half",
    ),
    Patch(
        "gradients of overlapping bands do not add up", "msmsa.windowed", "msmsa/windowed.py",
        ".mT.add_(grad[", ".mT.copy_(grad[",
    ),
    Patch(
        "ranges take the batch's length", "msmsa.fused", "msmsa/fused.py",
        "reaches(scales, mask).clamp(max=length)",
        "reaches(scales, torch.ones_like(mask)).clamp(max=length)",
    ),
    Patch(
        "one side of the window", "multi_scale_transformer.fused", "msmsa/fused.py",
        "        -half,\n        half,", "        0 * half,\n        half,",
    ),
    Patch(
        "gradient of tanh left out", "disa.chunked", "disa/chunked.py",
        "w.addcmul_(w, t.square_(), value=-1)", "t.square_()",
    ),
    Patch(
        "chunks take one key too few", "disa.chunked", "disa/cutting.py",
        "min(n, stop - lo)", "min(n, stop - lo - 1)",
    ),
    Patch(
        "gradient with the taps as they are", "multi_cnn.gemm", "convolution.py",
        "weight.flip(0).mT", "weight.mT",
    ),
    Patch(
        "windows one token late", "hrchy_cnn.gemm", "hrchy_cnn/modules.py",
        "[(weight.shape[0] - 1) // 2]", "[weight.shape[0] // 2 - 1]",
    ),
    Patch(
        "windows cut at the smallest kernel's end", "kim_cnn.gemm", "kim_cnn/modules.py",
        "part[:, : n + behind - k + 1]", "part[:, : n + behind - min(sizes) + 1]",
    ),
    Patch(
        "edge of the keys one too wide", "mtsa.fused_tiled", "kernels/tiled/cutting.py",
        "apart < lo)", "apart < lo - 1)",
    ),
    Patch(
        "padding takes weight", "mtsa.fused_tiled", "kernels/tiled/sequences.py",
        "                s = s + padding\n", "                s = s + 0 * self.length\n",
    ),
    Patch(
        "denominator's gradient left out", "mtsa.fused_tiled", "kernels/tiled/sequences.py",
        "        denominator.neg_()", "        denominator.zero_()",
    ),
    Patch(
        "slope of the sigmoid left out", "mtsa.fused_tiled", "kernels/tiled/sequences.py",
        "return torch.ops.aten.sigmoid_backward(dp, pairs.p)", "return dp.mul_(pairs.p)",
    ),
    Patch(
        "keys' second gradient subtracted", "mtsa.fused_tiled", "mtsa/projection.py",
        "gk = torch.add(gk, ", "gk = torch.sub(gk, ",
    ),
    Patch(
        "gate's halves swapped", "mtsa_released.fused_tiled", "mtsa/fused.py",
        "of_v, of_a = self.g_w", "of_a, of_v = self.g_w",
    ),
    Patch(
        "scores' bias undivided", "mtsa_nmt.fused_tiled", "mtsa_nmt/modules.py",
        "s_b[:, None] / root", "s_b[:, None] / 1",
    ),
    Patch(
        "bias of the scores added to the values", "mtsa_stack.fused_tiled", "mtsa_stack/modules.py",
        "(weight.shape[1] - s_b.shape[0], 0)", "(0, weight.shape[1] - s_b.shape[0])",
    ),
)  # fmt: skip
