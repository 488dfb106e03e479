"""Bi-BloSA around its attention: weights, blocks, summaries, fusion."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from reference_impls.biblosa.blocks import Layout, by_padded_length, by_real_length
from reference_impls.checks import (
    activation_by_name,
    check_input,
    glorot,
    one_of,
    positive_int,
    refuse_unknown,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.masks import HeadMask, parse
from reference_impls.mechanism import BadOption

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
