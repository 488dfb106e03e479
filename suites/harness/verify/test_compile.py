"""Compiled by torch.compile every default implementation computes what it does without."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from suites.support.batches import assert_same, batch, build, run
from suites.support.configurations import DEFAULTS

torch.set_num_threads(1)

TELLING = [name for name in DEFAULTS if name.partition(".")[0] in ("none", "disa", "msmsa")]
"""Three that take little time: products alone, a softmax of our own, kernels that break the graph.
"""


@pytest.fixture(autouse=True)
def _forget_compiled_code() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++", "cl"))),
    reason="torch.compile needs a C++ compiler on a CPU",
)
@pytest.mark.parametrize(
    "name",
    [n if n in TELLING else pytest.param(n, marks=pytest.mark.nightly) for n in DEFAULTS],
)
def test_compiled_is_eager(name: str) -> None:
    module = build(name)
    compiled: Any = torch.compile(module)
    # One shape, compiled once; nothing of the first lengths may stay in the code.
    for seed, lengths in enumerate(((7, 4, 1, 0), (2, 7, 6, 3))):
        x, mask = batch(lengths, seed)
        wanted = run(module, x, mask)
        found = {n.removeprefix("_orig_mod."): t for n, t in run(compiled, x, mask).items()}
        assert_same(found, wanted, 1e-11)
