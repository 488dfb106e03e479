"""Bi-BloSA: cutting into blocks and joining them again, weights, summaries, fusion, two attentions.

The plain one writes every softmax out, masked; the fast one has unnormalised weights: two tensors
over the pairs inside a block, and one division.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from reference_impls.biblosa.rule import block_length, most_blocks
from reference_impls.checks import (
    PicksRows,
    check_input,
    core_dtype,
    glorot,
    layer_of,
    masked_softmax,
    one_of,
    positive_int,
    zero_at_padding,
    zero_bias,
)
from reference_impls.disa.fused import ByKernel
from reference_impls.disa.modules import DirectedBlocks, Pairs, exponentials, plain_attend
from reference_impls.masks import HeadMask
from reference_impls.mechanism import BadOption
from reference_impls.source2token.modules import closed_at_padding


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


FORMS = ("paper", "released")


@layer_of("biblosa")
class BiblosaLayer(DirectedBlocks):
    """Masked attention inside blocks and between them; its directions are `DirectedBlocks`.

    Parameters
    ----------
    d_in, d_out : int
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
    """

    directions = ("both", "forward", "backward")

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
    ) -> None:
        super().__init__(
            d_in, d_out, direction=direction, activation=activation, tanh_scale=tanh_scale
        )
        self.block_len = None if block_len is None else positive_int("block_len", block_len)
        if isinstance(extra, bool) or not isinstance(extra, int) or extra < 0:
            raise BadOption(f"extra={extra!r}; expected an integer of at least 0")
        self.extra = extra
        self.form = one_of("form", form, FORMS)

    def add_weights(self, prefix: str, d_in: int, d: int) -> None:
        """Of one direction; those of the DiSA between the blocks have ``blk_`` in their names."""
        shapes = {"map_w": (d_in, d), "dh_w": (d, 2 * d), "s2t_w": (d, d), "comb_w": (3 * d, 2 * d)}
        shapes |= {f"blk_{name}_w": (d, d) for name in ("map", "dep", "head", "fi", "fa")}
        biases = {"map_b": d, "f_b": d, "s2t_b": d, "comb_b": 2 * d}
        biases |= {f"blk_{name}_b": d for name in ("map", "f", "fi", "fa", "o")}
        for name, shape in shapes.items():
            self.register_parameter(prefix + name, glorot(*shape))
        for name, size in biases.items():
            self.register_parameter(prefix + name, zero_bias(size))

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
        done = [
            self._one_way(h, layout, *block)
            for h, block in zip(self.mapped(layout.cut(x)), self.blocks, strict=True)
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
        by_token, by_attended, by_block = self.weight(prefix, "comb_w").split(d)  # [d, 2*d] each
        weight = torch.cat([self.weight(prefix, "dh_w"), by_token], dim=1)
        dependent, head, fused = (h @ weight).split((d, d, 2 * d), dim=-1)
        head = head + self.weight(prefix, "f_b")
        # The blocks are samples of their own: no tensor over all pairs of tokens.
        values, keys, queries = (t.flatten(0, 1) for t in (h, dependent, head))  # [B*M, R, d]
        a = self.attend(values, keys, queries, Pairs(direction, layout.real.flatten(0, 1)))
        a = a.unflatten(0, shape)  # [B, M, R, d]
        z = a @ self.weight(prefix, "s2t_w") + self.weight(prefix, "s2t_b")
        o = self.summarise(a, z, layout.real)  # [B, M, d]
        blk = prefix + "blk_"
        h_o = self.activation(o @ self.weight(blk, "map_w") + self.weight(blk, "map_b"))
        g = self.block(h_o, blk, Pairs(direction, layout.present))  # [B, M, d]
        # [h ; a ; g] comb_w; the part of g is the same for all tokens of a block.
        context = g @ by_block + self.weight(prefix, "comb_b")  # [B, M, 2*d]
        fused = fused + a @ by_attended + context[:, :, None]
        candidate, gate = fused.chunk(2, dim=-1)
        gate = torch.sigmoid(gate)
        return gate * self.activation(candidate) + (1 - gate) * h


class PlainBiblosa(PicksRows, BiblosaLayer):
    """`BiblosaLayer` with explicit softmaxes; memory B * d_out * (N*r + m*m), several times."""

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """The scores, the softmax over j, and the weighted sum."""
        return plain_attend(h, dependent, head, pairs, self.tanh_scale)

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """The softmax over a block's real tokens, and the weighted sum."""
        return (masked_softmax(z, real[..., None], dim=2) * a).sum(2)


class FoldedBiblosa(BiblosaLayer):
    """`BiblosaLayer` without a maximum per query; memory B * d_out * (N*r + m*m), twice.

    Features stay last: blocks are so short that the copies, and the very small products, of a
    layout with features first (that of DiSA) would cost more than its pass over the pairs saves.
    """

    def attend(self, h: Tensor, dependent: Tensor, head: Tensor, pairs: Pairs) -> Tensor:
        """Numerator and denominator as sums of exp(e), divided at the end."""
        with torch.autocast(h.device.type, enabled=False):
            dtype, c = core_dtype(h.dtype), self.tanh_scale
            values, keys, queries = h.to(dtype), dependent.to(dtype) / c, head.to(dtype) / c
            open_ = pairs.open(h.shape[1], h.device)  # [G or 1, L, L]
            sums = keys[:, None] + queries[:, :, None]  # [G, L, L, d]
            e = exponentials(sums, c, ~open_[..., None], keys=2)
            numerator, denominator = (e * values[:, None]).sum(2), e.sum(2)  # [G, L, d]
            closed = ~open_.any(-1)[..., None]  # [G or 1, L, 1]
            return (numerator / denominator.masked_fill(closed, 1)).to(h.dtype)

    def summarise(self, a: Tensor, z: Tensor, real: Tensor) -> Tensor:
        """By torch's fused softmax."""
        return (closed_at_padding(z, real).softmax(2) * a).sum(2)


class FusedBiblosa(ByKernel, FoldedBiblosa):
    """`BiblosaLayer` by DiSA's native kernel, inside blocks and between them, else as folded."""
