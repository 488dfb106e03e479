"""How the Triton kernels are launched: their arguments from tensors, their outputs, their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from reference_impls.checks import least_denominator
from reference_impls.kernels.triton.backward import (
    cotangent_kernel,
    key_gradient_kernel,
    query_gradient_kernel,
)
from reference_impls.kernels.triton.forward import forward_kernel
from reference_impls.kernels.triton.inputs import Inputs, packed
from reference_impls.kernels.triton.parts import weigh_kernel
from reference_impls.kernels.triton.tiles import Tile, cut, power_of_two, tiles_of
from reference_impls.mechanism import Unsupported

_LAUNCHED: dict[tuple[Any, ...], Any] = {}
"""What Triton compiled, by all that makes another kernel: its own way from sixty arguments to that
is half of a launch's time on the host, and a training pass of a core launches ten. Knobs of Triton
that make another kernel (debug, instrumentation) count where set before the first launch."""
COMPILED = {"enable_fp_fusion": True}
"""What is asked of Triton for every kernel: a product and a sum in one instruction. Release 3.9
warns that a later one will not do so by itself, and tiles were counted with it."""
HELD = 2**13
"""Numbers of one program of the kernels that weigh, of 32 tokens at most: more would spill."""


@dataclass(frozen=True)
class Launch:
    """A kernel with all it is given: `run` starts it, tests compile it.

    Attributes
    ----------
    kernel : triton kernel
    programs : int
    arguments : mapping
        Tensors and numbers.
    constants : mapping
        What a kernel is made for.
    tile : Tile or None
        Of which warps and stages count here; None for the compiler's own.
    """

    kernel: Any
    programs: int
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    tile: Tile | None = None

    def run(self) -> None:
        """Start it, on the current stream.

        Raises
        ------
        Unsupported
            If the device has too little memory for one program of it.
        """
        if not self.programs:
            return
        own: dict[str, Any] = dict(COMPILED)
        if self.tile is not None:
            own |= {"num_warps": self.tile.warps, "num_stages": self.tile.stages}
        key = id(self.kernel), self.tile, *self.constants.values()
        key += tuple(map(_made_for, self.arguments.values()))
        if (known := _LAUNCHED.get(key)) is not None:
            given = {**self.arguments, **self.constants}
            known[self.programs, 1, 1](*(given[name] for name in self.kernel.arg_names))
            return
        try:
            made = self.kernel[(self.programs,)](**self.arguments, **self.constants, **own)
        except OutOfResources as error:
            raise Unsupported(
                f"triton: {' '.join(str(error).split())}; take fused_tiled, or narrower heads"
            ) from error
        if made is not None:  # the interpreter makes nothing; its asynchronous mode a promise
            _LAUNCHED[key] = made.result() if hasattr(made, "result") else made


def _made_for(value: Any) -> Any:
    """What of an argument makes another kernel: at least what does for Triton."""
    if isinstance(value, Tensor):
        return value.dtype, value.device.index, value.data_ptr() % 16 == 0
    if isinstance(value, int):
        return value == 1, value % 16 == 0, -(2**31) <= value < 2**31
    return type(value)


@dataclass(frozen=True)
class Outputs:
    """What the forward pass writes: see `reference_impls.kernels.triton.triton_forward`."""

    out: Tensor
    residue: Tensor
    flagged: Tensor
    inverse: Tensor
    top: Tensor
    maximum: Tensor

    @classmethod
    def of(cls, given: Inputs, save: bool) -> Outputs:
        """Room for a call, and the maximum, which is there."""
        return cls(*(*given.outputs(save), given.maximum()))


def forward(given: Inputs, found: Outputs, save: bool, tile: Tile | None = None) -> list[Launch]:
    """The launches of the forward pass, in their order."""
    tile = tile or given.tile("forward")
    w, e, launches = _weighed(given, found.maximum)
    programs, arguments, constants = _common(given, given.q, packed(given.k), w, e, tile)
    arguments |= {
        "centre": given.centre,
        "counts": given.counts,
        "out": found.out,
        "residue": found.residue,
        "inverse": found.inverse,
        "top": found.top,
        "flagged": found.flagged.view(torch.uint8),
        "least": least_denominator(torch.float32, given.q.shape[2]),
    }
    constants |= {"SAVE": save, "CENTRED": given.centred, "D_V": given.v.shape[-1]}
    return [*launches, Launch(forward_kernel, programs, arguments, constants, tile)]


def backward(
    given: Inputs,
    found: Outputs,
    g: Tensor,
    gradients: Sequence[Tensor],
    tiles: tuple[Tile, Tile] | None = None,
) -> list[Launch]:
    """The launches of the backward pass: g like ``found.out`` seen as [H, B, N, D_V].

    ``gradients`` are those of q, k, v and s to be filled; ``tiles`` those of the queries' and of
    the keys' gradients.
    """
    dq, dk, dv, ds = gradients
    for_queries, for_keys = tiles or (given.tile("query_gradient"), given.tile("key_gradient"))
    w, e, launches = _weighed(given, found.maximum)
    cotangents, dnum, dden = _cotangents(given, found, g)
    launches.append(cotangents)
    own = {"top": found.top, "dnum": dnum, "dden": dden}
    q, k = packed(given.q), packed(given.k)
    if given.q.shape[-1]:
        programs, arguments, constants = _common(given, given.q, k, w, e, for_queries)
        arguments |= own | {"dq": dq} | strides(dq=dq)
        constants |= {"PITCH": given.pitch}
        launches.append(Launch(query_gradient_kernel, programs, arguments, constants, for_queries))
    programs, arguments, constants = _common(given, q, given.k, w, e, for_keys)
    s = given.v if given.s is None else given.s
    arguments |= own | {"v": given.v, "s": s, "maximum": found.maximum, "centre": given.centre}
    arguments |= {"dk": dk, "dv": dv, "ds": ds} | strides(v=given.v, s=s, dk=dk, dv=dv)
    arguments |= strides(ds=ds) if given.source else {"ds_h": 0, "ds_b": 0, "ds_n": 0}
    constants |= {"CENTRED": given.centred, "D_V": given.v.shape[-1], "PITCH": given.pitch}
    return [*launches, Launch(key_gradient_kernel, programs, arguments, constants, for_keys)]


def _weighed(given: Inputs, maximum: Tensor) -> tuple[Tensor, Tensor, list[Launch]]:
    """The tensors w and e, and what fills them."""
    if given.s is None:
        return packed(given.v), given.q, []
    heads, batch, n, d_v = given.v.shape
    w = torch.empty(heads, batch, n, given.pitch, dtype=given.products, device=given.v.device)
    e = _beside(w, given)
    arguments = {
        "v": given.v,
        "s": given.s,
        "highest": maximum,
        "centre": given.centre,
        "real": given.real,
        "w": w,
        "e": e,
        **strides(v=given.v, s=given.s),
        "real_b": n,
        "batch": batch,
        "n": n,
    }
    constants = {
        "SOURCE": given.source,
        "MASKED": given.mask is not None,
        "CENTRED": given.centred,
        "D_V": d_v,
        "PITCH": given.pitch,
        "WIDTH_V": power_of_two(d_v),
        "ROWS": _rows(d_v),
    }
    programs = heads * batch * tiles_of(n, _rows(d_v))
    return w, e, [Launch(weigh_kernel, programs, arguments, constants)]


def _cotangents(given: Inputs, found: Outputs, g: Tensor) -> tuple[Launch, Tensor, Tensor]:
    """What fills the cotangents of numerator and denominator, and those."""
    heads, batch, n, d_v = given.v.shape
    dnum = torch.empty(heads, batch, n, given.pitch, dtype=given.products, device=g.device)
    dden = _beside(dnum, given)
    arguments = {
        "g": g,
        "out": found.residue if given.centred else found.out,
        "inverse": found.inverse,
        "flagged": found.flagged.view(torch.uint8),
        "dnum": dnum,
        "dden": dden,
        **strides(g=g),
        "heads": heads,
        "batch": batch,
        "n": n,
    }
    constants = {
        "SOURCE": given.source,
        "D_V": d_v,
        "ROWS": _rows(d_v),
        "PITCH": given.pitch,
        "WIDTH_V": power_of_two(d_v),
    }
    programs = heads * batch * tiles_of(n, _rows(d_v))
    return Launch(cotangent_kernel, programs, arguments, constants), dnum, dden


def _rows(d_v: int) -> int:
    """Tokens of one program of the kernels that weigh: they do one thing per number."""
    return min(32, HELD // power_of_two(d_v))


def _beside(wide: Tensor, given: Inputs) -> Tensor:
    """Room for a number per feature, like `wide`, or float32 [H, B, N] where all share one."""
    if given.source == 2:
        return torch.empty_like(wide)
    return torch.empty(wide.shape[:3], dtype=torch.float32, device=wide.device)


def _common(
    given: Inputs, q: Tensor, k: Tensor, w: Tensor, e: Tensor, tile: Tile
) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Programs, arguments and constants that the three large kernels share."""
    heads, batch, n, d_i = given.q.shape
    arguments = {"q": q, "k": k, "w": w, "e": e, **strides(q=q, k=k, w=w), **positions(given)}
    arguments["slope"] = given.single_slope
    masked = given.mask is not None
    (width_i, rest_i), (width_v, rest_v) = cut(d_i), cut(given.v.shape[-1])
    constants = {
        "IDENTITY": given.identity,
        "SOURCE": given.source,
        "MASKED": masked,
        # Elsewhere weights are zero at padding, and padded keys can't be the row's maximum.
        "REAL": masked and (given.identity or given.source == 0),
        "DROPPED": given.dropout is not None,
        "D_I": d_i,
        "READ_Q": q.shape[-1],
        "READ_K": k.shape[-1],
        "READ_W": w.shape[-1],
        "WIDTH_I": width_i,
        "REST_I": rest_i,
        "WIDTH_V": width_v,
        "REST_V": rest_v,
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DOT": tl.bfloat16 if given.numbers == "half" else tl.float32,
        "PRECISION": given.precision,
    }
    return heads * batch * tiles_of(n, tile.rows), arguments, constants


def positions(given: Inputs) -> dict[str, Any]:
    """What says which keys a query meets: geometry, padding, sizes, dropout."""
    heads, batch, n, _ = given.q.shape
    lo, hi = given.bounds
    return {
        "real": given.real,
        "ends": given.ends,
        "lo": lo,
        "hi": hi,
        "without_self": given.geometry.without_self.view(torch.uint8),
        "slope": given.geometry.slope,
        "real_b": n,
        "range_h": lo.stride(0),
        "range_b": lo.stride(1) if lo.shape[1] > 1 else 0,
        "heads": heads,
        "batch": batch,
        "n": n,
        "seed": _signed(0 if given.dropout is None else given.dropout.seed),
        "threshold": _signed(0 if given.dropout is None else given.dropout.threshold),
    }


def _signed(number: int) -> int:
    """32 bits as a signed number: one type of argument, so one kernel for all seeds."""
    return number - 2**32 if number >= 2**31 else number


def strides(**values: Tensor) -> dict[str, int]:
    """Strides of head, sample and token; 0 where there is one alone, so that it is one kernel."""
    found = {}
    for name, t in values.items():
        (h, b, n), sizes = t.stride()[:3], t.shape
        found[f"{name}_h"] = h if sizes[0] > 1 else 0
        found[f"{name}_b"] = b if sizes[1] > 1 else 0
        found[f"{name}_n"] = n if sizes[2] > 1 else 0
    return found
