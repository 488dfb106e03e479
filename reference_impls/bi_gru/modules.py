"""Bidirectional GRU: the weights for both places of the reset gate, an explicit loop, fast ones.

The fast ones have all input products in front of the loop, or are torch's own kernel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from reference_impls.checks import (
    PicksRows,
    check_input,
    glorot,
    layer_of,
    lengths_of,
    one_of,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption

RESETS = ("after", "before")
DIRECTIONS = ("fw", "bw")


class BothWays(nn.Module):
    """A recurrent layer of two directions of width ``hidden`` each, reading tokens of ``d_in``."""

    d_in: int
    hidden: int

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """States of both directions, [B, N, 2*h], of x zero at padding; anything finite there."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        return zero_at_padding(self.both_ways(zero_at_padding(x, mask), mask), mask)


@layer_of("bi_gru")
class BiGruLayer(BothWays):
    """A forward and a backward GRU of width d_out / 2 each.

    With r, u = sigmoid([x ; h] gates_w + gates_b) a step is h' = u h + (1 - u) c, and

    - ``before`` (Cho et al. 2014, eq. 8; TensorFlow): c = tanh([x ; r h] cand_w + cand_b),
    - ``after`` (torch, cuDNN): c = tanh(x w_x + cand_b + r (h w_h + cand_hb)), where w_x and w_h
      are the rows of cand_w for x and for h.

    Parameters
    ----------
    d_in, d_out : int
    reset : {"after", "before"}
        Whether the reset gate acts after or before the product with the state's weights.

    Raises
    ------
    BadOption
        If d_out is odd, or for an option that does not exist.
    """

    def __init__(self, d_in: int, d_out: int, *, reset: str = "after") -> None:
        super().__init__()
        self.d_in = d_in
        self.reset = one_of("reset", reset, RESETS)
        h = self.hidden = width_per_part(d_out, 2, "directions")
        for name in DIRECTIONS:
            self.register_parameter(f"{name}_gates_w", glorot(d_in + h, 2 * h))
            # Towards keeping the state at first, as TensorFlow's cell begins.
            self.register_parameter(f"{name}_gates_b", nn.Parameter(zero_bias(2 * h) + 1))
            self.register_parameter(f"{name}_cand_w", glorot(d_in + h, h))
            self.register_parameter(f"{name}_cand_b", zero_bias(h))
            if reset == "after":
                self.register_parameter(f"{name}_cand_hb", zero_bias(h))

    def weights(self, direction: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """gates_w, gates_b, cand_w, cand_b, cand_hb (None for ``before``) of ``fw`` or ``bw``."""
        w = {
            n: weight_of(self, f"{direction}_{n}")
            for n in ("gates_w", "gates_b", "cand_w", "cand_b")
        }
        after = weight_of(self, f"{direction}_cand_hb") if self.reset == "after" else None
        return w["gates_w"], w["gates_b"], w["cand_w"], w["cand_b"], after


class PlainBiGru(PicksRows, BiGruLayer):
    """`BiGruLayer` one step at a time; the state stays zero until the first real token."""

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The step as printed."""
        return torch.cat([self._one_way(x, mask, name) for name in DIRECTIONS], dim=-1)

    def _one_way(self, x: Tensor, mask: Tensor | None, direction: str) -> Tensor:
        gates_w, gates_b, cand_w, cand_b, cand_hb = self.weights(direction)
        h = x.new_zeros(x.shape[0], self.hidden)  # [B, h]
        steps = range(x.shape[1])
        states = {}
        for t in steps if direction == "fw" else reversed(steps):
            gates = torch.sigmoid(torch.cat([x[:, t], h], dim=-1) @ gates_w + gates_b)
            r, u = gates.chunk(2, dim=-1)  # [B, h] each
            if cand_hb is None:
                c = torch.tanh(torch.cat([x[:, t], r * h], dim=-1) @ cand_w + cand_b)
            else:
                from_x = x[:, t] @ cand_w[: self.d_in] + cand_b
                c = torch.tanh(from_x + r * (h @ cand_w[self.d_in :] + cand_hb))
            new = u * h + (1 - u) * c
            h = new if mask is None else torch.where(mask[:, t, None], new, h)
            states[t] = h
        return torch.stack([states[t] for t in steps], dim=1)  # [B, N, h]


class BatchedBiGru(BiGruLayer):
    """Both directions in one loop: the inputs' part of all steps in one product before it."""

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The backward direction reads the sequence mirrored; padding then comes first."""
        d, h = self.d_in, self.hidden
        parts = [self.weights(name) for name in DIRECTIONS]
        from_x = torch.cat([torch.cat([p[0][:d], p[2][:d]], dim=1) for p in parts], dim=1)
        bias = torch.cat([torch.cat([p[1], p[3]]) for p in parts])
        inputs = (x @ from_x + bias).unflatten(-1, (2, 3 * h))  # [B, N, 2, 3*h]
        inputs = torch.stack([inputs[:, :, 0], inputs[:, :, 1].flip(1)])  # [2, B, N, 3*h]
        gates_w = torch.stack([p[0][d:] for p in parts])  # [2, h, 2*h]
        cand_w = torch.stack([p[2][d:] for p in parts])  # [2, h, h]
        after = [p[4] for p in parts if p[4] is not None]
        cand_hb = torch.stack(after)[:, None] if after else None  # [2, 1, h]
        if cand_hb is not None:  # one product per step gives gates and candidate
            gates_w = torch.cat([gates_w, cand_w], dim=2)  # [2, h, 3*h]
        real = None
        if mask is not None:
            real = torch.stack([mask, mask.flip(1)])[..., None]  # [2, B, N, 1]
        state = x.new_zeros(2, x.shape[0], h)
        states = []
        for t in range(x.shape[1]):
            ahead = inputs[:, :, t]  # [2, B, 3*h]
            products = torch.bmm(state, gates_w)
            r, u = torch.sigmoid(ahead[..., : 2 * h] + products[..., : 2 * h]).chunk(2, dim=-1)
            if cand_hb is None:
                from_state = torch.bmm(r * state, cand_w)
            else:
                from_state = r * (products[..., 2 * h :] + cand_hb)
            c = torch.tanh(ahead[..., 2 * h :] + from_state)
            new = c + u * (state - c)
            state = new if real is None else torch.where(real[:, :, t], new, state)
            states.append(state)
        forward, backward = torch.stack(states, dim=2).unbind(0)  # [B, N, h] each
        return torch.cat([forward, backward.flip(1)], dim=-1)


class PackedBiGru(BiGruLayer):
    """`torch.nn.GRU`'s kernel (reset after the product), packed where there is padding.

    Raises
    ------
    BadOption
        For reset="before", which that kernel can't do.
    """

    def __init__(self, d_in: int, d_out: int, **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        if self.reset != "after":
            raise BadOption("reset='before', but torch's GRU resets after; take bi_gru.batched")

    def _torch_weights(self) -> list[Tensor]:
        """Weights in torch's layout: (reset, update, candidate), for inputs and for the state."""
        d, out = self.d_in, []
        for name in DIRECTIONS:
            gates_w, gates_b, cand_w, cand_b, cand_hb = self.weights(name)
            assert cand_hb is not None
            every = torch.cat([gates_w, cand_w], dim=1)  # [D + h, 3*h]
            state_bias = torch.cat([torch.zeros_like(gates_b), cand_hb])
            out += [every[:d].T.contiguous(), every[d:].T.contiguous()]
            out += [torch.cat([gates_b, cand_b]), state_bias]
        return out

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Packing makes the backward direction start at the last real token.

        Raises
        ------
        ValueError
            If padding is not on the right.
        """
        start = x.new_zeros(2, x.shape[0], self.hidden)
        weights = self._torch_weights()
        if mask is None or not len(x):  # a batch of no samples can't be packed
            return torch.gru(x, start, weights, True, 1, 0.0, self.training, True, True)[0]
        lengths = lengths_of(mask)
        # A packed sequence can't be empty: a sample without a real token is given one, zeros.
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        found, _ = torch.gru(
            packed.data, packed.batch_sizes, start, weights, True, 1, 0.0, self.training, True
        )
        again = PackedSequence(
            found, packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        return pad_packed_sequence(again, batch_first=True, total_length=x.shape[1])[0]
