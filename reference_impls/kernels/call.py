"""What the backends are given and return, and the flat form of it that torch's operators take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._library.custom_ops import CustomOpDef

from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry

FLAT = (
    "Tensor q, Tensor k, Tensor v, Tensor? s, Tensor lo, Tensor hi, Tensor without_self, "
    "Tensor slope, Tensor? mask, str scale_t, SymInt seed, float probability"
)
"""`KernelCall.flat` in the schema of an operator; a probability below 0 is no dropout."""
TENSORS, COUNT = 9, 12
"""How many of it are tensors, and all of it."""


class KernelCall(NamedTuple):
    """``a_il = sum_j keep_ij P_ij v_jl E_jl / sum_j P_ij E_jl``, E = exp(s - its maximum).

    Each backend is a function ``attend(call)``, which returns

    a : Tensor, shape [H, B, N, d_v]
        In the dtype of q, a view of a contiguous [B, N, H, d_v]; 0 for padded queries, those
        without an open key, and those flagged, unless they were computed again (see
        `core.REPAIRING`). Sums are in float32 for half precision.
    flagged : Tensor of bool, shape [H, B, N]
        Queries with an open key some of whose denominators fell below `least_denominator`.

    and raises `Unsupported` for what it can't do.

    Attributes
    ----------
    q, k : Tensor, shape [H, B, N, d_i]
        Queries, already divided by sqrt(d_i), and keys; d_i = 0: there are no such scores. Any
        strides; keys at padding must be finite.
    v : Tensor, shape [H, B, N, d_v]
    s : Tensor, shape [H, B, N, d_v] or [H, B, N, 1], or None
        Source2token scores; None: E is 1.
    geometry : Geometry
        The keys of every query, on the device of q.
    mask : Tensor of bool, shape [B, N], or None
        True for real tokens; None is all real.
    scale_t : {"log_sigmoid", "identity"}
        P is sigmoid(r) e^bias or e^(r + bias).
    dropout : PairDropout or None
        Pairs that it keeps of the numerator; nothing is scaled.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    s: Tensor | None
    geometry: Geometry
    mask: Tensor | None
    scale_t: str
    dropout: PairDropout | None = None

    def flat(self) -> tuple[Any, ...]:
        """Tensors and numbers alone, as `FLAT` says; `of_flat` puts them together again."""
        dropout = self.dropout
        drawn = (0, -1.0) if dropout is None else (dropout.seed, dropout.probability)
        return (*self[:4], *self.geometry, self.mask, self.scale_t, *drawn)

    def wants_gradients(self) -> bool:
        """Whether a backward pass may follow."""
        return torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (self.q, self.k, self.v, self.s)
        )


def of_flat(*given: Any) -> KernelCall:
    """The call that was `KernelCall.flat`."""
    q, k, v, s, *ranges, mask, scale_t, seed, probability = given
    dropout = None if probability < 0 else PairDropout(seed, probability)
    return KernelCall(q, k, v, s, Geometry(*ranges), mask, scale_t, dropout)


def flowing_back(
    gradients: Sequence[Tensor | None], s: Tensor | None, others: int
) -> tuple[Any, ...]:
    """What autograd is told of q, k, v and s, of the rest of a flat call and of others behind it.

    An operator returns tensors alone: the gradient of an absent s is empty, and is left out here.
    """
    *found, of_s = gradients
    return *found, None if s is None else of_s, *(None,) * (COUNT - 4 + others)


def called(operator: CustomOpDef, *given: Any) -> Any:
    """What an operator in Python returns; by its body alone, where nobody has to see the operator.

    Torch's way to it takes as long as a small input's attention. A compiler, a mode that counts or
    fakes, a profiler, a transform of functions, a subclass and autograd need it.
    """
    seen = watched(given[0]) or (
        torch.is_grad_enabled() and any(isinstance(t, Tensor) and t.requires_grad for t in given)
    )
    return (operator if seen else operator._init_fn)(*given)


def watched(first: Tensor) -> bool:
    """Whether somebody but autograd has to see the operator, given the first of its tensors."""
    return bool(
        torch.compiler.is_compiling()
        or torch._C._len_torch_dispatch_stack()
        or torch.autograd._profiler_enabled()
        or torch._C._are_functorch_transforms_active()
        or type(first) is not Tensor
    )


def by_hand(
    operator: CustomOpDef,
    remember: Callable[[Any, tuple[Any, ...], tuple[Tensor, ...]], None],
    backward: Callable[..., tuple[Any, ...]],
) -> Callable[..., tuple[Tensor, ...]]:
    """An operator whose last argument says whether gradients are wanted, with those registered.

    Torch's way to those reads the operator's schema again at every call; compiled calls need it.
    """

    class Called(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
            found: tuple[Tensor, ...] = called(operator, *given)
            remember(ctx, given, found)
            return found

        @staticmethod
        def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
            return backward(ctx, *gradients)

    def run(*given: Any) -> tuple[Tensor, ...]:
        if given[-1] and not torch.compiler.is_compiling():
            return Called.apply(*given)
        return called(operator, *given)

    return run
