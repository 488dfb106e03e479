"""Named faults as changes of one place of the source: each must be noticed by the verifier.

Together with the classes in `mutants` there are at least three for every package.
"""

from __future__ import annotations

from suites.verify.patching import Patch

PATCHES = (
    Patch(
        "gate reads the attended vector first", "mtsa_released.algorithm1", "mtsa/layer.py",
        "torch.cat([v, attended], dim=-1)", "torch.cat([attended, v], dim=-1)",
    ),
    Patch(
        "bias of the values left out", "mtsa_released.algorithm1", "mtsa/layer.py",
        "v = v + self.v_b[:, None, None]", "v = v + 0 * self.v_b[:, None, None]",
    ),
    Patch(
        "halves of the heads swapped", "mtsa_released.plain", "mtsa/layer.py",
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
        "the paper's exponent of positions", "multi_head_released.matmul", "multi_head/layer.py",
        "exponent = 2 * exponent", "exponent = 1 * exponent",
    ),
    Patch(
        "relu forgotten", "multi_head_relu.sdpa", "multi_head/layer.py",
        "(self.q_b, self.k_b, self.v_b)])).relu()", "(self.q_b, self.k_b, self.v_b)]))",
    ),
    Patch(
        "biases in another order", "multi_head_relu.matmul", "multi_head/layer.py",
        "for b in (self.q_b, self.k_b, self.v_b)]", "for b in (self.k_b, self.q_b, self.v_b)]",
    ),
    Patch(
        "heads interleaved", "multi_head.sdpa", "multi_head/layer.py",
        "out = attended.transpose(1, 2).flatten(2)",
        "out = attended.permute(0, 2, 3, 1).flatten(2)",
    ),
    Patch(
        "fusion gate's complement", "disa.broadcast", "disa/layer.py",
        "return gate * h + (1 - gate) * a", "return gate * a + (1 - gate) * h",
    ),
    Patch(
        "one bias of the gate left out", "disa.broadcast", "disa/layer.py",
        'for n in ("fi_b", "fa_b", "o_b"))', 'for n in ("fi_b", "o_b"))',
    ),
    Patch(
        "backward block reads forward", "disan.broadcast", "disa/layer.py",
        '("bw_", parse("backward"))', '("bw_", parse("forward"))',
    ),
    Patch(
        "pooling sees padding", "disan.broadcast", "disan/layer.py",
        "return self.pooling(self.fusion(x, mask), mask)",
        "return self.pooling(self.fusion(x, mask), None)",
    ),
    Patch(
        "activation of one part only", "disan.plain", "disan/layer.py",
        "self.pooling_type(d_out, d_out, activation=activation)", "self.pooling_type(d_out, d_out)",
    ),
    Patch(
        "activation of the scores left out", "source2token.direct", "source2token/layer.py",
        "return self.activation(x @ self.s1_w + self.s1_b) @ self.s2_w",
        "return (x @ self.s1_w + self.s1_b) @ self.s2_w",
    ),
    Patch(
        "forget and input gate swapped", "bi_lstm.plain", "bi_lstm/plain.py",
        "i, f, g, o = gates.chunk(4, dim=-1)", "f, i, g, o = gates.chunk(4, dim=-1)",
    ),
    Patch(
        "state runs on over padding", "bi_lstm.plain", "bi_lstm/plain.py",
        "            if mask is None:\n                h, c",
        "            if True:\n                h, c",
    ),
    Patch(
        "relu forgotten", "multi_cnn.conv", "multi_cnn/layer.py",
        "torch.cat(found, dim=-1).relu()", "torch.cat(found, dim=-1)",
    ),
    Patch(
        "kernel read backwards", "multi_cnn.conv", "multi_cnn/optimized.py",
        "weight.permute(2, 1, 0)", "weight.flip(0).permute(2, 1, 0)",
    ),
    Patch(
        "bias left out", "none.plain", "none/plain.py",
        "x @ self.map_w + self.map_b", "x @ self.map_w",
    ),
    Patch(
        "activation left out", "none.fused", "none/layer.py",
        "self.activation(self.map(zero_at_padding(x, mask)))", "self.map(zero_at_padding(x, mask))",
    ),
    Patch(
        "padded rows hold values", "none.fused", "none/layer.py",
        "return zero_at_padding(self.activation(self.map(zero_at_padding(x, mask))), mask)",
        "return self.activation(self.map(zero_at_padding(x, mask)))",
    ),
)  # fmt: skip
