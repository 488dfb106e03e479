"""Single queries with the whole softmax: for those whose denominators underflow in a fast path.

A backend with a backward pass of its own has both mended in place, by `repair` and `add_gradients`
(the native one does it itself, in ``native/repair.cpp``): on a CPU the host decides, on CUDA
kernels do it in every call, so that it looks at nothing; only where there is no Triton it waits and
looks. In a compiled call both are operators: inside those alone values may be looked at. Where
autograd differentiates (`core.exact`), `recomputed` does it on a CPU, and elsewhere `repaired`, an
operator whose gradients stand beside those of the backend.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from reference_impls.checks import core_dtype, masked_softmax
from reference_impls.kernels.call import FLAT, TENSORS, KernelCall, flowing_back, of_flat

CHUNK_BYTES = 64 * 2**20
"""About how much may be held at once."""


def on_device(x: Tensor) -> bool:
    """Whether kernels of the device compute them again, and the host need not know of any."""
    if not x.is_cuda:
        return False
    from reference_impls.kernels.triton.device import present

    return present()


def recomputed(where: Tensor, call: KernelCall) -> Tensor:
    """The attended values of some queries, the maximum over their own open keys subtracted.

    Parameters
    ----------
    where : Tensor of int64, shape [R]
        Flat positions in [H, B, N] of queries that have an open key.
    call : KernelCall

    Returns
    -------
    Tensor, shape [R, d_v]
        In float32 for half precision. A few queries at a time, computed again for their gradients:
        memory is R * d_v, beside `CHUNK_BYTES` (or what one query takes, N * d_v several times)
        and, for the gradients, tensors like q, k, v and s. Nothing is over R x N.
    """
    heads, batch, n, _ = call.v.shape
    dtype, dropout = core_dtype(call.q.dtype), call.dropout
    (head, sample), query = places(where, batch, n)
    hashes = None
    if dropout is not None:
        hashes = dropout.row_hashes(heads, batch, n, where.device).flatten()[where]  # [R]

    def some(q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, part: slice) -> Tensor:
        here = head[part], sample[part]
        own = SequencesOfQueries(here, batch)
        queries = q[(*here, query[part])].to(dtype)  # [C, d_i]
        r = torch.bmm(own.of(k).to(dtype), queries[:, :, None]).squeeze(2)  # [C, N]
        source = None if s is None else own.of(s).to(dtype)
        found, open_pairs = scores(r, here, query[part], source, call)
        p = masked_softmax(found, open_pairs[..., None], dim=1)
        if dropout is not None and hashes is not None:
            p = p * dropout.kept(hashes[part], 0, n)[..., None]
        return (p * own.of(v).to(dtype)).sum(1)  # [C, d_v]

    step = chunk(call, dtype)
    training = call.wants_gradients()
    found = []
    for start in range(0, where.shape[0], step):
        arguments = (*call[:4], slice(start, start + step))
        if training:
            found.append(
                checkpoint(some, *arguments, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            found.append(some(*arguments))
    return torch.cat(found)


def chunk(call: KernelCall, dtype: torch.dtype) -> int:
    """How many queries at a time.

    Per query: k, s and v, at worst gathered twice, and about six tensors of N x d_v inside the
    softmax.
    """
    n, width = call.v.shape[2:]
    return max(1, CHUNK_BYTES // (n * (2 * call.k.shape[-1] + 10 * width) * dtype.itemsize))


class SequencesOfQueries:
    """The sequences [N, d] that C queries belong to; many queries share one.

    Every sequence is read, and added to, in one place: where several threads added the gradients of
    its queries to it, their order, and so the last bits, would change from call to call.

    Parameters
    ----------
    here : pair of Tensor, shape [C]
        Heads and samples, those of a sequence side by side.
    batch : int
    """

    def __init__(self, here: tuple[Tensor, Tensor], batch: int) -> None:
        head, sample = here
        found, self.which = torch.unique_consecutive(head * batch + sample, return_inverse=True)
        self.place = found // batch, found % batch

    def of(self, values: Tensor) -> Tensor:
        """Those of each query, [H, B, N, d] -> [C, N, d]; its gradient has one order of sums.

        On CUDA index_select's gradient adds atomically, and that of an index sorts; on a CPU
        it is the other way round: there the gradient of an index may be shared by threads.
        """
        read = values[self.place]
        return read[self.which] if read.is_cuda else read.index_select(0, self.which)

    def add(self, sums: Tensor, values: Tensor) -> None:
        """Add the values [C, N, d] of the queries to [H, B, N, d], in one order."""
        total = sums.new_zeros((self.place[0].shape[0], *sums.shape[2:]))
        if total.is_cuda:  # as in `of`
            total.index_put_((self.which,), values, accumulate=True)
        else:
            total.index_add_(0, self.which, values)
        sums[self.place] += total


def flat_places(flagged: Tensor) -> Tensor:
    """Those of the flagged queries [H, B, N]; the host waits to know how many there are."""
    return flagged.flatten().nonzero().squeeze(1)


def places(where: Tensor, batch: int, n: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Head and sample, and query, of flat positions in [H, B, N]."""
    sequence = where // n
    return (sequence // batch, sequence % batch), where % n


def scores(
    r: Tensor,
    here: tuple[Tensor, Tensor],
    query: Tensor,
    s: Tensor | None,
    call: KernelCall,
) -> tuple[Tensor, Tensor]:
    """What the softmax of C queries is taken of, [C, N, d_v or 1], and their open keys [C, N].

    Parameters
    ----------
    r : Tensor, shape [C, N]
        Products of the queries with all keys.
    here : pair of Tensor, shape [C]
        Heads and samples.
    query : Tensor, shape [C]
        Positions.
    s : Tensor, shape [C, N, d_v or 1], or None
        Source scores of their sequences.
    """
    (head, sample), dtype = here, r.dtype
    geometry, batch = call.geometry, call.v.shape[1]
    lo, hi = (t.expand(-1, batch)[head, sample, None] for t in (geometry.lo, geometry.hi))
    without_self, slope = geometry.without_self[head, None], geometry.slope[head, None].to(dtype)
    apart = query[:, None] - torch.arange(r.shape[1], device=r.device)  # [C, N]
    open_pairs = (apart >= lo) & (apart <= hi) & ~(without_self & (apart == 0))
    if call.mask is not None:
        open_pairs = open_pairs & call.mask[sample]
    found = logsigmoid(r) if call.scale_t == "log_sigmoid" else r
    found = (found - slope * apart.abs())[..., None]  # [C, N, 1]
    if s is not None:
        found = found + s
    return found, open_pairs


def replaced(a: Tensor, where: Tensor, values: Tensor) -> Tensor:
    """`a` [H, B, N, d] with the rows `where` (flat in [H, B, N]) replaced; its layout is kept."""
    heads, batch, n, _ = a.shape
    head, sample, query = where // (batch * n), where // n % batch, where % n
    rows = a.permute(1, 2, 0, 3).flatten(0, 2)  # [B*N*H, d]
    # index_copy sends no gradient to what it overwrites.
    rows = rows.index_copy(0, (sample * n + query) * heads + head, values.to(a.dtype))
    return rows.unflatten(0, (batch, n, heads)).permute(2, 0, 1, 3)


@custom_op(
    "attnbench::repaired",
    mutates_args=(),
    schema=f"(Tensor a, Tensor flagged, {FLAT}) -> Tensor",
)
def repaired(a: Tensor, flagged: Tensor, *given: Any) -> Tensor:
    """`a` with its flagged queries computed again, exactly.

    Without Triton they are NaN in CUDA graph capture, where the host decides nothing.

    Parameters
    ----------
    a, flagged
        As a backend's `attend` returns them.
    given
        A flat `KernelCall`.
    """
    same = a.permute(1, 2, 0, 3).clone(memory_format=torch.contiguous_format).permute(2, 0, 1, 3)
    repair(of_flat(*given), same, flagged)
    return same


@register_fake("attnbench::repaired")
def _(a: Tensor, *_: Any) -> Tensor:
    heads, batch, n, width = a.shape
    return a.new_empty((batch, n, heads, width)).permute(2, 0, 1, 3)


@custom_op(
    "attnbench::repaired_backward",
    mutates_args=(),
    schema=f"(Tensor g, Tensor flagged, {FLAT}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def repaired_backward(g: Tensor, flagged: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """Gradients of a, q, k, v and s (empty without one) for that of the result."""
    call = of_flat(*given)
    to_a = g.contiguous().masked_fill(flagged[..., None], 0)
    added = [t.new_zeros(t.shape) for t in _differentiated(call)]
    add_gradients(call, g, flagged, added)
    return (to_a, *added)


@register_fake("attnbench::repaired_backward")
def _(g: Tensor, flagged: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return tuple(t.new_empty(t.shape) for t in (g, *_differentiated(of_flat(*given))))


def _differentiated(call: KernelCall) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What has gradients; an s that is not there is empty."""
    q, k, v, s = call[:4]
    return q, k, v, v.new_empty(0) if s is None else s


def repair(call: KernelCall, a: Tensor, flagged: Tensor) -> None:
    """Compute the flagged queries again, into `a` [H, B, N, d_v]; where no autograd looks.

    In CUDA graph capture without Triton they become NaN.
    """
    if torch.compiler.is_compiling():
        torch.ops.attnbench.repair_in_place(a, flagged, *call.flat())
    elif on_device(a):
        from reference_impls.kernels.triton import repair as kernels

        kernels.repair(call, a, flagged)
    elif a.is_cuda and torch.cuda.is_current_stream_capturing():
        a.masked_fill_(flagged[..., None], math.nan)
    elif bool(flagged.any()):
        where = flat_places(flagged)
        (head, sample), query = places(where, *a.shape[1:3])
        a[head, sample, query] = recomputed(where, call).to(a.dtype)


def add_gradients(
    call: KernelCall, g: Tensor, flagged: Tensor, gradients: Sequence[Tensor]
) -> None:
    """Add what the flagged queries give to the gradients of q, k, v and s (empty without one).

    Parameters
    ----------
    g : Tensor, shape [H, B, N, d_v]
        Of the result; only what stands at flagged queries is read.
    """
    if torch.compiler.is_compiling():
        torch.ops.attnbench.add_gradients_in_place(g, flagged, *gradients, *call.flat())
        return
    if on_device(g):
        from reference_impls.kernels.triton import repair as kernels

        kernels.add_gradients(call, g, flagged, gradients)
        return
    capturing = g.is_cuda and torch.cuda.is_current_stream_capturing()
    if capturing or not bool(flagged.any()):
        return
    dtype = core_dtype(call.q.dtype)
    sums = [torch.zeros(t.shape, dtype=dtype, device=t.device) for t in gradients]
    where = flat_places(flagged)
    for part in where.split(chunk(call, dtype)):
        _add_gradients(sums, part, g, call)
    for gradient, more in zip(gradients, sums, strict=True):
        gradient.copy_(gradient.to(dtype).add_(more))


@custom_op(
    "attnbench::repair_in_place",
    mutates_args=("a",),
    schema=f"(Tensor(a!) a, Tensor flagged, {FLAT}) -> ()",
)
def _repair_in_place(a: Tensor, flagged: Tensor, *given: Any) -> None:
    repair(of_flat(*given), a, flagged)


@custom_op(
    "attnbench::add_gradients_in_place",
    mutates_args=("dq", "dk", "dv", "ds"),
    schema="(Tensor g, Tensor flagged, Tensor(a!) dq, Tensor(b!) dk, Tensor(c!) dv, Tensor(d!) ds, "
    f"{FLAT}) -> ()",
)
def _add_gradients_in_place(
    g: Tensor, flagged: Tensor, dq: Tensor, dk: Tensor, dv: Tensor, ds: Tensor, *given: Any
) -> None:
    add_gradients(of_flat(*given), g, flagged, (dq, dk, dv, ds))


def _add_gradients(sums: list[Tensor], where: Tensor, g: Tensor, call: KernelCall) -> None:
    """Of some queries C, into q, k, v and s: the softmax's gradient over their own keys."""
    q, k, v, s = call[:4]
    heads, batch, n, _ = v.shape
    dtype = sums[0].dtype
    here, query = places(where, batch, n)
    own = SequencesOfQueries(here, batch)
    queries, keys, values = q[(*here, query)].to(dtype), own.of(k).to(dtype), own.of(v).to(dtype)
    r = torch.bmm(keys, queries[:, :, None]).squeeze(2)  # [C, N]
    source = None if s is None else own.of(s).to(dtype)
    found, open_pairs = scores(r, here, query, source, call)
    p = masked_softmax(found, open_pairs[..., None], dim=1)  # [C, N, d_v or 1]
    flow = g[(*here, query)].to(dtype)[:, None]  # [C, 1, d_v]
    if call.dropout is not None:
        hashes = call.dropout.row_hashes(heads, batch, n, v.device).flatten()[where]
        flow = flow * call.dropout.kept(hashes, 0, n)[..., None]  # [C, N, d_v]
    to_p = flow * values  # [C, N, d_v]
    if p.shape[2] == 1:
        to_p = to_p.sum(2, keepdim=True)
    to_scores = p * (to_p - (p * to_p).sum(1, keepdim=True))  # [C, N, d_v or 1]
    to_r = to_scores.sum(2)
    if call.scale_t == "log_sigmoid":
        to_r = to_r * torch.sigmoid(-r)
    sums[0].index_put_((*here, query), torch.bmm(to_r[:, None], keys).squeeze(1), accumulate=True)
    own.add(sums[1], to_r[..., None] * queries[:, None])
    own.add(sums[2], (p * flow).expand_as(values))
    if s is not None:
        own.add(sums[3], to_scores if s.shape[3] > 1 else to_scores.sum(2, keepdim=True))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1 : TENSORS + 2])
    ctx.options = inputs[TENSORS + 2 :]


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    flagged, *tensors = ctx.saved_tensors
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():
        return _differentiable(g, flagged, of_flat(*tensors, *ctx.options))
    to_a, *found = repaired_backward(g, flagged, *tensors, *ctx.options)
    return to_a, None, *flowing_back(found, tensors[3], 0)


def _differentiable(g: Tensor, flagged: Tensor, call: KernelCall) -> tuple[Any, ...]:
    """The same where a second derivative may follow: autograd finds them, and the host waits."""
    where = flat_places(flagged)
    (head, sample), query = places(where, *flagged.shape[1:])
    leaves = {i: t for i, t in enumerate(call[:4]) if isinstance(t, Tensor) and t.requires_grad}
    found: list[Tensor | None] = [None] * 4
    if leaves and where.numel():
        again, flow = recomputed(where, call), g[head, sample, query]
        given = (again, [*leaves.values()], flow.to(again.dtype))
        values = torch.autograd.grad(*given, create_graph=True, allow_unused=True)
        for i, value in zip(leaves, values, strict=True):
            found[i] = value
    return g.masked_fill(flagged[..., None], 0), None, *flowing_back(found, call.s, 0)


register_autograd("attnbench::repaired", _backward, setup_context=_remember)
