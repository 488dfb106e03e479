"""The Triton kernels with the tiles that the table holds, at the sizes of setting A and long ones.

In Triton's interpreter these take minutes: a nightly child runs them, or a device does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reference_impls.kernels import triton
from reference_impls.mechanism import Unsupported
from suites.reference_impls.kernels.test_triton import (
    DEVICE,
    INTERPRETED,
    VERSION,
    _bfloat16_products,
    runs_kernels,
)
from suites.support.attending import EVERY, Problem, assert_agrees, masks_of, with_leaves

torch.set_num_threads(1)
__all__ = ["_bfloat16_products"]

WIDTHS, SHORT, LONG = (64, 75, 128), (1, 63, 64, 65), ((64, 512), (75, 1000), (128, 1000))
BEYOND = 2**31 + 8
"""Elements from a sample to the next, more than 32 bits tell."""


@pytest.mark.skipif(
    INTERPRETED or torch.cuda.is_available(), reason="the tests run the kernels themselves"
)
@pytest.mark.skipif(VERSION < (3, 9), reason="an older interpreter does not know numpy 2.4")
@pytest.mark.nightly
def test_in_the_interpreter() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    child = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=3000, check=False,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert child.returncode == 0, child.stdout[-6000:] + child.stderr[-2000:]
    passed = re.search(r"(\d+) passed", child.stdout)
    assert passed is not None
    assert int(passed[1]) > 30, child.stdout[-500:]


@runs_kernels
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("n", SHORT)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_mask_around_the_edges_of_a_tile(width: int, n: int, dtype: torch.dtype) -> None:
    problem = Problem(
        n=n, batch=1, d_i=width, d_v=width, columns=width, masks=EVERY, padding="tail", scale=0.3
    )
    assert_agrees(triton.attend, problem.call(dtype, DEVICE))


@runs_kernels
@pytest.mark.parametrize("mask", ["forward", "backward", "window:3"])
@pytest.mark.parametrize(("width", "n"), LONG)
def test_many_tiles(width: int, n: int, mask: str) -> None:
    problem = Problem(
        n=n, batch=1, d_i=width, d_v=width, columns=width, masks=masks_of(mask), scale=0.3
    )
    assert_agrees(triton.attend, problem.call(torch.bfloat16, DEVICE))


@runs_kernels
def test_samples_further_apart_than_32_bits_tell() -> None:
    call = Problem(n=20, d_i=64, d_v=64, columns=64, scale=0.3).call(torch.bfloat16, DEVICE)

    def far(t: Tensor) -> Tensor:
        heads, batch, n, width = t.shape
        room = torch.empty(BEYOND + heads * n * width, dtype=t.dtype, device=t.device)
        view = room.as_strided(t.shape, (n * width, BEYOND, width, 1))
        assert batch == 2
        return view.copy_(t)

    found: list[Any] = []
    for change in (far, torch.clone):
        changed = with_leaves(call, change)
        a, _ = triton.attend(changed)
        a.backward(torch.ones_like(a))
        found.append([a, *(t.grad for t in changed[:4] if t is not None)])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@runs_kernels
def test_what_is_wider_is_refused() -> None:
    q = torch.zeros(1, 1, 2, 300, device=DEVICE)
    with pytest.raises(Unsupported, match="300 wide; expected at most 256"):
        triton.refuse(q, q)
