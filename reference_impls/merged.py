"""Weights put side by side for one product, and kept while they do not change."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from reference_impls.checks import host_can_decide


class Merged:
    """What is made of some weights, made anew only when one of them has changed.

    Calls that need gradients make it every time, as do torch.compile and CUDA graph capture, which
    must see how it comes about. In all others a copy and a product of small matrices, that cost
    more than the attention of a short sentence, are spared.

    Notes
    -----
    A change is seen by the version that torch counts and by the place in memory. Writing through
    ``weight.data`` in place is counted by nobody: write under `torch.no_grad` instead.
    """

    def __init__(self) -> None:
        self._key: object = None
        self._held: tuple[Tensor, ...] = ()
        self._made: Tensor | None = None

    def of(self, make: Callable[..., Tensor], *weights: Tensor) -> Tensor:
        """Return ``make(*weights)``."""
        if not _may_be_kept(weights):
            return make(*weights)
        key = (make, *((w._version, w.data_ptr(), w.dtype, w.shape) for w in weights))
        if self._made is None or key != self._key:
            # Outside of inference mode: what is made there can't take part in training later.
            with torch.inference_mode(False), torch.no_grad():
                self._made = make(*weights)
            # While they are held no other weights can come to stand in their place in memory.
            self._key, self._held = key, tuple(w.detach() for w in weights)
        return self._made

    def __reduce__(self) -> tuple[type[Merged], tuple[()]]:
        """A copy of a module, or one that is loaded, has weights of its own."""
        return Merged, ()


def _may_be_kept(weights: tuple[Tensor, ...]) -> bool:
    if not host_can_decide(weights[0]):
        return False
    if torch.is_grad_enabled() and any(w.requires_grad for w in weights):
        return False
    return not any(w.is_inference() for w in weights)
