"""Bi-BloSA: cutting into blocks and joining them again, weights, summaries, fusion, two attentions.

The plain one writes every softmax out, masked; the fast one has unnormalised weights: two tensors
over the pairs inside a block, and one division.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from reference_impls.biblosa.rule import block_length, most_blocks
from reference_impls.checks import (
    activation_by_name,
    check_input,
    core_dtype,
    glorot,
    masked_softmax,
    one_of,
    positive_int,
    refuse_unknown,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.disa.modules import LARGEST_SAFE_SCALE
from reference_impls.masks import HeadMask, allowed, has_key, parse
from reference_impls.mechanism import BadOption


@dataclass(frozen=True)
class Layout:
    """Which token stands in which slot of M blocks of R slots.

    Attributes
    ----------
    real : Tensor of bool, shape [B, M, R]
        The slot holds a real token.
    present : Tensor of bool, shape [B, M], or None
        The sample has that block (None: all do); samples may differ in the number of theirs.
    slots : Tensor of int64, shape [B, N], or None
        Slot of each token, counted through all blocks (None: token t is in slot t).
    sources : Tensor of int64, shape [B, M * R], or None
        Token in each slot; any token, which must not matter, in a slot that is not real.
    """

    real: Tensor
    present: Tensor | None = None
    slots: Tensor | None = None
    sources: Tensor | None = None

    def cut(self, x: Tensor) -> Tensor:
        """[B, N, D] -> [B, M, R, D]."""
        blocks, length = self.real.shape[1:]
        if self.sources is None:
            x = pad(x, (0, 0, 0, blocks * length - x.shape[1]))
        else:
            x = x.gather(1, self.sources[..., None].expand(-1, -1, x.shape[2]))
        return x.unflatten(1, (blocks, length))

    def join(self, y: Tensor, n: int) -> Tensor:
        """[B, M, R, D] -> [B, n, D]; padded tokens get some finite vector."""
        y = y.flatten(1, 2)
        if self.slots is None:
            return y[:, :n]
        return y.gather(1, self.slots[..., None].expand(-1, -1, y.shape[2]))


def by_padded_length(
    shape: tuple[int, int],
    mask: Tensor | None,
    device: torch.device,
    block_len: int | None,
    extra: int,
) -> Layout:
    """Blocks of the padded sequence, padding included: cost of a reshape.

    Parameters
    ----------
    shape : tuple of int
        B and N.
    mask : Tensor of bool, shape [B, N], or None
    device : torch.device
    block_len : int or None
        None: `block_length` of N.
    extra : int
        Added to the rule, not to a given length.
    """
    batch, n = shape
    length = min(n, block_len or block_length(n, extra))  # slots behind n would never be filled
    blocks = -(-n // length)
    if mask is None:
        mask = torch.ones(shape, dtype=torch.bool, device=device)
    real = pad(mask, (0, blocks * length - n), value=False)
    return Layout(real.view(batch, blocks, length))


def by_real_length(mask: Tensor, block_len: int | None, extra: int) -> Layout:
    """Blocks of each sample's real tokens, their length from the number of these.

    M and R are what any sample of at most N tokens can need, so that no value is read on the host.

    Parameters
    ----------
    mask : Tensor of bool, shape [B, N]
    block_len, extra : as for `by_padded_length`
    """
    batch, n = mask.shape
    device = mask.device
    count = mask.sum(1, keepdim=True)  # [B, 1]
    if block_len is not None:
        lengths = torch.full_like(count, block_len)
        length, blocks = min(n, block_len), -(-n // block_len)
    else:
        # Smallest r with r^3 >= 2 count, as 1 + the number of r for which that is false.
        cubes = torch.arange(1, block_length(n) + 1, device=device) ** 3
        lengths = 1 + (cubes < 2 * count).sum(1, keepdim=True) + extra  # [B, 1]
        length, blocks = min(n, block_length(n, extra)), most_blocks(n, extra)
    rank = mask.cumsum(1) - 1  # [B, N]: number among the real tokens
    slots = rank // lengths * length + rank % lengths
    slots = slots.masked_fill(~mask, blocks * length)  # one slot more takes all padding
    tokens = torch.arange(n, device=device).expand(batch, n)
    sources = torch.full((batch, blocks * length + 1), -1, device=device).scatter(1, slots, tokens)
    sources = sources[:, :-1]
    real = (sources >= 0).view(batch, blocks, length)
    return Layout(real, real[..., 0], slots.masked_fill(~mask, 0), sources.clamp(min=0))


DIRECTIONS = ("both", "forward", "backward")
FORMS = ("paper", "released")
OPTIONS = ("block_len", "extra", "direction", "activation", "tanh_scale", "form")


class BiblosaLayer(nn.Module):
    """Masked attention inside blocks and between them, one direction or two untied ones.

    Parameters
    ----------
    d_in, d_out : int
        With both directions each has width d_out / 2, and its weights the prefix ``fw_`` or
        ``bw_``; the forward one comes first in the output.
    block_len : int or None
        Tokens of a block r; None: the smallest r with r^3 >= 2n.
    extra : int
        Added to the rule (the released main programs add 1); a given length stays as it is.
    direction : {"both", "forward", "backward"}
    activation : {"relu", "elu", "selu"}
        f of all three places.
    tanh_scale : float
        c of e = c tanh(. / c).
    form : {"paper", "released"}
        paper: n is the number of a sample's real tokens, which alone are cut into blocks; the
        amount of padding does not matter. released: n is the padded length N, and blocks of
        nothing but padding take part between the blocks, with o = 0.

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
        block_len: int | None = None,
        extra: int = 0,
        direction: str = "both",
        activation: str = "relu",
        tanh_scale: float = 5.0,
        form: str = "paper",
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown("biblosa", unknown, OPTIONS)
        self.d_in = d_in
        self.block_len = None if block_len is None else positive_int("block_len", block_len)
        if isinstance(extra, bool) or not isinstance(extra, int) or extra < 0:
            raise BadOption(f"extra={extra!r}; expected an integer of at least 0")
        self.extra = extra
        self.parts: tuple[tuple[str, HeadMask], ...] = ()
        if one_of("direction", direction, DIRECTIONS) == "both":
            width = width_per_part(d_out, 2, "directions")
            self.parts += (("fw_", parse("forward")), ("bw_", parse("backward")))
        else:
            width = d_out
            self.parts += (("", parse(direction)),)
        self.activation = activation_by_name(activation)
        if not (isinstance(tanh_scale, (int, float)) and 0 < tanh_scale < math.inf):
            raise BadOption(f"tanh_scale={tanh_scale!r}; expected a number above 0")
        self.tanh_scale = float(tanh_scale)
        self.form = one_of("form", form, FORMS)
        for prefix, _ in self.parts:
            self._add_weights(prefix, d_in, width)

    def _add_weights(self, prefix: str, d_in: int, d: int) -> None:
        shapes = {"map_w": (d_in, d), "dh_w": (d, 2 * d), "s2t_w": (d, d), "comb_w": (3 * d, 2 * d)}
        shapes |= {f"blk_{name}_w": (d, d) for name in ("map", "dep", "head", "fi", "fa")}
        biases = {"map_b": d, "f_b": d, "s2t_b": d, "comb_b": 2 * d}
        biases |= {f"blk_{name}_b": d for name in ("map", "f", "fi", "fa", "o")}
        for name, shape in shapes.items():
            self.register_parameter(prefix + name, glorot(*shape))
        for name, size in biases.items():
            self.register_parameter(prefix + name, zero_bias(size))

    def attend(
        self, h: Tensor, dependent: Tensor, head: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        """a_i = sum_j p_ij * h_j, p the softmax over allowed j of c tanh((dep_j + head_i) / c).

        Parameters
        ----------
        h, dependent, head : Tensor, shape [G, L, d]
            G groups that do not see each other; ``head`` holds the bias.
        direction : HeadMask
        real : Tensor of bool, shape [G, L], or None
            Keys that exist.

        Returns
        -------
        Tensor, shape [G, L, d]
            0 where a query has no allowed key.
        """
        raise NotImplementedError

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """Summary of each block, sum_i p_i * a_i, p the softmax of z over its real tokens.

        Parameters
        ----------
        a, z : Tensor, shape [B, M, R, d]
        real : Tensor of bool, shape [B, M, R]

        Returns
        -------
        Tensor, shape [B, M, d]
            0 for a block without a real token (where a = 0).
        """
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        layout = self._layout(x, mask)
        prefixes = [prefix for prefix, _ in self.parts]
        weight = torch.cat([self._weight(p, "map_w") for p in prefixes], dim=1)
        bias = torch.cat([self._weight(p, "map_b") for p in prefixes])
        mapped = self.activation(layout.cut(x) @ weight + bias)  # [B, M, R, d_out]
        done = [
            self._one_way(h, layout, *part)
            for h, part in zip(mapped.chunk(len(self.parts), dim=-1), self.parts, strict=True)
        ]
        return zero_at_padding(layout.join(torch.cat(done, dim=-1), x.shape[1]), mask)

    def _layout(self, x: Tensor, mask: Tensor | None) -> Layout:
        if self.form == "paper" and mask is not None:
            return by_real_length(mask, self.block_len, self.extra)
        shape = (x.shape[0], x.shape[1])
        return by_padded_length(shape, mask, x.device, self.block_len, self.extra)

    def _one_way(self, h: Tensor, layout: Layout, prefix: str, direction: HeadMask) -> Tensor:
        """One direction: [B, M, R, d] -> [B, M, R, d]."""
        shape, d = h.shape[:2], h.shape[-1]
        by_token, by_attended, by_block = self._weight(prefix, "comb_w").split(d)  # [d, 2*d] each
        weight = torch.cat([self._weight(prefix, "dh_w"), by_token], dim=1)
        dependent, head, fused = (h @ weight).split((d, d, 2 * d), dim=-1)
        head = head + self._weight(prefix, "f_b")
        # The blocks are samples of their own: no tensor over all pairs of tokens.
        values, keys, queries = (t.flatten(0, 1) for t in (h, dependent, head))  # [B*M, R, d]
        a = self.attend(values, keys, queries, direction, layout.real.flatten(0, 1))
        a = a.unflatten(0, shape)  # [B, M, R, d]
        z = a @ self._weight(prefix, "s2t_w") + self._weight(prefix, "s2t_b")
        o = self.summarise(a, z, layout.real)  # [B, M, d]
        g = self._between(o, layout.present, prefix + "blk_", direction)  # [B, M, d]
        # [h ; a ; g] comb_w; the part of g is the same for all tokens of a block.
        context = g @ by_block + self._weight(prefix, "comb_b")  # [B, M, 2*d]
        fused = fused + a @ by_attended + context[:, :, None]
        candidate, gate = fused.chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        return gate * self.activation(candidate) + (1 - gate) * h

    def _between(
        self, o: Tensor, present: Tensor | None, prefix: str, direction: HeadMask
    ) -> Tensor:
        """DiSA over the blocks' summaries: [B, M, d] -> [B, M, d]."""
        h = self.activation(o @ self._weight(prefix, "map_w") + self._weight(prefix, "map_b"))
        weight = torch.cat([self._weight(prefix, n) for n in ("dep_w", "head_w", "fi_w")], dim=1)
        dependent, head, gate = (h @ weight).chunk(3, dim=-1)
        a = self.attend(h, dependent, head + self._weight(prefix, "f_b"), direction, present)
        biases = sum(self._weight(prefix, n) for n in ("fi_b", "fa_b", "o_b"))
        gate = torch.sigmoid(gate + a @ self._weight(prefix, "fa_w") + biases)
        return gate * h + (1 - gate) * a

    def _weight(self, prefix: str, name: str) -> Tensor:
        return weight_of(self, prefix + name)


class PlainBiblosa(BiblosaLayer):
    """`BiblosaLayer` with explicit softmaxes; memory B * d_out * (N*r + m*m), several times."""

    def attend(
        self, h: Tensor, dependent: Tensor, head: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        """The scores, the softmax over j, and the weighted sum."""
        c = self.tanh_scale
        e = c * torch.tanh((dependent[:, None] + head[:, :, None]) / c)  # [G, L, L, d]
        pairs = allowed((direction,), h.shape[1], h.device)  # [1, L, L]
        if real is not None:
            pairs = pairs & real[:, None]  # [G, L, L]
        p = masked_softmax(e, pairs[..., None], dim=2)
        return (p * h[:, None]).sum(2)

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """The softmax over a block's real tokens, and the weighted sum."""
        return (masked_softmax(z, real[..., None], dim=2) * a).sum(2)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N.

        All positions are computed; ``rows`` picks.
        """
        out = super().forward(x, mask)
        return out if rows is None else out[:, rows]


class FoldedBiblosa(BiblosaLayer):
    """`BiblosaLayer` without a maximum per query; memory B * d_out * (N*r + m*m), twice.

    Features stay last: blocks are so short that the copies, and the very small products, of a
    layout with features first (that of DiSA) would cost more than its pass over the pairs saves.
    """

    def attend(
        self, h: Tensor, dependent: Tensor, head: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        """Numerator and denominator as sums of exp(e), divided at the end."""
        with torch.autocast(h.device.type, enabled=False):
            dtype = core_dtype(h.dtype)
            sums = self._sums(h.to(dtype), dependent.to(dtype), head.to(dtype), direction, real)
            return sums.to(h.dtype)

    def _sums(
        self, h: Tensor, keys: Tensor, queries: Tensor, direction: HeadMask, real: Tensor | None
    ) -> Tensor:
        length, c = h.shape[1], self.tanh_scale
        forbidden = ~allowed((direction,), length, h.device)  # [1, L, L]
        if real is not None:
            forbidden = forbidden | ~real[:, None]  # [G, L, L]
        t = ((keys / c)[:, None] + (queries / c)[:, :, None]).tanh_()  # [G, L, L, d]
        # In place from here: only tanh and exp keep their results for the gradient.
        e = (t * c).masked_fill_(forbidden[..., None], -math.inf)
        if c > LARGEST_SAFE_SCALE:
            highest = e.detach().amax(2, keepdim=True)
            e.sub_(highest.masked_fill_(highest == -math.inf, 0))  # -inf - -inf would be NaN
        weights = e.exp_()
        numerator, denominator = (weights * h[:, None]).sum(2), weights.sum(2)  # [G, L, d]
        closed = ~has_key((direction,), length, h.device, real)[0]  # [G or 1, L]
        return numerator / denominator.masked_fill(closed[..., None], 1)

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """By torch's fused softmax."""
        # In a block without a real token nothing is masked: a softmax over nothing is NaN, and a
        # is zero there, so that any weights give zero.
        padded = ~real & real.any(2, keepdim=True)  # [B, M, R]
        return (z.masked_fill(padded[..., None], -math.inf).softmax(2) * a).sum(2)
