"""Attention over ranges of keys, with source2token weights: one mathematics, several machines.

Mechanisms call `core.attend`, which chooses a backend; each backend is a folder with a function
`attend`. This module holds the records of what runs on them, alike for every mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from reference_impls.mechanism import Implementation, Size

LONG = 1100
"""Where `tiled` cuts the queries of a sequence, in every dtype."""


def _may_not_look(a: object) -> bool:
    """The host, at values on a device: as in a compiled call."""
    return False


_Ways: TypeAlias = Mapping[str, Mapping[str, Any]]
_FEW: _Ways = {"few repaired at a time": {"reference_impls.kernels.underflow:CHUNK_BYTES": 2**16}}
REPAIRED: _Ways = {
    **_FEW,
    "repaired by the operator": {"reference_impls.kernels.core:host_can_decide": _may_not_look},
}
"""Ways of `core.exact` that a small problem does not take by itself."""
_CUT = {
    "reference_impls.kernels.tiled.cutting:SHORT": 16,
    "reference_impls.kernels.tiled.cutting:LEAST_QUERIES": 16,
    "reference_impls.kernels.tiled.cutting:SCORE_BYTES": {"cpu": 2**12, "cuda": 2**12},
}
_FORCED: Mapping[str, _Ways] = {
    "tiled": {**_FEW, "small pieces": _CUT},
    "native": _FEW,
    "triton": {},  # it decides nothing
    "flex": REPAIRED,
}


def implementations(
    factory: str,
    tiled_bytes: Callable[[Size], float] | None = None,
    native_bytes: Callable[[Size], float] | None = None,
    operations: Callable[[Size], float] | None = None,
) -> tuple[Implementation, ...]:
    """``fused`` and one for each backend.

    Parameters
    ----------
    factory : str
        Dotted; takes the option ``backend``.
    tiled_bytes, native_bytes : callable, optional
        `Implementation.transient_bytes` of ``fused_tiled`` and ``fused_native``.
    operations : callable, optional
        `Implementation.operations` of all of them: pairs that are closed are skipped.
    """
    rows: tuple[tuple[str, str, tuple[str, ...], Callable[[Size], float] | None], ...] = (
        ("tiled", "in pure PyTorch, some queries at a time", ("cpu", "cuda"), tiled_bytes),
        ("native", "in C++, compiled when it is first used", ("cpu",), native_bytes),
        ("triton", "in Triton", ("cuda",), None),
        ("flex", "by torch's FlexAttention", ("cuda",), None),
    )
    chosen = Implementation(
        "fused",
        factory,
        "nothing of N x N, on the kernel that suits device, dtype and shape",
        mask_optional=True,
        operations=operations,
        deterministic=True,
    )
    named = (
        replace(
            chosen,
            name=f"fused_{backend}",
            summary=f"the same {how}",
            options={"backend": backend},
            devices=devices,
            transient_bytes=held,
            long=LONG,
            forced=_FORCED[backend],
            # Torch makes the kernels of FlexAttention, and says nothing of their sums' order.
            deterministic=backend != "flex",
        )
        for backend, how, devices, held in rows
    )
    return chosen, *named
