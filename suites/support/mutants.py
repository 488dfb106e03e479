"""Deliberately wrong implementations, with records that lie about them."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from harness.registry import builtins
from reference_impls.mechanism import Implementation, Mechanism
from reference_impls.mtsa.optimized import Algorithm1MTSA, algorithm1
from reference_impls.multi_cnn.modules import ConvMultiCnn


class MtsaPaddingIsAKey(Algorithm1MTSA):
    """The padding mask is not given to the attention."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        return algorithm1(q, k, v, s, self._geometries, self.scale_t, None)


class CnnEvenKernelShifted(ConvMultiCnn):
    """The odd zero of an even kernel is put in front."""

    def convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = super().convolve(x, weight, bias)
        if weight.shape[0] % 2:
            return y
        return super().convolve(torch.nn.functional.pad(x, (0, 0, 1, 0))[:, :-1], weight, bias)


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
