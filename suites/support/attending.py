"""Problems for the backends of `reference_impls.kernels`, and what their definition says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from harness.verify.budget import CAP, budget
from reference_impls.checks import masked_softmax
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.masks import HeadMask, parse_all
from suites.support.batches import cotangent_of, error

Attend: TypeAlias = Callable[[KernelCall], tuple[Tensor, Tensor]]
DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}
EXACT = 1e-12
CPU = torch.device("cpu")


def masks_of(*texts: str) -> tuple[HeadMask, ...]:
    """Masks by their texts, one per head."""
    return parse_all(texts, len(texts))


ODD = (
    HeadMask("look back over a gap", lo=3, hi=20, slope=0.05),
    HeadMask("window with a hole", lo=-9, hi=6, without_self=True),
    HeadMask("diagonal with distance", without_self=True, slope=0.1),
)
"""Ranges that no text names."""
_NAMES = "none diagonal forward backward forward_inclusive backward_inclusive window:3"
EVERY = masks_of(*_NAMES.split(), "distance:0.7")
"""A slope of 0.7 has to be that of float64."""


@dataclass(frozen=True)
class Problem:
    """Sizes and options of one call.

    ``columns`` are those of s: d_v, 1, or None for no s. ``masks`` has one per head, ``later``
    those of all samples but the first, where ranges differ by sample. Padding is "none", a "tail"
    of the last sample, or "holes" between real tokens too. ``keep`` is a share of pairs, ``scale``
    a factor on queries and source scores, ``common`` is added to all values.
    """

    n: int = 20
    batch: int = 2
    d_i: int = 5
    d_v: int = 5
    columns: int | None = 5
    masks: tuple[HeadMask, ...] = masks_of("forward", "backward", "none")
    later: tuple[HeadMask, ...] | None = None
    scale_t: str = "log_sigmoid"
    padding: str = "none"
    keep: float = 1.0
    scale: float = 1.0
    common: float = 0.0

    def call(self, dtype: torch.dtype = torch.float32, device: torch.device = CPU) -> KernelCall:
        """Random leaves, strided parts of wider [B, N, H, d + 3]."""
        draw = torch.Generator().manual_seed(self.n + 7 * self.d_v)

        def leaf(width: int, factor: float = 1.0, added: float = 0.0) -> Tensor:
            shape = (self.batch, self.n, len(self.masks), width + 3)
            part = torch.randn(shape, generator=draw, dtype=torch.float64)[..., 2 : 2 + width]
            values = (part.permute(2, 0, 1, 3) * factor + added).to(device, dtype)
            return strided(values).requires_grad_()

        q, k, v = leaf(self.d_i, self.scale), leaf(self.d_i), leaf(self.d_v, 1, self.common)
        s = None if self.columns is None else leaf(self.columns, self.scale)
        mask = None
        if self.padding != "none":
            mask = torch.ones(self.batch, self.n, dtype=torch.bool)
            mask[-1, (2 * self.n + 2) // 3 :] = False
            if self.padding == "holes":
                mask[-1, 1::3] = False
                mask[0, 1::5] = False
            mask = mask.to(device)
        dropout = PairDropout(0xDEADBEEF, self.keep) if self.keep < 1 else None
        return KernelCall(q, k, v, s, self._geometry(device), mask, self.scale_t, dropout)

    def _geometry(self, device: torch.device) -> Geometry:
        shared = of_masks(self.masks, self.n, device)
        if self.later is None:
            return shared
        other = of_masks(self.later, self.n, device)
        lo, hi = (
            torch.cat([a, b.expand(-1, self.batch - 1)], 1)
            for a, b in ((shared.lo, other.lo), (shared.hi, other.hi))
        )
        return Geometry(lo, hi, shared.without_self, shared.slope)


def strided(t: Tensor) -> Tensor:
    """The same numbers [H, B, N, d] as a view of [B, N, H, d + 3]."""
    heads, batch, n, d = t.shape
    room = torch.full((batch, n, heads, d + 3), torch.nan, dtype=t.dtype, device=t.device)
    view = room[..., 1 : 1 + d].permute(2, 0, 1, 3)
    view.copy_(t)
    return view


def leaves(call: KernelCall) -> dict[str, Tensor]:
    """What has gradients, by name."""
    return {name: t for name, t in zip("qkvs", call[:4], strict=True) if t is not None}


def with_leaves(call: KernelCall, change: Callable[[Tensor], Tensor]) -> KernelCall:
    """The same call of other leaves, each what `change` makes of the one that was there."""
    q, k, v, s = (None if t is None else change(t.detach()).requires_grad_() for t in call[:4])
    assert q is not None
    assert k is not None
    assert v is not None
    return KernelCall(q, k, v, s, *call[4:])


def exact(call: KernelCall) -> KernelCall:
    """The same in float64, on the CPU."""
    call = with_leaves(call, lambda t: t.double().cpu())
    geometry = Geometry(*(t.cpu() for t in call.geometry))
    return call._replace(geometry=geometry, mask=None if call.mask is None else call.mask.cpu())


def open_pairs(call: KernelCall) -> Tensor:
    """Whether a query sees a key, [H, B, N, N]; a padded query sees nothing."""
    heads, batch, n, _ = call.v.shape
    apart = torch.arange(n)[:, None] - torch.arange(n)
    lo, hi = (t.long()[..., None, None] for t in (call.geometry.lo, call.geometry.hi))
    found = (apart >= lo) & (apart <= hi)  # [H, B or 1, N, N]
    found = found & ~(call.geometry.without_self[:, None, None, None] & (apart == 0))
    if call.mask is not None:
        found = found & call.mask[:, None, :] & call.mask[:, :, None]
    return found.expand(heads, batch, n, n)


def dense(call: KernelCall) -> Tensor:
    """Eq. 10-12 with the whole tensor of scores in the dtype of q, [H, B, N, d_v]."""
    n = call.v.shape[2]
    r = call.q @ call.k.transpose(-1, -2)
    scores = logsigmoid(r) if call.scale_t == "log_sigmoid" else r
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    scores = scores - call.geometry.slope[:, None, None, None].to(r.dtype) * apart
    scores = scores[..., None]  # [H, B, N, N, 1]
    if call.s is not None:
        scores = scores + call.s[:, :, None]
    weights = masked_softmax(scores, open_pairs(call)[..., None], dim=3)
    if call.dropout is not None:
        weights = weights * call.dropout.pairs(call.v)[..., None]
    return (weights * call.v[:, :, None]).sum(3)


def quotient(call: KernelCall) -> Tensor:
    """The same of sigmoids as Algorithm 1 of the paper has it, sums over the keys divided."""
    assert call.s is not None
    n = call.v.shape[2]
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    p = (call.q @ call.k.transpose(-1, -2)).sigmoid()
    p = p * (-call.geometry.slope[:, None, None, None].to(p.dtype) * apart).exp()
    p = p * open_pairs(call)
    e = (call.s - call.s.detach().amax(2, keepdim=True)).exp()
    divisor = p @ e
    return (p @ (call.v * e)) / divisor.masked_fill(divisor == 0, 1)


def with_gradients(
    a: Tensor, call: KernelCall, cotangent: Tensor | None = None
) -> dict[str, Tensor]:
    """Output, and gradients of a fixed linear function of it, on the CPU."""
    if cotangent is None:
        cotangent = cotangent_of(a, torch.float64)
    own = {name: t for name, t in leaves(call).items() if t.numel()}
    cotangent = cotangent.to(a.device, a.dtype)
    found = torch.autograd.grad(a, list(own.values()), cotangent, allow_unused=True)
    gradients = {
        f"d{name}": torch.zeros_like(t) if g is None else g
        for (name, t), g in zip(own.items(), found, strict=True)
    }
    return {name: t.detach().cpu() for name, t in ({"a": a} | gradients).items()}


def defined(call: KernelCall, cotangent: Tensor | None = None) -> dict[str, Tensor]:
    """`with_gradients` of the definition in float64."""
    twin = exact(call)
    return with_gradients(dense(twin), twin, cotangent)


def got(attend: Attend, call: KernelCall) -> dict[str, Tensor]:
    """What a backend makes of it, none of its queries flagged, in the layout that layers want."""
    a, flagged = attend(call)
    assert not flagged.any()
    assert a.permute(1, 2, 0, 3).is_contiguous()
    return with_gradients(a, call)


def assert_agrees(
    attend: Attend,
    call: KernelCall,
    capped: bool = False,
    yardstick: Callable[[KernelCall], Tensor] = dense,
) -> None:
    """Assert that values and gradients are the definition's, within what the dtype allows.

    In float64 that is `EXACT`; else twice the error of the yardstick in the same dtype and the
    rounding floor (`harness.verify.budget`), or the cap for values alone.
    """
    found, wanted = got(attend, call), defined(call)
    dtype = DTYPES[call.q.dtype]
    plain = {} if capped or dtype == "f64" else with_gradients(yardstick(call), call)
    assert found.keys() == wanted.keys()
    for name, right in wanted.items():
        assert found[name].dtype == call.q.dtype
        allowed = EXACT if dtype == "f64" else CAP[dtype]
        if plain:
            allowed = budget(error(plain[name], right), dtype, gradient=name != "a")
        miss = error(found[name], right)
        assert miss <= allowed, f"{name}: {miss:.2e}, allowed {allowed:.2e}"


PROBLEMS: dict[str, Problem] = {
    "one-token": Problem(n=1),
    "two-tokens": Problem(n=2, masks=EVERY, padding="tail", scale_t="identity"),
    "several-tiles": Problem(n=65, masks=masks_of("forward_inclusive", "backward", "window:3")),
    "every-mask": Problem(n=40, batch=3, masks=EVERY, padding="tail"),
    "every-mask-identity": Problem(n=23, masks=EVERY, padding="holes", scale_t="identity"),
    "odd-ranges": Problem(n=36, masks=ODD, padding="holes"),
    "odd-ranges-identity": Problem(n=36, masks=ODD, scale_t="identity"),
    "ranges-by-sample": Problem(
        n=33,
        masks=masks_of("window:2", "forward", "none"),
        later=masks_of("window:9", "backward", "window:0"),
    ),
    "wider-values": Problem(n=17, d_i=4, d_v=20, columns=20),
    "wider-keys": Problem(n=17, d_i=20, d_v=4, columns=4, scale_t="identity"),
    "one-feature": Problem(d_i=1, d_v=1, columns=1, padding="tail"),
    "whole-vectors": Problem(n=17, d_i=16, d_v=16, columns=16),
    "widths-of-75": Problem(n=70, d_i=75, d_v=75, columns=75, scale=0.3),
    "widths-of-80": Problem(n=33, d_i=80, d_v=80, columns=80, scale_t="identity", scale=0.3),
    "widths-of-96": Problem(n=33, d_i=96, d_v=96, columns=96, padding="tail", scale=0.3),
    "widths-cut-in-two": Problem(n=17, d_i=40, d_v=43, columns=43, scale_t="identity"),
    "cut-one-column": Problem(n=17, d_i=5, d_v=40, columns=1, keep=0.7, padding="holes"),
    "cut-plain": Problem(n=17, d_i=40, d_v=5, columns=None),
    "no-token2token": Problem(d_i=0, padding="holes"),
    "no-token2token-identity": Problem(d_i=0, scale_t="identity", masks=ODD),
    "one-column": Problem(columns=1, padding="holes"),
    "one-column-identity": Problem(columns=1, scale_t="identity"),
    "no-source2token": Problem(columns=None, padding="tail", masks=masks_of(*["diagonal"] * 3)),
    "plain-softmax": Problem(columns=None, scale_t="identity", padding="holes"),
    "no-scores": Problem(d_i=0, columns=None),
    "dropout": Problem(keep=0.7, padding="holes"),
    "dropout-identity": Problem(keep=0.7, scale_t="identity", masks=ODD),
    "dropout-one-column": Problem(keep=0.7, columns=1),
    "dropout-plain": Problem(keep=0.7, columns=None, scale_t="identity"),
}
TELLING = (
    "several-tiles",
    "every-mask-identity",
    "odd-ranges",
    "ranges-by-sample",
    "widths-cut-in-two",
    "one-column",
    "plain-softmax",
    "dropout-identity",
)
"""Each way through the kernels once: what every run tries; the nightly session tries all."""


def changed(name: str, **options: Any) -> Problem:
    """A problem of the table with other options."""
    return replace(PROBLEMS[name], **options)
