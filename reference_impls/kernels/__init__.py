"""Attention over ranges of keys, with source2token weights: one mathematics, several machines.

Mechanisms call `core.attend`, which chooses a backend; each backend is a folder with a function
`attend`. This module holds the records of what runs on them, alike for every mechanism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reference_impls.mechanism import Implementation, Size


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
    made = (
        Implementation(
            "fused",
            factory,
            "nothing of N x N, on the kernel that suits device, dtype and shape",
            mask_optional=True,
        ),
        Implementation(
            "fused_tiled",
            factory,
            "the same in pure PyTorch, some queries at a time",
            {"backend": "tiled"},
            mask_optional=True,
            transient_bytes=tiled_bytes,
        ),
        Implementation(
            "fused_native",
            factory,
            "the same in C++, compiled when it is first used",
            {"backend": "native"},
            devices=("cpu",),
            mask_optional=True,
            transient_bytes=native_bytes,
        ),
        Implementation(
            "fused_triton",
            factory,
            "the same in Triton",
            {"backend": "triton"},
            devices=("cuda",),
            mask_optional=True,
        ),
        Implementation(
            "fused_flex",
            factory,
            "the same by torch's FlexAttention",
            {"backend": "flex"},
            devices=("cuda",),
            mask_optional=True,
        ),
    )
    return tuple(replace(one, operations=operations) for one in made)
