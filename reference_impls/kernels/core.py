"""One door to all backends: choose, compute, and repair what underflowed."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from reference_impls.checks import host_can_decide
from reference_impls.kernels import choice, exact
from reference_impls.kernels.constant import constant
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.keeping import Keep
from reference_impls.kernels.repair import repaired, replaced
from reference_impls.mechanism import BadOption, Unsupported

MODULES: Mapping[str, str] = {
    "native": "reference_impls.kernels.native",
    "tiled": "reference_impls.kernels.tiled",
    "triton": "reference_impls.kernels.triton_backend",
    "flex": "reference_impls.kernels.flex",
}
"""Module of each backend, imported when it is first wanted; it has a function `attend`."""
BACKENDS = ("auto", *MODULES)

Attend: TypeAlias = Callable[..., tuple[Tensor, Tensor]]

_loaded: dict[str, Attend] = {}
_ran = ""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    geometry: Geometry,
    mask: Tensor | None,
    scale_t: str,
    keep: Keep | None = None,
    backend: str = "auto",
) -> Tensor:
    """``a_il = sum_j keep_ij P_ij v_jl E_jl / sum_j P_ij E_jl``, E = exp(s), by a backend.

    Parameters
    ----------
    q, k, v, s, geometry, mask, scale_t, keep
        As `reference_impls.kernels.tiled.attend` takes them; of several dtypes the widest is used.
    backend : {"auto", "native", "tiled", "triton", "flex"}
        "auto" is what `reference_impls.kernels.choice` says.

    Returns
    -------
    Tensor, shape [H, B, N, d_v]
        In the dtype of q, a view of [B, N, H, d_v]; 0 for padded queries and those without an open
        key. Queries whose denominators underflow are computed again, exactly, which costs a
        decision of the host: in torch.compile inside an operator of its own, while in CUDA graph
        capture, where there is none, they are NaN instead.

    Raises
    ------
    Unsupported
        If a backend that was named can't do it. There is no other in its place.
    """
    device = q.device.type
    if torch.is_autocast_enabled(device):
        with torch.autocast(device, enabled=False):
            return _attend(q, k, v, s, geometry, mask, scale_t, keep, backend)
    return _attend(q, k, v, s, geometry, mask, scale_t, keep, backend)


def ran() -> str:
    """Name of the backend of the last call; empty before the first."""
    return _ran


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    geometry: Geometry,
    mask: Tensor | None,
    scale_t: str,
    keep: Keep | None,
    backend: str,
) -> Tensor:
    global _ran
    wanted = q.dtype
    for t in (k, v, s):
        wanted = wanted if t is None else torch.promote_types(wanted, t.dtype)
    q_, k_, v_ = (t if t.dtype == wanted else t.to(wanted) for t in (q, k, v))
    s_ = s if s is None or s.dtype == wanted else s.to(wanted)
    if backend == "auto":
        training = torch.is_grad_enabled() and any(
            t is not None and t.requires_grad for t in (q, k, v, s)
        )
        heads, batch, n, _ = v.shape
        backend = choice.choose(
            q.device.type, wanted, heads * batch, n, training, keep is not None,
            max(q.shape[3], v.shape[3]),
        )  # fmt: skip
    load(backend)
    a, flagged = _loaded[backend](q_, k_, v_, s_, geometry, mask, scale_t, keep)
    _ran = backend
    if not host_can_decide(q):
        g = geometry
        return repaired(
            a, flagged, q_, k_, v_, s_, g.lo, g.hi, g.hole, g.slope, mask, scale_t,
            0 if keep is None else keep.seed, -1.0 if keep is None else keep.probability,
        ).to(q.dtype)  # fmt: skip
    if not bool(flagged.any()):
        return a.to(q.dtype)
    where = flagged.flatten().nonzero().squeeze(1)  # [R]
    again = exact.recomputed(where, q_, k_, v_, s_, geometry, mask, scale_t, keep)  # [R, d_v]
    return replaced(a, where, again).to(q.dtype)


@constant
def load(backend: str) -> bool:
    """Import a backend's function; torch.compile calls it once, while it traces.

    Raises
    ------
    BadOption
        If there is no backend of that name.
    Unsupported
        If its module needs something that is not installed.
    """
    if backend not in MODULES:
        raise BadOption(f"backend={backend!r}; expected {' or '.join(map(repr, BACKENDS))}")
    if backend not in _loaded:
        try:
            _loaded[backend] = importlib.import_module(MODULES[backend]).attend
        except ModuleNotFoundError as error:
            raise Unsupported(f"backend {backend} needs {error.name}, which is not here") from error
    return True


@constant
def require(backend: str) -> bool:
    """`load`, and build what it needs: for a layer that was told a backend and has no pairs for it.

    Raises
    ------
    BadOption, Unsupported
        As `load`; also if the native kernel can't be built here.
    """
    load(backend)
    if backend == "native":
        importlib.import_module(MODULES[backend] + ".loader").library()
    return True
