"""Eq. 10-12 with the whole tensor of scores, the maximum over the keys subtracted."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import logsigmoid

from reference_impls.checks import masked_softmax
from reference_impls.mtsa.dropout import Kept


def scaled(scores: Tensor, scale: str) -> Tensor:
    """A scale function of appendix A.1: log sigmoid or identity."""
    return logsigmoid(scores) if scale == "log_sigmoid" else scores


def tensor_weights(
    r: Tensor, s: Tensor, allowed_pairs: Tensor, bias: Tensor | None, scale_t: str
) -> Tensor:
    """Eq. 10-11: the weight of every key, for every query and feature.

    Parameters
    ----------
    r : Tensor, shape [..., R, N]
        Token2token scores (eq. 8).
    s : Tensor, shape [..., N, d_h] or [..., N, 1]
        sigma_s of the source2token scores.
    allowed_pairs : Tensor of bool, broadcastable to r
    bias : Tensor or None, broadcastable to r
        Added to sigma_t(r).
    scale_t : {"log_sigmoid", "identity"}

    Returns
    -------
    Tensor, shape [..., R, N, d_h] or [..., R, N, 1]
        0 at forbidden keys; sums to 1 over the keys where one is allowed.
    """
    pairs = scaled(r, scale_t)
    if bias is not None:
        pairs = pairs + bias
    scores = pairs[..., None] + s[..., None, :, :]  # [..., R, N, d_h], eq. 10
    return masked_softmax(scores, allowed_pairs[..., None], dim=-2)  # eq. 11


def tensor_softmax(
    r: Tensor, s: Tensor, v: Tensor, allowed_pairs: Tensor, bias: Tensor | None, scale_t: str,
    kept: Kept | None = None,
) -> Tensor:  # fmt: skip
    """Eq. 10-12: the attended values [..., R, d_h], 0 where a query has no allowed key.

    Parameters are those of `tensor_weights`, the values v [..., N, d_h], and what dropout keeps, in
    the shapes of r and v; None is all. Dropout leaves the softmax, so its denominator, alone.
    """
    p = tensor_weights(r, s, allowed_pairs, bias, scale_t)
    if kept is not None:
        p, v = p * kept.pairs[..., None], kept.of_values(v)
    return (p * v[..., None, :, :]).sum(-2)  # [..., R, d_h], eq. 12
