"""Modules that look suspicious, and must pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from suites.support.misbehaving.core import Attention


@lru_cache
def _distances(n: int, device: torch.device) -> Tensor:
    places = torch.arange(n, device=device)
    return (places[:, None] - places[None, :]).abs()  # [N, N]


class TablesByShape(Attention):
    """Keeps a table of distances for every length that it has met."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        far = _distances(scores.shape[-1], scores.device)
        return super().weigh(scores - 0.1 * far.to(scores.dtype), mask)


class LazyBuffers(Attention):
    """Makes and lengthens a buffer of positions in the call that needs it."""

    places: Tensor | None

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.register_buffer("places", None, persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if self.places is None or len(self.places) < x.shape[1]:
            self.places = torch.arange(x.shape[1], device=x.device, dtype=torch.float64).sin()
        return super().forward(x + self.places[: x.shape[1], None].to(x.dtype), mask)


class LazyLayer(torch.nn.Module):
    """Learns its width from the first input (`torch.nn.LazyLinear`)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.inner = Attention(d_in, d_out)
        self.map: torch.nn.Module = torch.nn.LazyLinear(d_out)
        self.map(torch.zeros(1, d_out))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.map(self.inner(x, mask)).masked_fill(~mask[..., None], 0)


class Dropout(Attention):
    """Drops weights in training, by `torch.nn.Dropout`, and none in evaluation."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.drop = torch.nn.Dropout(0.1)

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return self.drop(super().weigh(scores, mask))


class OwnMemoryInPlace(Attention):
    """Masks and adds in place, in tensors that it made itself."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.clone().masked_fill_(~mask[..., None], 0)
        out = self.attend(self.query(x), self.key(x), self.value(x), mask)
        return out.add_(self.value(x)).masked_fill_(~mask[..., None], 0)


class Scratch(Attention):
    """Computes scores into memory that it keeps; what it returns is never there."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return super().weigh(scores, mask)
        kept = self.__dict__.setdefault("scratch", {})
        # What is made under inference_mode can't be written to elsewhere.
        key = scores.shape, scores.dtype, torch.is_inference_mode_enabled()
        place = kept.setdefault(key, torch.empty_like(scores))
        return super().weigh(place.copy_(scores), mask)


class StraightThrough(Attention):
    """Rounds values, and declares that their gradient goes straight through."""

    attnbench_declares = ("straight-through",)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q, k, v + (torch.round(4 * v) / 4 - v).detach(), mask)


class StopGradient(Attention):
    """Shows its scores the keys without their gradient, and declares it."""

    attnbench_declares = ("stop-gradient",)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q, k.detach(), v, mask)


class Checkpointed(Attention):
    """Computes the attention anew in the backward pass."""

    reentrant = False

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().attend(q, k, v, mask)
        again: Callable[..., Tensor] = super().attend
        return checkpoint(again, q, k, v, mask, use_reentrant=self.reentrant)


class CheckpointedReentrant(Checkpointed):
    """The same in the older way, which knows of no ``torch.autograd.grad``."""

    reentrant = True


class Compiled(Attention):
    """Compiles its attention itself (by a backend that generates no code)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.compiled = torch.compile(super().attend, backend="eager", dynamic=True)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.compiled(q, k, v, mask)


def _attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    return scores.masked_fill(~mask.unsqueeze(1), -1e4).softmax(-1) @ v


class Scripted(Attention):
    """Its attention is TorchScript."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return torch.jit.script(_attend)(q, k, v, mask)


class Recurrent(torch.nn.Module):
    """A GRU over packed sequences, longest first."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(d_in, d_out, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.masked_fill(~mask[..., None], 0)
        lengths = mask.sum(1).clamp(min=1).cpu()
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, True, enforce_sorted=False)
        out, _ = self.gru(packed)
        padded, _ = torch.nn.utils.rnn.pad_packed_sequence(out, True, total_length=x.shape[1])
        return padded.masked_fill(~mask[..., None], 0)


class EncoderLayer(torch.nn.Module):
    """`torch.nn.TransformerEncoderLayer`: without gradients it takes another way, all in one."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)
        self.layer = torch.nn.TransformerEncoderLayer(d_out, 4, 2 * d_out, batch_first=True)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.map(x.masked_fill(~mask[..., None], 0))
        padded = ~mask & mask.any(1, keepdim=True)  # none without a token
        return self.layer(x, src_key_padding_mask=padded).masked_fill(~mask[..., None], 0)


class PackedTokens(Attention):
    """Puts the tokens of all samples into one row, and lets none see another sample's."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mask = mask.bool()
        of = torch.arange(len(x), device=x.device)[:, None].expand(mask.shape)[mask]
        q, k, v = (part(x[mask]) for part in (self.query, self.key, self.value))
        scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(of[:, None] != of, -torch.inf)
        out = x.new_zeros(*mask.shape, v.shape[-1])
        return out.masked_scatter(mask[..., None], scores.softmax(-1) @ v)


class SoftmaxInSingle(Attention):
    """Computes its softmax in float32 where it is given less."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        wide = torch.promote_types(scores.dtype, torch.float32)
        return super().weigh(scores.to(wide), mask).to(scores.dtype)


class OwnDropout(Attention):
    """Drops whole rows of scores by a dropout of its own, which it declares."""

    attnbench_declares = ("dropout",)

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        kept = torch.rand_like(scores[..., :1]) > 0.1 if self.training else 1
        return super().weigh(scores, mask) * kept


class FrozenFeatures(Attention):
    """Maps its input by random numbers that are not trained."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.query.requires_grad_(False)


class Seeded(Attention):
    """Draws random features in its constructor, from a generator of its own."""

    features: Tensor

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        generator = torch.Generator().manual_seed(7)
        self.register_buffer("features", torch.randn(d_out, d_out, generator=generator))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q @ self.features, k, v, mask)
