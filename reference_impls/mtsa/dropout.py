"""Attention dropout of MTSA (appendix A.3): which factors of the numerator are kept.

Algorithm 1's step 7 becomes ``Dropout(E^X) Dropout(E^R) / E^S E^R``: each of the two factors of the
numerator is kept with probability sqrt(p_ad), so each product with p_ad; the denominator stays as
it is. A kept factor is divided by sqrt(p_ad), so that the expectation is the undropped output.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from reference_impls.kernels.dropout import PairDropout
from reference_impls.mechanism import BadOption, Drawn, Unsupported


def dropped_share(value: Any) -> float:
    """Return the option ``attention_dropout``, 1 - p_ad, or raise `BadOption`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1:
        raise BadOption(f"attention_dropout={value!r}; expected a number of at least 0, below 1")
    return float(value)


def draw(v: Tensor, dropout: float) -> tuple[Tensor, PairDropout]:
    """Draw what is kept; no tensor of pairs, which a kernel decides as it goes.

    Parameters
    ----------
    v : Tensor, shape [H, B, N, d_h]
        Values.
    dropout : float
        1 - p_ad.

    Returns
    -------
    Tensor, shape [H, B, N, d_h]
        The kept values, divided by p_ad: the whole scaling of the numerator.
    PairDropout
        Of the factors E^R.
    """
    if v.is_cuda and torch.cuda.is_current_stream_capturing():
        raise Unsupported(
            "attention_dropout draws a seed on the host, which a CUDA graph would replay for ever: "
            "capture with attention_dropout=0, or take eager"
        )
    share = 1 - dropout
    probability = math.sqrt(share)
    kept = torch.empty(v.shape, dtype=torch.bool, device=v.device).bernoulli_(probability)
    keep = PairDropout.draw(probability)
    if _noted is not None:
        _noted.append((keep.pairs(v), kept))
    return v * kept / share, keep


_noted: list[tuple[Tensor, Tensor]] | None = None
"""Pairs [H, B, N, N] and values [H, B, N, d_h] that are kept, drawn while somebody looks."""


@contextmanager
def recorded(module: torch.nn.Module) -> Iterator[Drawn]:
    """Note what a pass of a layer keeps: ``pairs`` [H, n, n] and ``values`` [H, n, d_h] of bool."""
    global _noted
    found: list[tuple[Tensor, Tensor]] = []

    def of(b: int, n: int) -> dict[str, Any]:
        ((pairs, values),) = found
        pairs, values = pairs[:, b, :n, :n], values[:, b, :n]
        return {"pairs": pairs.cpu().numpy(), "values": values.cpu().numpy()}

    _noted = found
    try:
        yield Drawn(of)
    finally:
        _noted = None
