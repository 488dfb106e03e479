"""Problems for the fast paths of `reference_impls.kernels`, and what Algorithm 1 says in float64.

A path is a function with the signature of `reference_impls.kernels.triton.attend`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from harness.verify.budget import CAP, error
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry, of_masks
from reference_impls.masks import HeadMask, parse_all
from reference_impls.mtsa.dropout import Kept
from reference_impls.mtsa.optimized import algorithm1

HEADS, BATCH = 3, 2
DTYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16"}


def masks_of(*texts: str) -> tuple[HeadMask, ...]:
    """Masks by their texts, one per head."""
    return parse_all(texts, len(texts))


ODD = (
    HeadMask("look back over a gap", lo=3, hi=20, slope=0.05),
    HeadMask("window with a hole", lo=-9, hi=6, without_self=True),
    HeadMask("diagonal with distance", without_self=True, slope=0.1),
)
"""Ranges that no text names."""


@dataclass(frozen=True)
class Problem:
    """Sizes and options of one problem.

    Attributes
    ----------
    n, d_i, d_v : int
    columns : int or None
        Of s: d_v, 1, or None for no s.
    masks : tuple of HeadMask
        One per head.
    later : tuple of HeadMask or None
        Those of the second sample, where ranges differ by sample.
    scale_t : {"log_sigmoid", "identity"}
    padded : bool
        Whether a few tokens are padding, not all at the end.
    dropout : PairDropout or None
    scale : float
        Factor on scores.
    common : float
        Added to all values.
    dtype : torch.dtype
    """

    n: int = 20
    d_i: int = 5
    d_v: int = 5
    columns: int | None = 5
    masks: tuple[HeadMask, ...] = masks_of("forward", "backward", "none")
    later: tuple[HeadMask, ...] | None = None
    scale_t: str = "log_sigmoid"
    padded: bool = False
    dropout: PairDropout | None = None
    scale: float = 1.0
    common: float = 0.0
    dtype: torch.dtype = torch.float32

    def tensors(self, device: str = "cpu") -> tuple[dict[str, Tensor], Tensor | None, Tensor]:
        """q, k, v and s by name, the mask, and a cotangent [H, B, N, d_v]."""
        draw = torch.Generator().manual_seed(self.n + 7 * self.d_v)

        def normal(width: int, factor: float = 1.0) -> Tensor:
            values = torch.randn(HEADS, BATCH, self.n, width, generator=draw) * factor
            return values.to(device, self.dtype)

        found = {
            "q": normal(self.d_i, self.scale),
            "k": normal(self.d_i),
            "v": normal(self.d_v) + self.common,
        }
        if self.columns is not None:
            found["s"] = normal(self.columns, self.scale)
        mask = None
        if self.padded:
            mask = torch.rand(BATCH, self.n, generator=draw) > 0.2
            mask[:, -self.n // 4 :] = False
            mask[:, 0] = True
            mask = mask.to(device)
        return found, mask, normal(self.d_v)

    def geometry(self, device: str = "cpu") -> Geometry:
        """Of its masks, [H, 1], or [H, B] where they differ by sample."""
        shared = of_masks(self.masks, self.n, torch.device(device))
        if self.later is None:
            return shared
        other = of_masks(self.later, self.n, torch.device(device))
        return Geometry(
            torch.cat([shared.lo, other.lo], 1),
            torch.cat([shared.hi, other.hi], 1),
            shared.without_self,
            shared.slope,
        )


def _by_algorithm1(
    problem: Problem, given: dict[str, Tensor], mask: Tensor | None, b: int | None
) -> Tensor:
    """Of sample b alone, or of all."""
    part = slice(None) if b is None else slice(b, b + 1)
    q, k, v = (given[name][:, part] for name in "qkv")
    s = given["s"][:, part] if "s" in given else v.new_zeros(*v.shape[:3], 1)
    masks = problem.masks if b != 1 or problem.later is None else problem.later
    kept = None
    if problem.dropout is not None:
        pairs = problem.dropout.pairs(HEADS, BATCH, problem.n, torch.device("cpu"))[:, part]
        kept = Kept(pairs, torch.ones_like(v, dtype=torch.bool), 1.0)
    mask = None if mask is None else mask[part]
    return algorithm1(q, k, v, s, masks, problem.scale_t, mask, kept)


def expected(problem: Problem) -> dict[str, Tensor]:
    """Output and gradients in float64; 0 at padding, where Algorithm 1 may say anything."""
    given, mask, g = problem.tensors()
    given = {name: t.double().requires_grad_() for name, t in given.items()}
    if problem.later is None:
        a = _by_algorithm1(problem, given, mask, None)
    else:
        a = torch.cat([_by_algorithm1(problem, given, mask, b) for b in range(BATCH)], 1)
    if mask is not None:
        a = a.masked_fill(~mask[None, :, :, None], 0)
    return _with_gradients(a, given, g.double())


def got(
    problem: Problem, attend: Callable[..., tuple[Tensor, Tensor]], device: str = "cpu"
) -> dict[str, Tensor]:
    """What a path makes of it: output, gradients and ``flagged``, on the CPU."""
    given, mask, g = problem.tensors(device)
    given = {name: t.requires_grad_() for name, t in given.items()}
    a, flagged = attend(
        given["q"],
        given["k"],
        given["v"],
        given.get("s"),
        problem.geometry(device),
        mask,
        problem.scale_t,
        problem.dropout,
    )
    assert a.dtype == problem.dtype
    found = _with_gradients(a, given, g) | {"flagged": flagged}
    return {name: t.cpu() for name, t in found.items()}


def _with_gradients(a: Tensor, given: dict[str, Tensor], g: Tensor) -> dict[str, Tensor]:
    names = [name for name, t in given.items() if t.numel()]
    gradients = torch.autograd.grad(
        (a * g).sum(), [given[name] for name in names], allow_unused=True
    )
    found = {"a": a.detach()}
    for name, gradient in zip(names, gradients, strict=True):
        found[f"{name}.grad"] = torch.zeros_like(given[name]) if gradient is None else gradient
    return found


def assert_agrees(problem: Problem, found: dict[str, Tensor], rows: Tensor | None = None) -> None:
    """Assert that output and gradients are within the cap of the dtype (`harness.verify.budget`).

    Parameters
    ----------
    rows : Tensor of bool, shape [H, B, N], optional
        Compare the output there alone, and no gradients.
    """
    wanted = expected(problem)
    if rows is not None:
        wanted = {"a": wanted["a"][rows]}
        found = {"a": found["a"][rows]}
    for name, tensor in wanted.items():
        miss = error(found[name].double().numpy(), tensor.numpy())
        assert miss <= CAP[DTYPES[problem.dtype]], f"{name}: {miss:.2e}"


KEEP = PairDropout(0xDEADBEEF, 0.7)
PROBLEMS: dict[str, Problem] = {
    "one-token": Problem(n=1),
    "two-tokens": Problem(n=2),
    "one-tile-and-one": Problem(n=17, d_i=16, d_v=16, columns=16),
    "three-tiles": Problem(n=33),
    "several-tiles": Problem(n=65, masks=masks_of("forward_inclusive", "backward", "window:3")),
    "identity": Problem(scale_t="identity"),
    "identity-padded": Problem(scale_t="identity", padded=True),
    "padded": Problem(padded=True),
    "odd-ranges": Problem(n=36, masks=ODD),
    "odd-ranges-identity": Problem(n=36, masks=ODD, scale_t="identity", padded=True),
    "ranges-by-sample": Problem(
        n=33,
        masks=masks_of("window:2", "forward", "none"),
        later=masks_of("window:9", "backward", "window:0"),
    ),
    "wider-values": Problem(n=17, d_i=4, d_v=20, columns=20),
    "wider-keys": Problem(n=17, d_i=20, d_v=4, columns=4),
    "no-token2token": Problem(d_i=0, padded=True),
    "no-token2token-identity": Problem(d_i=0, scale_t="identity", masks=ODD),
    "one-column": Problem(columns=1, padded=True),
    "one-column-identity": Problem(columns=1, scale_t="identity"),
    "no-source2token": Problem(columns=None, padded=True, masks=masks_of(*["diagonal"] * 3)),
    "plain-softmax": Problem(columns=None, scale_t="identity", padded=True),
    "dropout": Problem(dropout=KEEP, padded=True),
    "dropout-identity": Problem(dropout=KEEP, scale_t="identity", masks=ODD),
    "dropout-one-column": Problem(dropout=KEEP, columns=1),
    "dropout-plain": Problem(dropout=KEEP, columns=None, scale_t="identity"),
}


def changed(name: str, **options: Any) -> Problem:
    """A problem of the table with other options."""
    return replace(PROBLEMS[name], **options)
