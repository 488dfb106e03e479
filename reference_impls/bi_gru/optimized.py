"""Bidirectional GRU: all input products in front of the loop, or by torch's own kernel."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from reference_impls.bi_gru.layer import DIRECTIONS, BiGruLayer
from reference_impls.mechanism import BadOption


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
        host = mask.cpu()
        lengths, n = host.sum(1), x.shape[1]
        if not torch.equal(host, torch.arange(n) < lengths[:, None]):
            raise ValueError(
                "mask has a real token behind padding; expected padding on the right only, "
                "move it there"
            )
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
        return pad_packed_sequence(again, batch_first=True, total_length=n)[0]
