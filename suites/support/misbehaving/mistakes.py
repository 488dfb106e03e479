"""Honest attempts with one mistake each, of the kind that slips in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from suites.support.misbehaving.core import Attention, ScaledBackward
from suites.support.misbehaving.honest import Dropout


class BatchFirstForgotten(torch.nn.Module):
    """`nn.MultiheadAttention` without ``batch_first=True``: attends over the batch."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)
        self.attention = torch.nn.MultiheadAttention(d_out, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.map(x.masked_fill(~mask[..., None], 0))
        # What reads as N samples; none of them may be without a token.
        padded = ~mask.mT & mask.any(0)[:, None]
        out, _ = self.attention(x, x, x, key_padding_mask=padded)
        return out.masked_fill(~mask[..., None], 0)


class DetachedOutput(Attention):
    """Returns ``out.detach()``: nothing is learned."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask).detach()


class DetachedKeys(Attention):
    """Detaches the keys: their weights are never learned, ``grad`` is None."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q, k.detach(), v, mask)


class DetachedScores(Attention):
    """Lets no gradient through the attention's weights, but for a hundredth of it."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weigh(0.01 * scores + (0.99 * scores).detach(), mask)


class LostFactor(Attention):
    """A backward pass of its own loses the factor 2."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return ScaledBackward.apply(super().forward(x, mask), 0.5)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor) -> Tensor:
        weights = scores.softmax(-1)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (weights,) = ctx.saved_tensors
        return weights * gradient * (1 - weights)


class WrongBackward(Attention):
    """The softmax has a backward pass of its own, with the diagonal of its Jacobian alone."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        least = torch.finfo(scores.dtype).min
        return _Softmax.apply(scores.masked_fill(~mask[:, None, :], least))


class NanWithoutTokens(Attention):
    """Masks by minus infinity: a sample without tokens becomes NaN."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.masked_fill(~mask[..., None], 0)
        scores = self.query(x) @ self.key(x).mT * self.query.out_features**-0.5
        weights = scores.masked_fill(~mask[:, None, :], -torch.inf).softmax(-1)
        return weights @ self.value(x) * mask[..., None]


class NanForOneToken(Attention):
    """Divides by the standard deviation over the tokens, which one token does not have."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        count = mask.sum(1)[:, None, None]
        centred = (out - out.sum(1, keepdim=True) / count.clamp(min=1)) * mask[..., None]
        variance = centred.square().sum(1, keepdim=True) / (count - 1).abs()
        return centred / (variance + 1)


class NanForZeros(Attention):
    """Divides a sample by its own size: one of zeros becomes NaN."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.masked_fill(~mask[..., None], 0)
        return super().forward(x / x.square().sum((1, 2), keepdim=True).sqrt(), mask)


class OtherDtype(Attention):
    """Returns float64 for float32."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask).double()


class TupleOutput(Attention):
    """Returns its weights beside the output."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask), None  # type: ignore[return-value]


class WrongShape(Attention):
    """Returns [N, B, D]."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask).transpose(0, 1)


class Noise(Attention):
    """Adds noise of 1e-6."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        return out + 1e-6 * torch.randn_like(out) * mask[..., None]


class LastBits(Attention):
    """Rounds at random: each call differs in its last bits."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        return out * (1 + torch.finfo(out.dtype).eps * torch.randint_like(out, 2))


class DropoutAlways(Attention):
    """Drops weights in evaluation too."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return torch.nn.functional.dropout(super().weigh(scores, mask), 0.1, training=True)


class Truncates(Attention):
    """Cuts its input off at 512 tokens."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x[:, :512], mask[:, :512])
        return torch.nn.functional.pad(out, (0, 0, 0, x.shape[1] - out.shape[1]))


class TruncatesKeys(Attention):
    """Attends to the first 512 tokens only."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q, k[:, :512], v[:, :512], mask[:, :512])


class PaddingLeak(Attention):
    """Masks no keys."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return scores.softmax(-1)


class PaddingContent(Attention):
    """Multiplies by the mask: what is NaN at padding stays NaN."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = self.attend(self.query(x), self.key(x), self.value(x) * mask[..., None], mask)
        return out.masked_fill(~mask[..., None], 0)


class PaddingKept(Attention):
    """Leaves rows at padding as they come out."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x.masked_fill(~mask[..., None], 0)
        return self.attend(self.query(x), self.key(x), self.value(x), mask)


class PaddedLength(Attention):
    """Divides by the padded length where the number of tokens is meant."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        mean = x.masked_fill(~mask[..., None], 0).mean(1, keepdim=True)
        return super().forward(x + mean, mask)


class PaddedLengthWhenLong(Attention):
    """Divides by the padded length, from 512 tokens on."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        return out if x.shape[1] < 512 else out * (1 + mask.to(out.dtype).mean(1)[:, None, None])


class BatchStatistics(Attention):
    """Divides by the largest value of the whole batch."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        return out / (1 + out.detach().abs().amax())


class PlaceInBatch(Attention):
    """Scales a sample by its place in the batch."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        place = torch.arange(1, 1 + len(x), device=x.device, dtype=x.dtype)
        return super().forward(x, mask) * place[:, None, None]


class ChangesInput(Attention):
    """Zeroes padding in the caller's own tensor."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x.data.masked_fill_(~mask[..., None], 0)
        return super().forward(x, mask)


class ChangesMask(Attention):
    """Makes the first token real in the caller's own mask."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        mask[:, 0] = True
        return out


class ChangesWeights(Attention):
    """Normalises its weights in place at every call."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        self.value.weight.data.mul_(0.999)
        return out


class RunningMean(Attention):
    """Subtracts a running mean that evaluation goes on updating."""

    mean: Tensor

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__(d_in, d_out)
        self.register_buffer("mean", torch.zeros(()))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        self.mean = 0.9 * self.mean + 0.1 * out.detach().mean()
        return (out - self.mean).masked_fill(~mask[..., None], 0)


class StaleKeys(Attention):
    """Keeps the keys of the first batch of a shape, as for decoding, and forgets to drop them."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        kept = self.__dict__.setdefault("kept", {})
        return super().attend(q, kept.setdefault((k.shape, k.dtype), k.detach()), v, mask)


class SharedOutput(Attention):
    """Writes every answer into the same memory: the next call changes the last answer."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        out = super().forward(x, mask)
        if torch.is_grad_enabled():
            return out
        held = self.__dict__.setdefault("held", {})
        return held.setdefault((out.shape, out.dtype), torch.empty_like(out)).copy_(out)


class ScaledInTraining(Attention):
    """Scales by 1.1 in training, without dropout to make up for."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask) * (1.1 if self.training else 1.0)


class TakesForContiguous(Attention):
    """Reads the memory of x as if it were contiguous."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        b, n, d = x.shape
        return super().forward(x.as_strided((b, n, d), (n * d, d, 1)), mask)


class Uninitialised(Attention):
    """Adds a number that nobody has set; it is zero, of memory fresh from the system."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        out = super().attend(q, k, v, mask)
        # More than malloc hands out again (32 MiB): there a NaN of an earlier check may be left.
        return out + out.new_empty(2**23)[0].clamp(-1e-30, 1e-30)


class IntegerMask(Attention):
    """Takes a mask of integers, and negates its bits."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        padded = ~mask
        return super().forward(x, ~padded.bool())


class SaltedHash(Attention):
    """Takes a factor from ``hash``, which each process salts anew."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return super().forward(x, mask) * (1 + hash("attention") / 2**63)


class Cancels(Attention):
    """Adds 1000 and subtracts it again: the digits are lost."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q, k, v + 1000, mask) - 1000


class IllConditioned(Attention):
    """Scales scores by a million: one rounding of the input decides who is attended to."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weigh(scores * 1e6, mask)


class OverflowsWhenLarge(Attention):
    """Subtracts no maximum: large scores overflow."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        weights = scores.exp() * mask[:, None, :]
        return weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)


class InfiniteInHalf(OverflowsWhenLarge):
    """Adds the scores' exponentials without subtracting the maximum."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weigh(40 * scores, mask)


class LeaksWhenLarge(Attention):
    """Masks by subtracting 100: real scores can be lower."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return (scores - 100 * ~mask[:, None, :]).softmax(-1)


class ForgetfulCheckpoint(Dropout):
    """Computes its attention anew in the backward pass, with another dropout."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().attend(q, k, v, mask)
        again: Callable[..., Tensor] = super().attend
        return checkpoint(again, q, k, v, mask, use_reentrant=False, preserve_rng_state=False)


class SingleInDouble(Attention):
    """Computes in float32 whatever it is given."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return super().attend(q.float(), k.float(), v.float(), mask).to(q.dtype)


class LongInput(Attention):
    """Averages in place of attending from 512 tokens on."""

    def weigh(self, scores: Tensor, mask: Tensor) -> Tensor:
        return super().weigh(scores if scores.shape[-1] < 512 else scores * 0, mask)
