"""Which backend `auto` is: by device, dtype, shape and pass, from a table that was measured.

``python -m reference_impls.kernels.choice --measure`` measures it on this machine and prints it.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

import torch

from reference_impls.kernels.constant import constant
from reference_impls.kernels.sizes import WIDEST
from reference_impls.mechanism import Unsupported

LENGTHS = (16, 64, 256, 1024, 4096)
"""What was measured; a length in between is as the nearest one, by its logarithm."""
FEW_SEQUENCES = 32
"""Heads times samples up to which the first row of a cell holds, beyond it the second."""

Table = Mapping[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]]

FASTEST: Table = {
    ("float32", "forward"): (("native",) * 5, ("native",) * 5),
    ("float32", "training"): (("native",) * 5, ("native",) * 5),
    ("bfloat16", "forward"): (("native",) * 5, ("native",) * 5),
    ("bfloat16", "training"): (("native",) * 5, ("native",) * 5),
    ("float16", "forward"): (("native",) * 5, ("native",) * 5),
    ("float16", "training"): (("native",) * 5, ("native",) * 5),
    ("float64", "forward"): (("native",) * 5, ("native",) * 5),
    ("float64", "training"): (("native",) * 5, ("native",) * 5),
}
"""On a CPU, one thread: dtype and pass -> names at `LENGTHS`, for few and for many sequences."""


def choose(
    device: str, dtype: torch.dtype, sequences: int, length: int, training: bool, dropping: bool,
    width: int = 0,
) -> str:  # fmt: skip
    """Name of the backend for a call.

    Parameters
    ----------
    device : str
        Its type.
    dtype : torch.dtype
    sequences, length : int
        Heads times samples, and N.
    training : bool
        Whether a backward pass is to follow.
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
    row = FASTEST.get((_name(dtype), "training" if training else "forward"))
    if device != "cpu" or row is None:
        return "tiled"
    # No index by a comparison: torch.compile with dynamic shapes knows no number of it.
    few, many = row
    fastest = (few if sequences <= FEW_SEQUENCES else many)[nearest(length)]
    if fastest == "tiled" or available(fastest):
        return fastest
    tell_failure()
    return "tiled"


def _widest_of_triton(dtype: torch.dtype) -> int:
    from reference_impls.kernels.triton_backend import widest

    return widest(dtype)


def nearest(length: int) -> int:
    """Index of the measured length that is nearest on a logarithmic scale."""
    for index, (here, following) in enumerate(pairwise(LENGTHS)):
        if length * length <= here * following:
            return index
    return len(LENGTHS) - 1


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@constant
def available(backend: str) -> bool:
    """Whether a backend can be had on this machine: its packages, a device, a kernel."""
    return _available(backend)


@cache
def _available(backend: str) -> bool:
    from reference_impls.kernels.core import MODULES

    if importlib.util.find_spec(MODULES[backend]) is None:
        return False
    if backend == "triton":
        return not importlib.import_module(MODULES[backend]).usable()
    if backend == "flex":
        return torch.cuda.is_available()
    if backend == "native":
        loader = importlib.import_module(MODULES[backend] + ".loader")
        try:
            loader.library()
        except Unsupported as error:
            if not loader.without_compiler():
                _failed.append(str(error))
            return False
    return True


_failed: list[str] = []
"""Why the native kernel could not be built, though there is a compiler; told ones are taken off."""


@constant
def tell_failure() -> None:
    """Warn, once a process, where a build that failed makes the choice a slower one."""
    while _failed:
        warnings.warn(f"fused_tiled runs in place of fused_native: {_failed.pop()}", stacklevel=2)


def main(arguments: list[str]) -> int:
    """The command; 2 where it is used in another way."""
    if arguments != ["--measure"]:
        print("usage: python -m reference_impls.kernels.choice --measure", file=sys.stderr)
        return 2
    from reference_impls.kernels import measuring

    measuring.print_table()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
