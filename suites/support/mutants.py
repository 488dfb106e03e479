"""Deliberately wrong implementations: small faults of the kind that slip in. Factories."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from harness.registry import builtins
from reference_impls import masks
from reference_impls.bi_lstm.modules import PackedBiLstm
from reference_impls.disa.modules import BroadcastDisa, Pairs
from reference_impls.mechanism import Implementation, Mechanism
from reference_impls.mtsa import layer as mtsa_layer
from reference_impls.mtsa.optimized import Algorithm1MTSA, Algorithm1ReleasedMTSA, algorithm1
from reference_impls.multi_cnn.modules import ConvMultiCnn
from reference_impls.multi_head.modules import MatmulMultiHead, Positions
from reference_impls.source2token.modules import DirectSource2Token

INCLUSIVE = {"forward": "forward_inclusive", "backward": "backward_inclusive"}


class MtsaNonStrictMask(Algorithm1MTSA):
    """A token attends to itself."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.masks = tuple(masks.parse(INCLUSIVE.get(m.text, m.text)) for m in self.masks)


class MtsaSwappedDirections(Algorithm1MTSA):
    """Forward and backward heads change places."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.masks = self.masks[::-1]


class MtsaMissingScale(Algorithm1MTSA):
    """No division by sqrt(d_i)."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, s = super().project(x)
        return q * math.sqrt(q.shape[-1]), k, v, s


class MtsaSwappedHeads(Algorithm1MTSA):
    """Heads are concatenated in reverse order."""

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        return super().combine(attended.flip(0), v)


class MtsaPaddingIsAKey(Algorithm1MTSA):
    """The padding mask is not given to the attention."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        return algorithm1(q, k, v, s, self.masks, self.scale_t, None)


class MtsaForgetsSourceScore(Algorithm1MTSA):
    """Source2token scores do not enter."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, s = super().project(x)
        return q, k, v, s * 0


class MtsaIdentityForLogSigmoid(Algorithm1MTSA):
    """The other scale function."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        other = "identity" if self.scale_t == "log_sigmoid" else "log_sigmoid"
        return algorithm1(q, k, v, s, self.masks, other, mask)


class MtsaMissingScoreBias(Algorithm1MTSA):
    """b^(s1) is left out."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, _ = super().project(x)
        hidden = self.activation(mtsa_layer.per_head(k, self.s1_w, self.s1_b * 0))
        return (
            q,
            k,
            v,
            mtsa_layer.scaled(mtsa_layer.per_head(hidden, self.s2_w, self.s2_b), self.scale_s),
        )


class MtsaUniformEmptyRow(Algorithm1MTSA):
    """A query without an allowed key gets the mean of the values instead of zero."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        a = super().attend(q, k, v, s, mask, rows)
        empty = (a == 0).all(-1, keepdim=True)
        return torch.where(empty, v.mean(2, keepdim=True), a)


class MtsaDetachedScores(Algorithm1MTSA):
    """Right values, but no gradient through the source2token scores."""

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        q, k, v, s = super().project(x)
        return q, k, v, s.detach() + 0 * s


class MtsaAsPrinted(Algorithm1MTSA):
    """Algorithm 1 without subtracting any maximum."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        n = k.shape[2]
        r = q @ k.mT
        pairs = masks.allowed(self.masks, n, q.device)[:, None]  # [H, 1, N, N]
        if mask is not None:
            pairs = pairs & mask[None, :, None, :]
        e_r = (r.sigmoid() if self.scale_t == "log_sigmoid" else r.exp()) * pairs
        e_s = s.exp()
        total = e_r @ e_s
        return (e_r @ (v * e_s)) / total.masked_fill(total == 0, 1)


class ReleasedGateSwapped(Algorithm1ReleasedMTSA):
    """The gate's complement."""

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        assert self.g_w is not None
        assert self.g_b is not None
        gate = torch.sigmoid(
            mtsa_layer.per_head(torch.cat([v, attended], dim=-1), self.g_w, self.g_b)
        )
        return mtsa_layer.concatenate((1 - gate) * v + gate * attended)


class MultiHeadModelScale(MatmulMultiHead):
    """Divided by sqrt(D) instead of sqrt(d_h)."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        return super().attend(q / math.sqrt(self.heads), k, v, mask, rows)


class MultiHeadPaddingIsAKey(MatmulMultiHead):
    """Zeroed padding still takes weight."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        return super().attend(q, k, v, None, rows)


class _PositionsFromOne(Positions):
    def added_to(self, x: Tensor) -> Tensor:
        return super().added_to(torch.nn.functional.pad(x, (0, 0, 1, 0)))[:, 1:]


class MultiHeadPositionsFromOne(MatmulMultiHead):
    """Positions are counted from 1."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        if self.positions is not None:
            self.positions = _PositionsFromOne(self.positions.width, self.positions.form)


class DisaNonStrictMask(BroadcastDisa):
    """A token attends to itself."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        looser = masks.parse(INCLUSIVE.get(pairs.direction.text, "none"))
        return super().attend(h, dependent, head, replace(pairs, direction=looser))


class DisaSwappedRoles(BroadcastDisa):
    """Head and dependent change places."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        return super().attend(h, head, dependent, pairs)


class DisaOtherTanhScale(BroadcastDisa):
    """c = 4.5 instead of 5."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tanh_scale *= 0.9


class LstmBackwardFromTheBatchsEnd(PackedBiLstm):
    """The backward direction starts at the padding."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return super().forward(x)
        clean = x.masked_fill(~mask[..., None], 0)
        return super().forward(clean).masked_fill(~mask[..., None], 0)


class CnnEvenKernelShifted(ConvMultiCnn):
    """The odd zero of an even kernel is put in front."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = super().convolve(x, weight, bias)
        if weight.shape[0] % 2:
            return y
        return super().convolve(torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1], weight, bias)


class Source2TokenPaddingIsAKey(DirectSource2Token):
    """Padding takes weight."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        return super().pool(x, s, None)


class Source2TokenOneScore(DirectSource2Token):
    """One score per token instead of one per feature."""

    def pool(self, x: Tensor, s: Tensor, mask: Tensor | None) -> Tensor:
        return super().pool(x, s.mean(-1, keepdim=True).expand_as(s), mask)


class CnnReadsPadding(ConvMultiCnn):
    """The convolution takes what stands at padding for tokens."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = super().forward(x)
        return y if mask is None else y.masked_fill(~mask[..., None], 0)


def _lying(name: str, of: str, implementation: str, factory: str, summary: str) -> Mechanism:
    """A mechanism's record under another name, whose only implementation is a class here."""
    path = f"suites.support.mutants:{factory}"
    lie = Implementation(implementation, path, summary, mask_optional=True)
    return replace(builtins()[of], name=name, implementations=(lie,))


WRONG = _lying("wrong_cnn", "multi_cnn", "shifted", "CnnEvenKernelShifted", "wrong on purpose")
"""A record that lies, for ``--with suites.support.mutants:WRONG``."""
PADDED_WRONG = _lying(
    "deaf_mtsa", "mtsa", "deaf", "MtsaPaddingIsAKey", "right where nothing is padded"
)
"""Another, that only padding betrays."""
END_WRONG = _lying(
    "reading_cnn", "multi_cnn", "reads", "CnnReadsPadding", "wrong beside padding alone"
)
"""Another, wrong in the last tokens before the padding and nowhere else."""

MUTANTS = {
    "MtsaNonStrictMask": "mtsa",
    "MtsaSwappedDirections": "mtsa",
    "MtsaMissingScale": "mtsa",
    "MtsaSwappedHeads": "mtsa",
    "MtsaPaddingIsAKey": "mtsa",
    "MtsaForgetsSourceScore": "mtsa",
    "MtsaIdentityForLogSigmoid": "mtsa",
    "MtsaMissingScoreBias": "mtsa",
    "MtsaUniformEmptyRow": "mtsa",
    "MtsaDetachedScores": "mtsa",
    "MtsaAsPrinted": "mtsa",
    "ReleasedGateSwapped": "mtsa_released",
    "MultiHeadModelScale": "multi_head",
    "MultiHeadPaddingIsAKey": "multi_head",
    "MultiHeadPositionsFromOne": "multi_head",
    "DisaNonStrictMask": "disa",
    "DisaSwappedRoles": "disa",
    "DisaOtherTanhScale": "disa",
    "LstmBackwardFromTheBatchsEnd": "bi_lstm",
    "CnnEvenKernelShifted": "multi_cnn",
    "Source2TokenPaddingIsAKey": "source2token",
    "Source2TokenOneScore": "source2token",
}
"""Name of a factory above -> mechanism that it claims to be."""
