"""Directional self-attention: weights, projections, fusion gate, and two attentions between them.

The plain one goes through the tensor of N x N x d scores and its softmax step by step; the other
broadcasts, with two tensors over B x d x N x N and one product for the sums. `chunked` has a third.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from reference_impls.checks import (
    activation_by_name,
    check_input,
    core_dtype,
    glorot,
    in_dtype,
    in_place,
    layer_of,
    masked_softmax,
    one_of,
    refuse_rows,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.masks import HeadMask, allowed, parse
from reference_impls.mechanism import BadOption
from reference_impls.merged import MergingModule, itself

Affine: TypeAlias = tuple[Sequence[Tensor], Sequence[Tensor | None]]
"""Weights [D, d] of one input, and their biases [d]."""

MATRICES = ("dep_w", "head_w", "fi_w", "fa_w")
BIASES = ("map_b", "f_b", "fi_b", "fa_b", "o_b")


def maps(*given: Tensor) -> Affine:
    """The blocks' map weights, and their biases."""
    half = len(given) // 2
    return given[:half], given[half:]


def reads(*given: Tensor) -> Affine:
    """Weights of keys, queries and gate, and their biases, of which keys have none."""
    *weights, f_b, fi_b, fa_b, o_b = given
    # Not `stack(...).sum(0)`: its gradients are views of one memory, which `.grad` would share.
    return weights, (None, f_b, fi_b + fa_b + o_b)


def _joined(make: Callable[..., Affine]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The columns of the weights that `make` gives side by side, and their biases or zeros."""

    def made(*given: Tensor) -> tuple[Tensor, Tensor]:
        weights, biases = make(*given)
        pairs = zip(weights, biases, strict=True)
        whole = [w.new_zeros(w.shape[1]) if b is None else b for w, b in pairs]
        return torch.cat([*weights], dim=1), torch.cat(whole)

    return made


joined_maps, joined_reads = _joined(maps), _joined(reads)
JOINED = {maps: joined_maps, reads: joined_reads}


@dataclass(frozen=True)
class Pairs:
    """Which keys a query may attend to.

    Attributes
    ----------
    direction : HeadMask
    keys : Tensor of bool, shape [B, N], or None
        Those that there are; None is all.
    rows : Tensor of int64, shape [R], or None
        Positions of the queries; None is all N.
    """

    direction: HeadMask
    keys: Tensor | None = None
    rows: Tensor | None = None

    def open(self, length: int, device: torch.device) -> Tensor:
        """Whether query i may attend to key j, [B or 1, R, N]."""
        pairs = allowed((self.direction,), length, device, self.rows)
        return pairs if self.keys is None else pairs & self.keys[:, None]


class DirectedBlocks(MergingModule):
    """One block of directional attention, or an untied forward and backward one side by side.

    With both directions each block has width d_out / 2, and its weights the prefix ``fw_`` or
    ``bw_``; the forward block comes first in the output.
    """

    directions: ClassVar[tuple[str, ...]] = ("both", "forward", "backward", "diagonal")

    def __init__(
        self, d_in: int, d_out: int, *, direction: str, activation: str, tanh_scale: float
    ) -> None:
        super().__init__()
        self.d_in = d_in
        self.blocks: tuple[tuple[str, HeadMask], ...] = ()
        if one_of("direction", direction, self.directions) == "both":
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
            self.add_weights(prefix, d_in, width)

    def add_weights(self, prefix: str, d_in: int, d: int) -> None:
        """Make the weights of one block of width d."""
        raise NotImplementedError

    def weight(self, prefix: str, name: str) -> Tensor:
        """One weight of one block."""
        return weight_of(self, prefix + name)

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """a_i = sum_j p_ij * h_j, p the softmax over allowed j of c tanh((dep_j + head_i) / c).

        Parameters
        ----------
        h, dependent, head : Tensor, shape [B, N, d]
            ``head`` holds the bias f_b.
        pairs : Pairs

        Returns
        -------
        Tensor, shape [B, R, d]
            0 where a query has no allowed key.
        """
        raise NotImplementedError

    def mapped(self, x: Tensor) -> tuple[Tensor, ...]:
        """Each block's h = f(x map_w + map_b): [..., D] -> [..., d]."""
        return self._products(x, maps, self.map_weights(), in_place(self.activation))

    def map_weights(self) -> list[Tensor]:
        """What `maps` takes."""
        names = [prefix + name for name in ("map_w", "map_b") for prefix, _ in self.blocks]
        return [weight_of(self, name) for name in names]

    def read_weights(self, prefix: str) -> list[Tensor]:
        """What `reads` takes of one block."""
        return [weight_of(self, prefix + name) for name in (*MATRICES[:3], *BIASES[1:])]

    def _products(
        self,
        x: Tensor,
        make: Callable[..., Affine],
        given: Sequence[Tensor],
        then: Callable[[Tensor], Tensor] = itself,
    ) -> tuple[Tensor, ...]:
        """Products of x [..., D] with weights [D, d], each with its bias: [..., d] each."""
        tokens, shape = x.flatten(0, -2), x.shape[:-1]
        if self.merged.apart(x, given):
            pairs = zip(*make(*given), strict=True)
            found = [tokens @ w if b is None else torch.addmm(b, tokens, w) for w, b in pairs]
            return tuple(then(one).view(*shape, one.shape[1]) for one in found)
        weight, bias = self.merged.of(JOINED[make], *given)
        product, width = then(torch.addmm(bias, tokens, weight)), given[0].shape[1]
        return product.view(*shape, product.shape[1] // width, width).unbind(-2)

    def block(self, h: Tensor, prefix: str, pairs: Pairs) -> Tensor:
        """DiSA in one direction with its fusion gate: [B, N, d] -> [B, R, d]."""
        given = self.read_weights(prefix)
        dependent, head, gate = self._products(h, reads, given)  # [B, N, d]
        a = self.attend(h, dependent, head, pairs)  # [B, R, d]
        if pairs.rows is not None:
            h, gate = h[:, pairs.rows], gate[:, pairs.rows]
        weight = self.weight(prefix, "fa_w")
        gate = torch.addmm(gate.flatten(0, 1), a.flatten(0, 1), weight).sigmoid_()
        gate = in_dtype(gate.view(a.shape), h.dtype)  # autocast leaves it narrower
        return torch.lerp(a, h, gate)  # gate * h + (1 - gate) * a


@layer_of("disa")
class DisaLayer(DirectedBlocks):
    """Directional self-attention in one direction or both, see `DirectedBlocks`.

    Parameters
    ----------
    d_in, d_out : int
    direction : {"both", "forward", "backward", "diagonal"}
    activation : {"relu", "elu", "selu"}
        f of h = f(x map_w + map_b).
    tanh_scale : float
        c of e = c tanh(. / c).
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        direction: str = "both",
        activation: str = "elu",
        tanh_scale: float = 5.0,
    ) -> None:
        super().__init__(
            d_in, d_out, direction=direction, activation=activation, tanh_scale=tanh_scale
        )

    def add_weights(self, prefix: str, d_in: int, d: int) -> None:
        """The map, four matrices and five biases."""
        self.register_parameter(f"{prefix}map_w", glorot(d_in, d))
        for name in MATRICES:
            self.register_parameter(prefix + name, glorot(d, d))
        for name in BIASES:
            self.register_parameter(prefix + name, zero_bias(d))

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """The layer at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, d_out]."""
        check_input(x, mask, self.d_in)
        out = self.side_by_side(zero_at_padding(x, mask), partial(Pairs, keys=mask, rows=rows))
        return zero_at_padding(out, mask if mask is None or rows is None else mask[:, rows])

    def side_by_side(self, x: Tensor, pairs: Callable[[HeadMask], Pairs]) -> Tensor:
        """All blocks, the pairs of each by its direction: [B, N, D] -> [B, R, d_out]."""
        found = [
            self.block(h, prefix, pairs(direction))
            for h, (prefix, direction) in zip(self.mapped(x), self.blocks, strict=True)
        ]
        return torch.cat(found, dim=-1)

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
            h = self.activation(x @ self.weight(prefix, "map_w") + self.weight(prefix, "map_b"))
            key = h @ self.weight(prefix, "dep_w")
            query = h @ self.weight(prefix, "head_w") + self.weight(prefix, "f_b")
            sums = key[:, None] + query[:, :, None]  # [B, N, N, d]
            e = self.tanh_scale * torch.tanh(sums / self.tanh_scale)
            pairs = allowed((direction,), x.shape[1], x.device)[0]
            pairs = pairs & queries[:, :, None] & keys[:, None]
            found.append(masked_softmax(e, pairs[..., None], dim=2).mean(-1))
        return torch.stack(found)


class PlainDisa(DisaLayer):
    """`DisaLayer` with an explicit softmax; memory B * R * N * d_out, several times."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """MTSA eq. 6, the softmax over j, and the weighted sum."""
        return plain_attend(h, dependent, head, pairs, self.tanh_scale)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)


def plain_attend(h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs, c: float) -> Tensor:
    """`DirectedBlocks.attend` step by step."""
    if pairs.rows is not None:
        head = head[:, pairs.rows]  # [B, R, d]
    e = c * torch.tanh((dependent[:, None] + head[:, :, None]) / c)  # [B, R, N, d]
    p = masked_softmax(e, pairs.open(h.shape[1], h.device)[..., None], dim=2)  # [B, R, N, d]
    return (p * h[:, None]).sum(2)


LARGEST_SAFE_SCALE = 20.0
"""|e| <= c: up to this c sums of exp(e) neither overflow nor underflow, no maximum is needed.

Subtracting one would cost a pass, and a rounding error in every exponent.
"""


def exponentials(sums: Tensor, c: float, closed: Tensor, keys: int) -> Tensor:
    """exp(c tanh(sums)), 0 where a pair is closed; beyond `LARGEST_SAFE_SCALE` less a maximum.

    Parameters
    ----------
    sums : Tensor
        (dep_j + head_i) / c; written over.
    c : float
    closed : Tensor of bool, broadcastable to sums
    keys : int
        Axis of the keys.
    """
    # In place but for one: only tanh and exp keep their results for the gradient.
    e = (sums.tanh_() * c).masked_fill_(closed, -math.inf)
    if c > LARGEST_SAFE_SCALE:
        highest = e.detach().amax(keys, keepdim=True)
        e.sub_(highest.masked_fill_(highest == -math.inf, 0))  # -inf - -inf would be NaN
    return e.exp_()


def broadcast_attend(h: Tensor, dependent: Tensor, head: Tensor, pairs: Tensor, c: float) -> Tensor:
    """Numerator and denominator are one product, ``exp(e) [h | 1]``, per feature.

    Parameters
    ----------
    h, dependent : Tensor, shape [B, N, d]
    head : Tensor, shape [B, R, d]
    pairs : Tensor of bool, shape [B or 1, R, N]
    c : float

    Returns
    -------
    Tensor, shape [B, R, d]
    """
    with torch.autocast(h.device.type, enabled=False):
        dtype = core_dtype(h.dtype)
        # Contiguous, or the tensors over N x N would inherit the order of axes and be copied.
        values, keys, queries = (t.to(dtype).mT.contiguous() for t in (h, dependent, head))
        sums = (keys / c)[:, :, None, :] + (queries / c)[..., None]  # [B, d, R, N]
        e = exponentials(sums, c, ~pairs[:, None], keys=-1)
        columns = torch.stack([values, torch.ones_like(values)], dim=-1)  # [B, d, N, 2]
        numerator, denominator = (e @ columns).unbind(-1)  # [B, d, R]
        closed = ~pairs.any(-1)[:, None]  # [B or 1, 1, R]
        return (numerator / denominator.masked_fill(closed, 1)).mT.to(h.dtype)


class BroadcastDisa(DisaLayer):
    """`DisaLayer` with the unnormalised weights in one tensor; memory B * N * N * d_out, twice."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """See `broadcast_attend`."""
        refuse_rows(pairs.rows)
        open_ = pairs.open(h.shape[1], h.device)
        return broadcast_attend(h, dependent, head, open_, self.tanh_scale)
