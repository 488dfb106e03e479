"""Modules at odd lengths, magnitudes, layouts, modes and numbers of threads; and compiled."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from suites.support.batches import (
    D_IN,
    DEFAULTS,
    assert_same,
    batch,
    build,
    cotangent_of,
    error,
    module_of,
    run,
)
from suites.support.parameters import few, has_compiler

torch.set_num_threads(1)

MAGNITUDES = (1e-3, 1e2)
TELLING = [name for name in DEFAULTS if name.partition(".")[0] == "disa"]
"""Compiled in every run, for it takes little time: products, and a softmax of our own."""


def plain_of(name: str) -> nn.Module:
    """The plain implementation with the same weights."""
    plain = build(f"{name.partition('.')[0]}.plain")
    plain.load_state_dict(module_of(name).state_dict())
    return plain


def assert_finite(found: dict[str, Tensor], *where: object) -> None:
    """Assert that an output and its gradients are numbers."""
    for what, tensor in found.items():
        assert tensor.isfinite().all(), (what, *where)


@pytest.mark.parametrize("magnitude", MAGNITUDES)
@pytest.mark.parametrize("name", DEFAULTS)
def test_lengths_and_magnitudes(name: str, magnitude: float) -> None:
    module, plain = module_of(name), plain_of(name)
    single = copy.deepcopy(module).float()
    for lengths in ((1,), (2, 1), (3, 2), (5, 4), (13, 5)):
        x, mask = batch(lengths)
        x = magnitude * x
        found, wanted = run(module, x, mask), run(plain, x, mask)
        # However small the output is. A gradient may be next to nothing, its terms are not.
        largest = {"output": wanted["output"].abs().max()}
        of_gradients = max(float(t.abs().max()) for what, t in wanted.items() if what != "output")
        for what, tensor in wanted.items():
            scale = float(largest.get(what, max(1.0, of_gradients)))
            assert float((found[what] - tensor).abs().max()) <= 1e-11 * scale, (what, lengths)
        assert_finite(run(single, x.float(), mask), lengths)


@pytest.mark.parametrize("name", DEFAULTS)
def test_a_long_sequence(name: str) -> None:
    x, mask = batch((257, 64))
    module, plain = module_of(name), plain_of(name)
    with torch.no_grad():
        assert error(module(x, mask), plain(x, mask)) < 1e-10
    for magnitude in MAGNITUDES:
        assert_finite(run(copy.deepcopy(module).float(), magnitude * x.float(), mask))


@pytest.mark.parametrize("name", DEFAULTS)
def test_layout_of_the_input_does_not_matter(name: str) -> None:
    x, mask = batch((7, 4))
    wanted = run(module_of(name), x, mask)
    transposed = x.transpose(0, 1).contiguous().transpose(0, 1)
    features_first = x.transpose(1, 2).contiguous().transpose(1, 2)
    every_second = torch.full((4, 14, 2 * D_IN), math.nan, dtype=x.dtype)[::2, ::2, ::2].copy_(x)
    part = torch.full((2, 9, D_IN + 3), math.nan, dtype=x.dtype)[:, 1:8, 2:-1].copy_(x)
    masks = (
        mask,
        mask.T.contiguous().T,
        torch.ones(2, 14, dtype=torch.bool)[:, ::2].copy_(mask),
        mask[:1].expand(2, -1),
    )
    for strided in (transposed, features_first, every_second, part):
        assert not strided.is_contiguous()
        for given in masks[:3]:
            out = module_of(name)(strided, given)
            assert error(out, wanted["output"]) < 1e-12
    with torch.no_grad():
        once = x[:1].expand(2, -1, -1)
        full = module_of(name)(once.contiguous(), masks[3].contiguous())
        assert error(module_of(name)(once, masks[3]), full) < 1e-12
    # The gradient of a non-contiguous leaf.
    leaf = features_first.detach().requires_grad_()
    out = module_of(name)(leaf, mask)
    (out * cotangent_of(out)).sum().backward()
    assert leaf.grad is not None
    assert error(leaf.grad, wanted["x"]) < 1e-12


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_input_and_the_mask_are_left_as_they_were(name: str) -> None:
    x, mask = batch((7, 4), padding=math.nan)
    kept, kept_mask = x.clone(), mask.clone()
    run(module_of(name), x, mask)
    module_of(name)(x, mask)
    assert torch.equal(x.nan_to_num(7), kept.nan_to_num(7))
    assert torch.equal(mask, kept_mask)


@pytest.mark.parametrize("name", DEFAULTS)
def test_training_and_evaluation_are_the_same_without_dropout(name: str) -> None:
    module = copy.deepcopy(module_of(name))
    x, mask = batch((7, 4, 0))
    training = run(module.train(), x, mask)
    assert_same(run(module.eval(), x, mask), training, 0.0)
    with torch.inference_mode():
        assert error(module(x, mask), training["output"]) < 1e-12
    assert_same(run(module.train(), x, mask), training, 0.0)


@pytest.mark.parametrize("name", DEFAULTS)
def test_gradients_are_computed_where_they_are_wanted(name: str) -> None:
    module = copy.deepcopy(module_of(name))
    x, mask = batch((7, 4))
    wanted = run(module, x, mask)
    module.zero_grad()
    out = module(x, mask)  # x wants none
    assert error(out, wanted["output"]) == 0
    if list(module.parameters()):
        (out * cotangent_of(out)).sum().backward()
        for name_of, parameter in module.named_parameters():
            if parameter.grad is not None:
                assert error(parameter.grad, wanted[name_of]) < 1e-12, name_of
    module.requires_grad_(False)
    assert not module(x, mask).requires_grad
    found = run(module, x, mask)  # only x wants one
    assert error(found["x"], wanted["x"]) < 1e-12
    assert found.keys() == {"output", "x"}


@pytest.mark.parametrize("name", DEFAULTS)
def test_threads_change_nothing(name: str) -> None:
    x, mask = batch((33, 20))
    wanted = run(module_of(name), x, mask)
    torch.set_num_threads(2)
    try:
        found = run(module_of(name), x, mask)
    finally:
        torch.set_num_threads(1)
    assert_same(found, wanted, 1e-11)


@pytest.fixture
def _forget_compiled_code() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


@pytest.mark.skipif(not has_compiler(), reason="torch.compile needs a C++ compiler on a CPU")
@pytest.mark.usefixtures("_forget_compiled_code")
@pytest.mark.parametrize("name", few(DEFAULTS, TELLING))
def test_compiled_is_eager(name: str) -> None:
    module = build(name)
    compiled: Any = torch.compile(module)
    # One shape, compiled once; nothing of the first lengths may stay in the code.
    for seed, lengths in enumerate(((7, 4, 1, 0), (2, 7, 6, 3))):
        x, mask = batch(lengths, seed)
        wanted = run(module, x, mask)
        found = {n.removeprefix("_orig_mod."): t for n, t in run(compiled, x, mask).items()}
        assert_same(found, wanted, 1e-11)
