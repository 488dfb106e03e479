"""What Triton's kernels can do on this machine: asked without importing triton."""

from __future__ import annotations

import importlib.util
import os
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

from reference_impls.kernels.caching import constant
from reference_impls.kernels.triton.tiles import LARGE_SHARED_BYTES, WIDEST, WIDEST_SMALL

OLDEST = (8, 0)
"""Compute capability that has bfloat16 and TF32."""


def interpreted() -> bool:
    """Whether Triton's interpreter is asked for."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def usable() -> str:
    """Why the kernels can't run on this machine, in one line; empty where they can."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing; pip install triton (it comes with torch for CUDA)"
    if interpreted():
        return ""
    if not torch.cuda.is_available():
        return "no CUDA device is here; set TRITON_INTERPRET=1 for Triton's interpreter"
    capability = torch.cuda.get_device_capability()
    if capability < OLDEST:
        return f"the device has compute capability {capability}; expected {OLDEST} or later"
    return ""


@cache
def present() -> bool:
    """Whether kernels can run here, asked once a process."""
    return not usable()


def current(values: Tensor) -> AbstractContextManager[object]:
    """The device of the values made the current one, as Triton launches on that."""
    return torch.cuda.device(values.device) if values.is_cuda else nullcontext()


def widest(dtype: torch.dtype, device: torch.device | None = None) -> int:
    """The widest head that the kernels can do on a device, the current one where none is given."""
    return WIDEST if dtype == torch.bfloat16 or large_tiles(device) else WIDEST_SMALL


@constant
def large_tiles(device: torch.device | None = None) -> bool:
    """Whether one program may have the shared memory that the large tiles take."""
    if interpreted():
        return True
    named = None if device is None else device.index
    return (
        _shared_bytes(torch.cuda.current_device() if named is None else named) >= LARGE_SHARED_BYTES
    )


@constant
def architecture(device: torch.device | None = None) -> int:
    """Whose tiles a device takes: 90 where warp groups multiply, or more than they, else 80.

    RTX cards of 12.0 multiply by warps.
    """
    if interpreted():
        return 90
    return 90 if torch.cuda.get_device_capability(device)[0] in (9, 10) else 80


@cache
def _shared_bytes(device: int) -> int:
    """What one program may have on a device, as triton asks it: torch hides it on some builds."""
    from triton.runtime import driver

    return int(driver.active.utils.get_device_properties(device)["max_shared_mem"])


@constant
def exact() -> bool:
    """Whether torch's own products of float32 on CUDA are exact, by its newer setting or its older.

    The older one raises an error where the newer one was used. torch.compile looks at it in its
    guards: another setting is another graph.
    """
    matmul = torch.backends.cuda.matmul
    own = getattr(matmul, "fp32_precision", "none")
    if own == "none":  # what stands for all of CUDA, then for everything, counts
        own = getattr(torch.backends.cuda, "fp32_precision", "none")
    if own == "none":
        own = getattr(torch.backends, "fp32_precision", "none")
    return not matmul.allow_tf32 if own == "none" else own != "tf32"
