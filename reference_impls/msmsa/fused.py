"""Windows by the kernels for ranges of keys: nothing over N x N, no tile outside of a window.

The range of a head is half to either side of the query, in every sample by its own real length;
there are no source scores, and the pairs' weights are exp(score - maximum): plain softmax.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from reference_impls.checks import one_of, refuse_rows
from reference_impls.kernels.caching import TensorCache
from reference_impls.kernels.geometry import LENGTHS_CACHED, Geometry
from reference_impls.merged import MergingModule
from reference_impls.msmsa.modules import Heads, Mix, MsmsaLayer
from reference_impls.msmsa.scales import Scale
from reference_impls.msmsa.tiles import Group
from reference_impls.msmsa.windowed import output_product, project_groups, reaches

BACKENDS = ("auto", "native", "tiled", "triton", "flex")


def windows(
    scales: Sequence[Scale], length: int, mask: Tensor | None, device: torch.device
) -> Geometry:
    """The range of every head: of every sample where there is padding, without a wait for it."""
    if mask is None:
        # Filled on the device: a copy from the host can't be captured in a CUDA graph.
        halves = [min(length, int(scale.half(length))) for scale in scales]
        made = [torch.full((1,), half, dtype=torch.int32, device=device) for half in halves]
        half = torch.stack(made)  # [H, 1]
    else:
        half = reaches(scales, mask).clamp(max=length).T.to(torch.int32).contiguous()  # [H, B]
    count = len(scales)
    return Geometry(
        -half,
        half,
        torch.zeros(count, dtype=torch.bool, device=device),
        torch.zeros(count, device=device),
    )


_cache: TensorCache[Geometry] = TensorCache(LENGTHS_CACHED)


def cached_windows(scales: tuple[Scale, ...], length: int, like: Tensor) -> Geometry:
    """`windows` without padding, one object for all calls."""

    def make() -> Geometry:
        return windows(scales, length, None, like.device)

    return _cache.of((scales, length, like.device), like.device, make)


def _groups(scales: Sequence[Scale], length: int) -> list[Group]:
    """Heads that see themselves alone, which need no kernel, and all others."""
    alone = tuple(h for h, scale in enumerate(scales) if scale.half(length) == 0)
    wide = tuple(h for h in range(len(scales)) if h not in alone)
    groups = [Group("alone", alone, tuple(scales[h] for h in alone), 0)] if alone else []
    if wide:
        some = tuple(scales[h] for h in wide)
        groups.append(Group("tiles", wide, some, max(scale.half(length) for scale in some)))
    return groups


def fused_mix(
    x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None, backend: str = "auto"
) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out], in memory N * d_out."""
    refuse_rows(rows)
    from reference_impls.kernels import core  # what it loads is for those who compute

    d, n = heads.q_w.shape[2], int(x.shape[1])
    groups = _groups(heads.scales, n)
    if backend != "auto" and all(group.method == "alone" for group in groups):
        core.require(backend)  # at other lengths it would be needed: no answer by chance
    y = project_groups(x, heads, groups)  # [B, N, W]
    done: list[Tensor] = []
    for group in groups:
        if group.method == "alone":
            done.append(y[..., : len(group.heads) * d])
            continue
        wide = y[..., -3 * len(group.heads) * d :].unflatten(-1, (3, len(group.heads), d))
        q, k, v = wide.permute(2, 3, 0, 1, 4).unbind(0)  # [G, B, N, d_h]
        if mask is None:
            geometry = cached_windows(group.scales, n, x)
        else:
            geometry = windows(group.scales, n, mask, x.device)
        attended = core.attend(q, k, v, None, geometry, mask, "identity", None, backend)
        done.append(attended.permute(1, 2, 0, 3).flatten(2))  # [B, N, G * d_h], a view
    joined = done[0] if len(done) == 1 else torch.cat(done, dim=-1)
    return output_product(joined, heads, groups)


class Fused(MergingModule):
    """Chooses a backend; stands before the layer that asks for a `mix`.

    Parameters
    ----------
    backend : {"auto", "native", "tiled", "triton", "flex"}
        auto is chosen by shape, device and pass, see `reference_impls.kernels.core`.
    """

    mix: Mix

    def __init__(self, *arguments: Any, backend: str = "auto", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.backend = one_of("backend", backend, BACKENDS)
        self.mix = partial(fused_mix, backend=backend)


class FusedMsmsa(Fused, MsmsaLayer):
    """`MsmsaLayer` by the kernels for ranges of keys."""
