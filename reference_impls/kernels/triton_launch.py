"""How the Triton kernels are launched: their arguments from tensors, their outputs, their order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.runtime.errors import OutOfResources

from reference_impls.kernels.tiles import Kind, Numbers, Tile, choose, power_of_two
from reference_impls.kernels.triton_backend import centred, roomy
from reference_impls.kernels.triton_gradients import (
    cotangent_kernel,
    key_gradient_kernel,
    query_gradient_kernel,
)
from reference_impls.kernels.triton_kernels import forward_kernel
from reference_impls.kernels.triton_parts import weigh_kernel
from reference_impls.mechanism import Unsupported
from reference_impls.mtsa.optimized import least_denominator

ROWS = 32
"""Tokens of one program of the kernels that weigh: they do one thing per number."""
PACKED_FROM = 512
"""From this length on the rows of queries and keys are copied to where wide loads can read them."""


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
        if self.programs:
            own = {} if self.tile is None else {
                "num_warps": self.tile.warps, "num_stages": self.tile.stages
            }  # fmt: skip
            try:
                self.kernel[(self.programs,)](**self.arguments, **self.constants, **own)
            except OutOfResources as error:
                raise Unsupported(
                    f"triton: {' '.join(str(error).split())}; take fused_tiled, or narrower heads"
                ) from error


def packed(values: Tensor, always: bool = False) -> Tensor:
    """The values, or a copy with rows a multiple of 16 numbers apart, zeros at their ends.

    Only such rows load 16 bytes at a time and ahead of their use. For short sequences
    the copy costs more than it saves.

    Parameters
    ----------
    values : Tensor, shape [H, B, N, d], last axis dense
    always : bool
        Whatever the length.
    """
    width = values.shape[-1]
    steps = [step for step, size in zip(values.stride(), values.shape, strict=True) if size > 1]
    ready = width % 16 == 0 and all(step % 16 == 0 for step in steps[:-1])
    if ready or not width or (values.shape[2] < PACKED_FROM and not always):
        return values
    return torch.nn.functional.pad(values, (0, -width % 16)).contiguous()


@dataclass(frozen=True)
class Inputs:
    """What the forward and the backward pass are both given; see `triton_backend.attend`.

    ``seed`` and ``threshold`` are those of `Keep` as signed 32-bit numbers; threshold None is no
    dropout. ``precise``: see `triton_backend.triton_forward`.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    s: Tensor | None
    lo: Tensor
    hi: Tensor
    hole: Tensor
    slope: Tensor
    mask: Tensor | None
    identity: bool
    seed: int
    threshold: int | None
    precise: bool

    @property
    def source(self) -> int:
        """0 without s, 1 for one column, 2 for one per feature."""
        return 0 if self.s is None else 1 if self.s.shape[-1] == 1 else 2

    @property
    def numbers(self) -> Numbers:
        """Float16 has no room for exponentials: its weights are float32, its products TF32."""
        return "half" if self.q.dtype == torch.bfloat16 else "single"

    @property
    def products(self) -> torch.dtype:
        """Dtype of weights and weighed values."""
        return torch.bfloat16 if self.numbers == "half" else torch.float32

    @property
    def precision(self) -> str:
        """Of products of float32: three TF32 products make one, unless torch allows TF32 itself."""
        return "tf32x3" if self.precise else "tf32"

    @property
    def centred(self) -> bool:
        """Whether values are taken less their mean, see `triton_backend.centred`."""
        return centred(self.s, self.threshold, self.precise)

    @cached_property
    def single_slope(self) -> Tensor:
        """Slopes as the kernels read them, float32 [H]."""
        return self.slope.float()

    @cached_property
    def centre(self) -> Tensor:
        """Mean value over the real keys, float32 [H, B, D_V], or whatever stands in for it."""
        if not self.centred:
            return self.single_slope
        if self.mask is None:
            return self.v.mean(2, dtype=torch.float32).contiguous()
        kept = self.v.masked_fill(~self.mask[None, :, :, None], 0)
        total = kept.sum(2, dtype=torch.float32)
        return (total / self.mask.sum(1).clamp(min=1)[:, None]).contiguous()

    @property
    def pitch(self) -> int:
        """How far the rows of weighed values are apart."""
        return -(-self.v.shape[-1] // 16) * 16

    def tile(self, kind: Kind) -> Tile:
        """From the table."""
        width = max(self.q.shape[-1], self.v.shape[-1])
        return choose(kind, self.numbers, width, self.q.shape[2], roomy(self.q.device))

    @cached_property
    def real(self) -> Tensor:
        """The mask as bytes, or whatever stands in for it."""
        return self.hole if self.mask is None else self.mask.contiguous().view(torch.uint8)

    @cached_property
    def counts(self) -> Tensor:
        """Number of real keys up to and with each, int32 [B, N]."""
        if self.mask is None:
            return self.lo
        return self.mask.cumsum(1, dtype=torch.int32)

    @cached_property
    def ends(self) -> Tensor:
        """One past the last real token, int32 [B]."""
        if self.mask is None:
            return self.lo
        steps = torch.arange(1, self.mask.shape[1] + 1, dtype=torch.int32, device=self.mask.device)
        return (steps * self.mask).amax(1)

    @cached_property
    def bounds(self) -> tuple[Tensor, Tensor]:
        """Both ends of the ranges, with the same strides."""
        if self.lo.stride() == self.hi.stride():
            return self.lo, self.hi
        return self.lo.contiguous(), self.hi.contiguous()

    def maximum(self) -> Tensor:
        """Maximum of s over the real keys, float32 [H, B, 1, D_V or 1]; empty without s."""
        if self.s is None:
            return self.q.new_empty(0, dtype=torch.float32)
        s = self.s
        if self.mask is not None:
            s = s.masked_fill(~self.mask[None, :, :, None], -torch.inf)
        return s.amax(2, keepdim=True).float().contiguous()

    def weighed(self, maximum: Tensor) -> tuple[Tensor, Tensor, list[Launch]]:
        """The tensors w and e, and what fills them."""
        if self.s is None:
            return packed(self.v), self.q, []
        heads, batch, n, d_v = self.v.shape
        w = torch.empty(heads, batch, n, self.pitch, dtype=self.products, device=self.v.device)
        e = torch.empty_like(w) if self.source == 2 else torch.empty(
            heads, batch, n, dtype=torch.float32, device=w.device
        )  # fmt: skip
        arguments = {
            "v": self.v, "s": self.s, "highest": maximum, "centre": self.centre,
            "real": self.real, "w": w, "e": e,
            **_steps("v", self.v), **_steps("s", self.s), "real_b": n, "batch": batch, "n": n,
        }  # fmt: skip
        constants = {
            "SOURCE": self.source, "MASKED": self.mask is not None, "CENTRED": self.centred,
            "D_V": d_v, "PITCH": self.pitch, "WIDTH_V": power_of_two(d_v), "ROWS": ROWS,
        }  # fmt: skip
        programs = heads * batch * triton.cdiv(n, ROWS)
        return w, e, [Launch(weigh_kernel, programs, arguments, constants)]

    def common(
        self, q: Tensor, k: Tensor, w: Tensor, e: Tensor, tile: Tile
    ) -> tuple[int, dict[str, Any], dict[str, Any]]:
        """Programs, arguments and constants that the three large kernels share."""
        heads, batch, n, d_i = self.q.shape
        lo, hi = self.bounds
        arguments = {
            "q": q, "k": k, "w": w, "e": e, "real": self.real, "ends": self.ends, "lo": lo,
            "hi": hi, "hole": self.hole.view(torch.uint8), "slope": self.single_slope,
            **_steps("q", q), **_steps("k", k), **_steps("w", w), "real_b": n,
            "range_h": lo.stride(0), "range_b": lo.stride(1) if lo.shape[1] > 1 else 0,
            "heads": heads, "batch": batch, "n": n, "seed": self.seed,
            "threshold": self.threshold or 0,
        }  # fmt: skip
        masked = self.mask is not None
        constants = {
            "IDENTITY": self.identity, "SOURCE": self.source, "MASKED": masked,
            # Elsewhere weights are zero at padding, and padded keys can't be the row's maximum.
            "REAL": masked and (self.identity or self.source == 0),
            "DROPPED": self.threshold is not None, "D_I": d_i, "READ_Q": q.shape[-1],
            "READ_K": k.shape[-1], "READ_W": w.shape[-1], "WIDTH_I": power_of_two(d_i),
            "WIDTH_V": power_of_two(self.v.shape[-1]), "ROWS": tile.rows, "COLUMNS": tile.columns,
            "DOT": tl.bfloat16 if self.numbers == "half" else tl.float32,
            "PRECISION": self.precision,
        }  # fmt: skip
        return heads * batch * triton.cdiv(n, tile.rows), arguments, constants


def _steps(name: str, values: Tensor) -> dict[str, int]:
    """Strides of head, sample and token; 0 where there is one alone, so that it is one kernel."""
    return {
        f"{name}_{axis}": step if size > 1 else 0
        for axis, step, size in zip("hbn", values.stride(), values.shape, strict=False)
    }


@dataclass(frozen=True)
class Outputs:
    """What the forward pass writes: see `triton_backend.triton_forward`."""

    out: Tensor
    residue: Tensor
    flagged: Tensor
    inverse: Tensor
    top: Tensor
    maximum: Tensor


def forward(given: Inputs, found: Outputs, save: bool, tile: Tile | None = None) -> list[Launch]:
    """The launches of the forward pass, in their order."""
    tile = tile or given.tile("forward")
    w, e, launches = given.weighed(found.maximum)
    programs, arguments, constants = given.common(given.q, packed(given.k), w, e, tile)
    arguments |= {
        "centre": given.centre, "counts": given.counts, "out": found.out, "residue": found.residue,
        "inverse": found.inverse, "top": found.top,
        "flagged": found.flagged.view(torch.uint8),
        "least": least_denominator(torch.float32, given.q.shape[2]),
    }  # fmt: skip
    constants |= {"SAVE": save, "CENTRED": given.centred, "D_V": given.v.shape[-1]}
    return [*launches, Launch(forward_kernel, programs, arguments, constants, tile)]


def backward(
    given: Inputs,
    found: Outputs,
    g: Tensor,
    gradients: tuple[Tensor, Tensor, Tensor, Tensor],
    tiles: tuple[Tile, Tile] | None = None,
) -> list[Launch]:
    """The launches of the backward pass: g like ``found.out`` seen as [H, B, N, D_V].

    ``gradients`` are those of q, k, v and s to be filled; ``tiles`` those of the queries' and of
    the keys' gradients.
    """
    dq, dk, dv, ds = gradients
    heads, batch, n, d_i = given.q.shape
    d_v = given.v.shape[-1]
    for_queries, for_keys = tiles or (given.tile("query_gradient"), given.tile("key_gradient"))
    w, e, launches = given.weighed(found.maximum)
    dnum = torch.empty(heads, batch, n, given.pitch, dtype=given.products, device=g.device)
    dden = torch.empty_like(dnum) if given.source == 2 else torch.empty(
        heads, batch, n, dtype=torch.float32, device=g.device
    )  # fmt: skip
    widths = {"PITCH": given.pitch, "WIDTH_V": power_of_two(d_v)}
    launches.append(
        Launch(
            cotangent_kernel,
            heads * batch * triton.cdiv(n, ROWS),
            {
                "g": g, "out": found.residue if given.centred else found.out,
                "inverse": found.inverse, "dnum": dnum, "dden": dden,
                **_steps("g", g), "heads": heads, "batch": batch, "n": n,
            },
            {"SOURCE": given.source, "D_V": d_v, "ROWS": ROWS, **widths},
        )
    )  # fmt: skip
    own = {"top": found.top, "dnum": dnum, "dden": dden}
    q, k = packed(given.q), packed(given.k)
    if d_i:
        programs, arguments, constants = given.common(given.q, k, w, e, for_queries)
        arguments |= own | {"dq": dq, **_steps("dq", dq)}
        constants |= {"PITCH": given.pitch}
        launches.append(Launch(query_gradient_kernel, programs, arguments, constants, for_queries))
    programs, arguments, constants = given.common(q, given.k, w, e, for_keys)
    s = given.v if given.s is None else given.s
    arguments |= own | {
        "v": given.v, "s": s, "maximum": found.maximum, "centre": given.centre,
        "dk": dk, "dv": dv, "ds": ds,
        **_steps("v", given.v), **_steps("s", s), **_steps("dk", dk), **_steps("dv", dv),
        **(_steps("ds", ds) if given.source else {"ds_h": 0, "ds_b": 0, "ds_n": 0}),
    }  # fmt: skip
    constants |= {"CENTRED": given.centred, "D_V": d_v, "PITCH": given.pitch}
    return [*launches, Launch(key_gradient_kernel, programs, arguments, constants, for_keys)]
