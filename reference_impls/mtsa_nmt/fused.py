"""The translation form on the kernels: one projection, views of it, nothing of N x N."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from reference_impls.checks import in_place
from reference_impls.mtsa.fused import FusedAttention, parts_of, query_key_value
from reference_impls.mtsa.softmax import scaled
from reference_impls.mtsa_nmt.layer import TranslationLayer


class FusedTranslationMTSA(FusedAttention, TranslationLayer):
    """`TranslationLayer` on a kernel; memory B * N * heads * head_dim."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `TranslationLayer.project`, with views; dividing s is left to its last weight."""
        tokens = x.shape[:2]
        weight = self.merged.of(query_key_value, self.q_w, self.k_w, self.v_w)
        widths = [w.shape[2] for w in (self.q_w, self.k_w, self.v_w)]
        q, k, v = parts_of(x.reshape(-1, self.d_in) @ weight, self.heads, widths)  # [H, B*N, d]
        root = math.sqrt(self.q_w.shape[2]) if self.source2token_scaled else 1.0
        s, s_w, s_b = k if self.from_keys else v, self.s1_w, self.s1_b
        if self.hidden_activation is not None:
            s = in_place(self.hidden_activation)(torch.baddbmm(s_b[:, None], s, s_w))
            s_w, s_b = self.s2_w, self.s2_b
        s = scaled(torch.baddbmm(s_b[:, None] / root, s, s_w / root), self.scale_s)
        q, k, v, s = (t.unflatten(1, tokens) for t in (q, k, v, s))
        return q, k, v, s
