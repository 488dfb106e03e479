"""Gradients of torch's fused attention lie in memory as its outputs do.

Where they do not, cuDNN's backward pass (torch 2.11, on an H200) gives other numbers.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.registry import Registry, resolve

MODULES = ("multi_head.fused", "msmsa.modules", "transformer.modules")
REGISTRY = Registry()
NAMES = [
    f"{mechanism}.{name}"
    for mechanism in (
        *("multi_head", "multi_head_released", "multi_head_relu"),
        *("msmsa", "msmsa_layer", "multi_scale_transformer", "transformer"),
    )
    for name in ("sdpa", "sdpa_padded", "masked")
    if name in {one.name for one in REGISTRY.mechanism(mechanism).implementations}
]


class Laid(torch.autograd.Function):
    """A copy whose axes lie in memory in a given order, as cuDNN makes it of the queries'."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, order: tuple[int, ...]) -> Tensor:
        back = [order.index(axis) for axis in range(values.dim())]
        return values.permute(order).contiguous().permute(back)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g, None


def played(strides: list[tuple[list[int], list[int]]]) -> Any:
    """Attention that notes the strides of its gradient and of its output, where there are two."""

    def attend(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        attn_mask: Tensor | None = None,
        is_causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        assert not is_causal
        r = q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1]))
        if attn_mask is not None:
            closed = attn_mask.dtype == torch.bool
            r = r.masked_fill(~attn_mask, -math.inf) if closed else r + attn_mask
        order = sorted(range(q.dim()), key=q.stride, reverse=True)
        out: Tensor = Laid.apply(r.softmax(-1) @ v, tuple(order))

        def note(g: Tensor) -> None:
            many = [axis for axis, size in enumerate(g.shape) if size > 1]
            strides.append(([g.stride(a) for a in many], [out.stride(a) for a in many]))

        out.register_hook(note)
        return out

    return attend


@pytest.mark.parametrize("name", NAMES)
def test_gradients_lie_as_the_outputs_that_they_are_of(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strides: list[tuple[list[int], list[int]]] = []
    for module in MODULES:
        where = f"reference_impls.{module}.scaled_dot_product_attention"
        monkeypatch.setattr(where, played(strides))
    mechanism, implementation = REGISTRY.find(name)
    plain = {v: options for v, options in mechanism.variants.items() if "causal" not in options}
    for options in ({}, *plain.values()):
        given = {"heads": 4, **mechanism.options, **implementation.options, **options}
        module = resolve(implementation.factory)(80, 80, **given)
        for n in (7, 65, 257):
            x, mask = torch.randn(2, n, 80), torch.arange(n) < torch.tensor([n, n // 2])[:, None]
            out = module(x, mask)
            out.backward(torch.randn_like(out))
    assert len(strides) >= 3
    assert all(of_gradient == own for of_gradient, own in strides)
