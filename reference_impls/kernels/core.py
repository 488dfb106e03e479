"""One door to all backends: choose, compute, and compute again what underflowed."""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor

from reference_impls.checks import host_can_decide, in_dtype
from reference_impls.kernels import underflow
from reference_impls.kernels.caching import constant
from reference_impls.kernels.call import KernelCall, watched
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.sizes import WIDEST
from reference_impls.mechanism import BadOption, Unsupported

MODULES: Mapping[str, str] = {
    "native": "reference_impls.kernels.native",
    "tiled": "reference_impls.kernels.tiled",
    "triton": "reference_impls.kernels.triton",
    "flex": "reference_impls.kernels.flex",
}
"""Package of each backend, imported when it is first wanted; it has a function `attend`."""
BACKENDS = ("auto", *MODULES)
REPAIRING = ("native", "tiled", "triton")
"""Backends that compute flagged queries again themselves."""
OF_NATIVE = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
"""Dtypes in which the native kernel is the fastest on a CPU, at every length and batch measured."""

Attend: TypeAlias = Callable[[KernelCall], tuple[Tensor, Tensor]]

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
    dropout: PairDropout | None = None,
    backend: str = "auto",
) -> Tensor:
    """``a_il = sum_j keep_ij P_ij v_jl E_jl / sum_j P_ij E_jl``, E = exp(s), by a backend.

    Parameters
    ----------
    q, k, v, s, geometry, mask, scale_t, dropout
        Those of a `KernelCall`; of several dtypes the widest is used.
    backend : {"auto", "native", "tiled", "triton", "flex"}
        "auto" is what `choose` says.

    Returns
    -------
    Tensor, shape [H, B, N, d_v]
        In the dtype of q, a view of [B, N, H, d_v]; 0 for padded queries and those without an open
        key. Queries whose denominators underflow are computed again, exactly: on CUDA by kernels
        of their own (where there is no Triton the host decides, and in CUDA graph capture they are
        NaN), on a CPU by a decision of the host, in torch.compile inside an operator.

    Raises
    ------
    Unsupported
        If a backend that was named can't do it. There is no other in its place.
    """
    dtype, device = q.dtype, q.device.type
    for t in (k, v, s):
        if t is not None and t.dtype != dtype:
            dtype = torch.promote_types(dtype, t.dtype)
    q_, k_, v_ = (in_dtype(t, dtype) for t in (q, k, v))
    s_ = s if s is None else in_dtype(s, dtype)
    call = KernelCall(q_, k_, v_, s_, geometry, mask, scale_t, dropout)
    if backend == "auto":
        backend = choose(device, dtype, dropout is not None, max(q.shape[3], v.shape[3]))
    load(backend)
    if not torch.is_autocast_enabled(device):
        return in_dtype(_attend(call, backend), q.dtype)
    with torch.autocast(device, enabled=False):
        return _attend(call, backend).to(q.dtype)


def whole_layers(x: Tensor, backend: str) -> Any:
    """The native kernel's operators of whole layers, where one may take a layer's place, or None.

    Nothing may flow back and nobody may watch. Of few tokens, what Python takes between a layer's
    products is a third of the time; of many, nothing.
    """
    global _ran
    if torch.is_grad_enabled() or x.device.type != "cpu" or watched(x):
        return None
    if x.dtype not in (torch.float32, torch.float64) or torch.is_autocast_enabled("cpu"):
        return None
    if (choose("cpu", x.dtype) if backend == "auto" else backend) != "native":
        return None
    _ran = "native"
    return _loader().operators()


@cache
def _loader() -> Any:
    return importlib.import_module(MODULES["native"] + ".loader")


def ran() -> str:
    """Name of the backend of the last call; empty before the first."""
    return _ran


def _attend(call: KernelCall, backend: str) -> Tensor:
    global _ran
    a, flagged = _loaded[backend](call)
    _ran = backend
    return a if backend in REPAIRING else exact(a, flagged, call)


def exact(a: Tensor, flagged: Tensor, call: KernelCall) -> Tensor:
    """`a` [H, B, N, d_v] with its flagged queries [H, B, N] computed again."""
    if not host_can_decide(a) or underflow.on_device(a):
        return underflow.repaired(a, flagged, *call.flat())
    if not bool(flagged.any()):
        return a
    where = underflow.flat_places(flagged)
    return underflow.replaced(a, where, underflow.recomputed(where, call))


def choose(device: str, dtype: torch.dtype, dropping: bool = False, width: int = 0) -> str:
    """Name of the backend for a call.

    On a CPU the native kernel, which was the fastest of all in every dtype, forward and training,
    from 16 to 4,096 tokens, for few sequences and for many; the tiled one where there is none.
    On CUDA the first of triton, flex and tiled that can do it.

    Parameters
    ----------
    device : str
        Its type.
    dtype : torch.dtype
    dropping : bool
        Whether pairs are dropped.
    width : int
        Of a head, the widest of its keys and values.
    """
    if device == "cuda" and dtype != torch.float64:
        if available("triton") and width <= _widest_of_triton(dtype):
            return "triton"
        # It has one normaliser for all of a softmax: nothing can be dropped above it alone.
        return "flex" if width <= WIDEST["flex"] and not dropping and available("flex") else "tiled"
    if device != "cpu" or dtype not in OF_NATIVE:
        return "tiled"
    if available("native"):
        return "native"
    tell_failure()
    return "tiled"


def _widest_of_triton(dtype: torch.dtype) -> int:
    from reference_impls.kernels.triton.device import widest

    return widest(dtype)


@constant
def available(backend: str) -> bool:
    """Whether a backend can be had on this machine: its packages, a device, a kernel."""
    return _available(backend)


@cache
def _available(backend: str) -> bool:
    if importlib.util.find_spec(MODULES[backend]) is None:
        return False
    if backend == "triton":
        return not importlib.import_module(MODULES[backend]).usable()
    if backend == "flex":
        return torch.cuda.is_available()
    if backend == "native":
        try:
            _loader().library()
        except Unsupported as error:
            if not _loader().without_compiler():
                _failed.append(str(error))
            return False
    return True


_failed: list[str] = []
"""Why the native kernel could not be built, though there is a compiler; told ones are taken off."""


@constant
def tell_failure() -> None:
    """Warn, once a process, where a build that failed makes the choice a slower one."""
    while _failed:
        warnings.warn(
            f"slower code runs in place of the native kernels: {_failed.pop()}", stacklevel=2
        )


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
        _loader().library()
    return True
