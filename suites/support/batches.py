"""Modules, batches and comparisons for the tests of the torch modules among themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.build import make
from harness.registry import builtins
from reference_impls.mechanism import Mechanism

D_IN, D_OUT, HEADS = 12, 16, 4
MECHANISMS = builtins()
FAST = [
    f"{m.name}.{i.name}"
    for m in MECHANISMS.values()
    for i in m.implementations
    if i.name != "plain" and "cpu" in i.devices
]
PLAIN = [f"{m}.plain" for m in MECHANISMS]
WITH_VARIANTS = [
    (name, label)
    for name in FAST
    for label in ("default", *MECHANISMS[name.partition(".")[0]].variants)
]


def widths(mechanism: Mechanism, options: Mapping[str, Any]) -> tuple[int, int]:
    """d_in and d_out that suit a mechanism's options."""
    if mechanism.keeps_width:
        return D_IN, D_IN
    kernels = {**mechanism.options, **options}.get("kernel_sizes")
    return D_IN, 4 * len(kernels) if kernels else D_OUT


class LargestTensor(TorchDispatchMode):
    """Bytes of the largest memory behind any tensor that an operation returns."""

    bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for made in tree_leaves(result):
            if isinstance(made, Tensor):
                self.bytes = max(self.bytes, made.untyped_storage().nbytes())
        return result


def build(name: str, variant: str = "default", seed: int = 0) -> nn.Module:
    """A module in float64 with biases that are not zero; the same weights for one mechanism."""
    mechanism = MECHANISMS[name.partition(".")[0]]
    implementation = mechanism.implementation(name.partition(".")[2])
    options = {**mechanism.options, **mechanism.variants.get(variant, {}), **implementation.options}
    heads = options.pop("heads", HEADS) if mechanism.takes_heads else 0
    d_in, d_out = widths(mechanism, options)
    module = make(mechanism, implementation.factory, d_in, d_out, heads, options, seed).double()
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    return module


def fresh(module: nn.Module, name: str) -> nn.Module:
    """Another module with the same weights, which has never been called."""
    other = build(name).to(next(module.parameters()).dtype)
    other.load_state_dict(module.state_dict())
    return other.eval()


def batch(lengths: tuple[int, ...], seed: int = 1, padding: float = 0.0) -> tuple[Tensor, Tensor]:
    """A float64 batch [B, N, D_IN] and its mask; ``padding`` is what x holds where it is false."""
    n = max(lengths)
    x = torch.randn(
        len(lengths), n, D_IN, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    mask = torch.arange(n) < torch.tensor(lengths)[:, None]
    return x.masked_fill(~mask[..., None], padding), mask


def run(module: nn.Module, x: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
    """Output and all gradients of a fixed linear function of it."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    out = module(x, mask)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(2), dtype=out.dtype)
    (out * cotangent).sum().backward()
    assert x.grad is not None
    found = {"output": out.detach(), "x": x.grad}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            found[name] = torch.zeros(()) if parameter.grad is None else parameter.grad.clone()
    return found


def error(got: Tensor, wanted: Tensor) -> float:
    """Relative to max(1, max|wanted|); not finite where got is not."""
    got, wanted = got.detach().double(), wanted.detach().double()
    return float((got - wanted).abs().max() / wanted.abs().max().clamp(min=1))


def assert_same(got: dict[str, Tensor], wanted: dict[str, Tensor], tolerance: float) -> None:
    """Assert that tensors of the same names agree."""
    assert got.keys() == wanted.keys()
    for name in wanted:
        assert error(got[name], wanted[name]) <= tolerance, name
