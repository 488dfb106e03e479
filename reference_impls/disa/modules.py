"""Directional self-attention: weights, projections, fusion gate, and two attentions between them.

The plain one goes through the tensor of N x N x d scores and its softmax step by step; the other
broadcasts, with two tensors over B x d x N x N and one product for the sums. `chunked` has a third.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from reference_impls.checks import (
    activation_by_name,
    check_input,
    core_dtype,
    glorot,
    masked_softmax,
    one_of,
    refuse_rows,
    refuse_unknown,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.masks import HeadMask, allowed, has_key, parse
from reference_impls.mechanism import BadOption
from reference_impls.merged import MergingModule

DIRECTIONS = ("both", "forward", "backward", "diagonal")
MATRICES = ("dep_w", "head_w", "fi_w", "fa_w")
BIASES = ("map_b", "f_b", "fi_b", "fa_b", "o_b")


def _columns(*weights: Tensor) -> Tensor:
    return torch.cat(weights, dim=1)


def _in_a_row(*biases: Tensor) -> Tensor:
    return torch.cat(biases)


class DisaLayer(MergingModule):
    """One block of directional self-attention, or an untied forward and backward one.

    Parameters
    ----------
    d_in, d_out : int
        With both directions each block has width d_out / 2, and its weights the prefix ``fw_`` or
        ``bw_``; the forward block comes first in the output.
    direction : {"both", "forward", "backward", "diagonal"}
    activation : {"relu", "elu", "selu"}
        f of h = f(x map_w + map_b).
    tanh_scale : float
        c of e = c tanh(. / c).

    Raises
    ------
    BadOption
        For a configuration that does not exist.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        direction: str = "both",
        activation: str = "elu",
        tanh_scale: float = 5.0,
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown("disa", unknown, ("direction", "activation", "tanh_scale"))
        self.d_in = d_in
        self.blocks: tuple[tuple[str, HeadMask], ...] = ()
        if one_of("direction", direction, DIRECTIONS) == "both":
            width = width_per_part(d_out, 2, "directions")
            self.blocks += (("fw_", parse("forward")), ("bw_", parse("backward")))
        else:
            width = d_out
            self.blocks += (("", parse(direction)),)
        self.activation = activation_by_name(activation)
        if not (isinstance(tanh_scale, (int, float)) and 0 < tanh_scale < math.inf):
            raise BadOption(f"tanh_scale={tanh_scale!r}; expected a number above 0")
        self.tanh_scale = float(tanh_scale)
        for prefix, _ in self.blocks:
            self.register_parameter(f"{prefix}map_w", glorot(d_in, width))
            for name in MATRICES:
                self.register_parameter(prefix + name, glorot(width, width))
            for name in BIASES:
                self.register_parameter(prefix + name, zero_bias(width))

    def attend(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        mask: Tensor | None,
        rows: Tensor | None,
    ) -> Tensor:
        """a_i = sum_j p_ij * h_j, p the softmax over allowed j of c tanh((dep_j + head_i) / c).

        Parameters
        ----------
        h, dependent, head : Tensor, shape [B, N, d]
            ``head`` holds the bias f_b.
        direction : HeadMask
        mask : Tensor of bool, shape [B, N], or None
        rows : Tensor of int64, shape [R], or None

        Returns
        -------
        Tensor, shape [B, R, d]
            0 where a query has no allowed key.
        """
        raise NotImplementedError

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """The layer at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, d_out]."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        done = [
            self._block(h, *block, mask, rows)
            for h, block in zip(self.mapped(x), self.blocks, strict=True)
        ]
        out = torch.cat(done, dim=-1)  # [B, R, d_out]
        return zero_at_padding(out, mask if mask is None or rows is None else mask[:, rows])

    def mapped(self, x: Tensor) -> tuple[Tensor, ...]:
        """Each block's h = f(x map_w + map_b): [B, N, D] -> [B, N, d]."""
        prefixes = [prefix for prefix, _ in self.blocks]
        weight = self.merged.of(_columns, *(self._weight(p, "map_w") for p in prefixes))
        bias = self.merged.of(_in_a_row, *(self._weight(p, "map_b") for p in prefixes))
        return self.activation(x @ weight + bias).chunk(len(prefixes), dim=-1)

    def _block(
        self, h: Tensor, prefix: str, direction: HeadMask, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """One direction with its fusion gate: [B, N, d] -> [B, R, d]."""
        read = (self._weight(prefix, n) for n in ("dep_w", "head_w", "fi_w"))
        weight = self.merged.of(_columns, *read)
        dependent, head, gate = (h @ weight).chunk(3, dim=-1)  # [B, N, d]
        head = head + self._weight(prefix, "f_b")
        a = self.attend(h, dependent, head, direction, mask, rows)  # [B, R, d]
        if rows is not None:
            h, gate = h[:, rows], gate[:, rows]
        biases = sum(self._weight(prefix, n) for n in ("fi_b", "fa_b", "o_b"))
        gate = torch.sigmoid(gate + a @ self._weight(prefix, "fa_w") + biases)
        return gate * h + (1 - gate) * a

    def _weight(self, prefix: str, name: str) -> Tensor:
        return weight_of(self, prefix + name)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        return self.fuse(x, mask)

    @property
    def masks(self) -> tuple[HeadMask, ...]:
        """Of the blocks, in the order of `attention`."""
        return tuple(direction for _, direction in self.blocks)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Weights, for looking at: memory B * N * N * d.

        Returns
        -------
        dict
            ``token2token_weights`` [blocks, B, N, N]: the softmax of eq. 6, queries before keys,
            its mean over the features; 0 where a query has no allowed key.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        return {"token2token_weights": self.shown(x, real, real)}

    def shown(self, x: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Weights of some queries on some keys, [B, N] each: [blocks, B, N, N]."""
        self.merged.clear()  # gradients may be wanted, and nothing below asks
        found = []
        for prefix, direction in self.blocks:
            h = self.activation(x @ self._weight(prefix, "map_w") + self._weight(prefix, "map_b"))
            key = h @ self._weight(prefix, "dep_w")
            query = h @ self._weight(prefix, "head_w") + self._weight(prefix, "f_b")
            sums = key[:, None] + query[:, :, None]  # [B, N, N, d]
            e = self.tanh_scale * torch.tanh(sums / self.tanh_scale)
            pairs = allowed((direction,), x.shape[1], x.device)[0]
            pairs = pairs & queries[:, :, None] & keys[:, None]
            found.append(masked_softmax(e, pairs[..., None], dim=2).mean(-1))
        return torch.stack(found)


class PlainDisa(DisaLayer):
    """`DisaLayer` with an explicit softmax; memory B * R * N * d_out, several times."""

    def attend(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        mask: Tensor | None,
        rows: Tensor | None,
    ) -> Tensor:
        """MTSA eq. 6, the softmax over j, and the weighted sum."""
        if rows is not None:
            head = head[:, rows]  # [B, R, d]
        c = self.tanh_scale
        e = c * torch.tanh((dependent[:, None] + head[:, :, None]) / c)  # [B, R, N, d]
        pairs = allowed((direction,), h.shape[1], h.device, rows)  # [1, R, N]
        if mask is not None:
            pairs = pairs & mask[:, None]  # [B, R, N]
        p = masked_softmax(e, pairs[..., None], dim=2)  # [B, R, N, d]
        return (p * h[:, None]).sum(2)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)


LARGEST_SAFE_SCALE = 20.0
"""|e| <= c: up to this c sums of exp(e) neither overflow nor underflow, no maximum is needed.

Subtracting one would cost a pass, and a rounding error in every exponent.
"""


class BroadcastDisa(DisaLayer):
    """`DisaLayer` with the unnormalised weights in one tensor; memory B * N * N * d_out, twice."""

    def attend(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        mask: Tensor | None,
        rows: Tensor | None,
    ) -> Tensor:
        """Numerator and denominator are one product, ``exp(e) [h | 1]``, per feature."""
        refuse_rows(rows)
        with torch.autocast(h.device.type, enabled=False):
            dtype = core_dtype(h.dtype)
            # Contiguous, or the tensors over N x N would inherit the order of axes and be copied.
            values, keys, queries = (
                t.to(dtype).mT.contiguous() for t in (h, dependent, head)
            )  # [B, d, N]
            return self._sums(values, keys, queries, direction, mask).mT.to(h.dtype)

    def _sums(
        self, h: Tensor, keys: Tensor, queries: Tensor, direction: HeadMask, mask: Tensor | None
    ) -> Tensor:
        n, c = h.shape[2], self.tanh_scale
        forbidden = ~allowed((direction,), n, h.device)[:, None]  # [1, 1, N, N]
        if mask is not None:
            forbidden = forbidden | ~mask[:, None, None, :]  # [B, 1, N, N]
        t = ((keys / c)[:, :, None, :] + (queries / c)[..., None]).tanh_()  # [B, d, N, N]
        # In place from here: only tanh and exp keep their results for the gradient.
        e = (t * c).masked_fill_(forbidden, -math.inf)
        if c > LARGEST_SAFE_SCALE:
            highest = e.detach().amax(-1, keepdim=True)
            e.sub_(highest.masked_fill_(highest == -math.inf, 0))  # -inf - -inf would be NaN
        columns = torch.stack([h, torch.ones_like(h)], dim=-1)  # [B, d, N, 2]
        numerator, denominator = (e.exp_() @ columns).unbind(-1)  # [B, d, N]
        closed = ~has_key((direction,), n, h.device, mask)[0, :, None]  # [B or 1, 1, N]
        return numerator / denominator.masked_fill(closed, 1)
