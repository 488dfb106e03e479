"""Weights put side by side for one product instead of several, and kept while they stay the same.

A layer that multiplies the same input by several weights does so once, with their columns in one
matrix. Putting them together costs a pass over all of them, at each call: nothing for a long batch,
a third of the time for a short one. In evaluation the weights do not change from call to call, so
that the matrix is kept. In training it is made anew, as a part of the graph; or, of `few` tokens,
each weight is multiplied by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import torch
from torch import Tensor, nn

from reference_impls.mechanism import few_tokens

T = TypeVar("T")
MOST_KEPT = 64
"""Matrices of one module: several layers, and several orders of heads."""
COLUMNS = 8
"""Of float32, 32 bytes: products whose rows do not begin at a multiple of that are slower. 300
columns take 1.5 times as long as 304, 900 take 1.25 times as long as 904 (MKL, one core of an EPYC,
2,048 rows)."""
_CPU: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # not in older torch
ENDS_COST = not _CPU.get("cpu_name", "").startswith("Intel")
"""Whether they are on this CPU. On Intel's own they are not: there it only costs to take the
columns of zeros out of a result again, an eighth of the product's time."""


def side_by_side(*weights: Tensor) -> Tensor:
    """Per-head weights [H, D, d] as columns [D, sum of H*d]; one copy where all have the same d."""
    turned = [weight.transpose(0, 1) for weight in weights]
    if len({weight.shape[2] for weight in weights}) == 1:
        return torch.cat(turned, dim=1).flatten(1)
    return torch.cat([weight.flatten(1) for weight in turned], dim=1)


def few(x: Tensor) -> bool:
    """Whether x [..., D] has `few_tokens`; not while a call is compiled, for any number of them."""
    if torch.compiler.is_compiling():
        return False
    return few_tokens(x.shape[:-1].numel(), x.shape[-1], x.dtype.itemsize, x.device.type)


def one_by_one(x: Tensor, *weights: Tensor) -> Tensor:
    """``x @ side_by_side(*weights)`` for weights of one d, head by head."""
    tokens = x.flatten(0, -2)
    found = [torch.bmm(tokens.expand(len(w), *tokens.shape), w) for w in weights]  # [H, M, d]
    joined = torch.cat([one.transpose(0, 1) for one in found], dim=1)  # [M, sum of H, d]
    return joined.view(*x.shape[:-1], joined.shape[1] * joined.shape[2])


def itself(weight: Tensor) -> Tensor:
    """A weight that is a matrix already."""
    return weight


def _state(weight: Tensor) -> tuple[Any, ...]:
    """What tells a weight that has been written or given other memory."""
    return weight.data_ptr(), weight._version, weight.dtype, weight.shape, weight.stride()


class _Kept(NamedTuple):
    """What was made, and the weights it was made of as they were then.

    The weights' memory is held on to: a freed address could be given to other weights.
    """

    made: Any
    weights: tuple[Tensor, ...]
    states: list[tuple[Any, ...]]


class Merged:
    """What has been made of a module's weights, made anew only when one of them has changed.

    Parameters
    ----------
    keeping : bool
        Whether anything is kept; a `MergingModule` says so as it goes from mode to mode.
    """

    def __init__(self, keeping: bool = True) -> None:
        self.keeping = keeping
        self._kept: dict[Hashable, _Kept] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and files, get no kept matrix: they have weights of their own."""
        return Merged, (self.keeping,)

    def clear(self) -> None:
        """Forget all that is kept."""
        self._kept.clear()

    def of(self, make: Callable[..., T], *weights: Tensor, key: Hashable = None) -> T:
        """``make(*weights)``, kept if it may be.

        Parameters
        ----------
        make : callable
            Returns a tensor or a tuple that depend on nothing but the weights and `key`.
        weights : Tensor
        key : hashable, optional
            Tells what is made of the same weights apart; `make` by default.
        """
        if not self._may_keep(weights):
            return make(*weights)
        key = (make if key is None else key, *map(id, weights))
        found, states = self._kept.get(key), [*map(_state, weights)]
        if found is None or found.states != states:
            # Not inference tensors: those can't serve a later call with gradients.
            with torch.inference_mode(False), torch.no_grad():
                held = tuple(weight.detach() for weight in weights)
                found = _Kept(make(*weights), held, states)
            if _plain(found.made):
                if len(self._kept) >= MOST_KEPT:
                    self.clear()
                self._kept[key] = found
        made: T = found.made
        return made

    def apart(self, x: Tensor, weights: Sequence[Tensor]) -> bool:
        """Whether x is better multiplied by each weight by itself: it is `few`, nothing is kept."""
        return few(x) and not self._may_keep(weights)

    def product(
        self, x: Tensor, make: Callable[..., Tensor], *weights: Tensor, key: Hashable = None
    ) -> Tensor:
        """``x @ make(*weights)``, the matrix kept if it may be: parameters are those of `of`.

        A kept matrix is given columns of zeros up to the next multiple of `COLUMNS`. The result,
        a view then, leaves them out.
        """
        return self._product(x, make, weights, key, COLUMNS)

    def dense(
        self, x: Tensor, make: Callable[..., Tensor], *weights: Tensor, key: Hashable = None
    ) -> Tensor:
        """`product`, contiguous."""
        multiple = COLUMNS if ENDS_COST or not x.is_cpu else 1
        return self._product(x, make, weights, key, multiple).contiguous()

    def _product(
        self,
        x: Tensor,
        make: Callable[..., Tensor],
        weights: Sequence[Tensor],
        key: Hashable,
        multiple: int,
    ) -> Tensor:
        as_it_is = make is itself and weights[0].shape[1] % multiple == 0
        if not self._may_keep(weights) or as_it_is:
            apart = make is side_by_side and few(x) and len({w.shape[2] for w in weights}) == 1
            return one_by_one(x, *weights) if apart else x @ make(*weights)

        def aligned(*weights: Tensor) -> tuple[Tensor, int]:
            matrix = make(*weights)
            columns = matrix.shape[1]
            if columns % multiple:
                matrix = nn.functional.pad(matrix, (0, -columns % multiple))
            return matrix, columns

        key = ("aligned", multiple, make if key is None else key)
        matrix, columns = self.of(aligned, *weights, key=key)
        return (x @ matrix)[..., :columns]

    def _may_keep(self, weights: Sequence[Tensor]) -> bool:
        if self.keeping and _constant(weights):
            return True
        # A call that wants gradients goes before a step of an optimiser, and torch does not count
        # what the fused ones write.
        self.clear()
        return False


def _plain(made: Any) -> bool:
    """Whether what was made is worth keeping: not weights alone, which are there already.

    Nor what a mode made that only plays a call through.
    """
    parts = made if isinstance(made, tuple) else (made,)
    kinds = {type(part) for part in parts if isinstance(part, Tensor)}
    return Tensor in kinds and kinds <= {Tensor, nn.Parameter}


def _constant(weights: Sequence[Tensor]) -> bool:
    """Whether weights are a module's own, and no gradient is wanted of them.

    Not while a call is compiled, traced, or captured in a CUDA graph: what is made then belongs to
    the graph, and a graph that read a kept matrix would go on reading it when the weights change.
    """
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return False
    if weights[0].is_cuda and torch.cuda.is_current_stream_capturing():
        return False
    # functional_call, parametrizations and replicas put other tensors in a parameter's place.
    wanted = torch.is_grad_enabled()
    for weight in weights:
        if type(weight) is not nn.Parameter or weight.is_inference():
            return False
        if wanted and weight.requires_grad:
            return False
    return True


class MergingModule(nn.Module):
    """A module that puts weights together by ``self.merged``.

    Attributes
    ----------
    merged : Merged

    Notes
    -----
    A matrix is kept in evaluation mode and without gradients only, until torch counts a change of
    one of its weights, a call wants gradients, or `train` or `eval` is called. Torch does not count
    what is written into ``weight.data``, nor what an optimiser with ``fused=True`` writes: between
    two calls in evaluation, write under `torch.no_grad` into the weight itself, or call `eval`
    again.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.merged = Merged(keeping=False)  # a module begins in training mode

    def train(self, mode: bool = True) -> Self:
        """As `torch.nn.Module.train`; what was kept is forgotten."""
        self.merged.clear()
        self.merged.keeping = not mode
        return super().train(mode)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Moved or converted weights are others: the memory of the old ones need not be held."""
        self.merged.clear()
        return super()._apply(fn, recurse)

    def dense(self, x: Tensor, weight: Tensor) -> Tensor:
        """The product x @ weight, [..., D] -> [..., E], contiguous."""
        return self.merged.dense(x, itself, weight)
