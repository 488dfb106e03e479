"""Gradients against finite differences, for what is computed and for what it is compared with."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

from suites.support.batches import batch, build
from suites.support.configurations import PLAIN_AND_DEFAULT, by_day, with_variants

torch.set_num_threads(1)

TILED = [f"{name}.fused_tiled" for name in ("mtsa", "mtsa_released", "mtsa_nmt", "mtsa_stack")]
"""Their backward pass is written by hand."""
POLICY = re.compile(r"(head|dep|sel)_[wb][12]")
"""Weights that decide: a selection has no gradient, and finite differences may cross it."""


def _weights(module: nn.Module) -> list[nn.Parameter]:
    named = module.named_parameters()
    return [p for name, p in named if p.requires_grad and not POLICY.fullmatch(name)]


@pytest.mark.parametrize("name", PLAIN_AND_DEFAULT)
def test_every_number_of_x(name: str) -> None:
    x, mask = batch((3,))
    module = build(name)
    assert gradcheck(lambda x: module(x, mask), (x.requires_grad_(),), atol=1e-6)


@pytest.mark.parametrize(("name", "variant"), by_day(with_variants([*PLAIN_AND_DEFAULT, *TILED])))
def test_x_and_weights_in_a_random_direction(name: str, variant: str) -> None:
    torch.manual_seed(0)
    x, mask = batch((5, 3, 0), seed=5)
    module = build(name, variant)
    # The weights are changed in place: the module sees it, what is handed over need not be read.
    given = (x.requires_grad_(), *_weights(module))
    assert gradcheck(lambda x, *weights: module(x, mask), given, atol=1e-5, fast_mode=True)
