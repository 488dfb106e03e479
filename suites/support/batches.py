"""Modules of every configuration by name, batches and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from harness.build import make
from harness.registry import builtins, resolve
from harness.verify.compare import Question
from reference_impls.mechanism import Mechanism
from suites.support.parameters import implementations

Options: TypeAlias = Mapping[str, Any]

D_IN, D_OUT, HEADS = 12, 16, 4
MECHANISMS = builtins()
FAST = [name for name in implementations() if not name.endswith((".plain", ".fused_native"))]
"""On a CPU `fused` is what `fused_native` is by name."""
PLAIN = [f"{m}.plain" for m in MECHANISMS]


def mechanism_of(name: str) -> Mechanism:
    """The mechanism of ``mechanism`` or ``mechanism.implementation``."""
    return MECHANISMS[name.partition(".")[0]]


DEFAULTS = [f"{m.name}.{m.default or m.implementations[-1].name}" for m in MECHANISMS.values()]
"""The implementation of each mechanism that is meant where only the mechanism is named."""


def with_variants(names: list[str]) -> list[tuple[str, str]]:
    """Each name with "default" and with every variant of its mechanism."""
    return [(n, v) for n in names for v in ("default", *mechanism_of(n).variants)]


CONFIGURATIONS = with_variants(DEFAULTS)
WITH_VARIANTS = with_variants(FAST)


def by_day(cases: Iterable[tuple[str, str]]) -> list[Any]:
    """Cases ``(name, variant)`` as parameters: those of a variant are for the nightly session."""
    return [
        pytest.param(*case, marks=() if case[1] == "default" else pytest.mark.nightly)
        for case in cases
    ]


def default_of(name: str) -> str:
    """The default implementation of a mechanism, with its name."""
    return next(d for d in DEFAULTS if d.startswith(f"{name}."))


def of_sentences(name: str) -> bool:
    """Whether there is one output per sequence."""
    return mechanism_of(name).output == "sentence"


def widths(mechanism: Mechanism, options: Options) -> tuple[int, int]:
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


def options_of(name: str, variant: str = "default") -> dict[str, Any]:
    """All options of a configuration, ``heads`` included where the mechanism takes it."""
    mechanism = mechanism_of(name)
    options = {**mechanism.options, **mechanism.variants.get(variant, {})}
    return {"heads": HEADS, **options} if mechanism.takes_heads else options


def made(
    name: str, options: Options, state: Mapping[str, Tensor] | None = None, seed: int = 0
) -> nn.Module:
    """A module in float64 with just these options, ``heads`` among them, and a state.

    ``mechanism.oracle`` is the oracle with the weights of the plain module.
    """
    mechanism, own = mechanism_of(name), name.partition(".")[2]
    implementation = mechanism.implementation("plain" if own == "oracle" else own)
    given = {**options, **implementation.options}
    d_in, d_out = widths(mechanism, given)
    heads = given.pop("heads", 0)
    module = make(mechanism, implementation.factory, d_in, d_out, heads, given, seed).double()
    if state is not None:
        module.load_state_dict(state)
    return _by_oracle(module, mechanism, options, d_out) if own == "oracle" else module


class _Answered(torch.autograd.Function):
    """Values and gradients that an oracle gives, sample by sample."""

    @staticmethod
    def forward(ctx: Any, question: Question, names: list[str], x: Tensor, *_: Tensor) -> Tensor:
        ctx.question, ctx.names = question, names
        return torch.from_numpy(question.answer().output)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Any:
        asked = replace(ctx.question, cotangent=cotangents[0].numpy())
        found = asked.answer().gradients
        return None, None, *(torch.from_numpy(found[name]) for name in ("x", *ctx.names))


def _by_oracle(module: nn.Module, mechanism: Mechanism, options: Options, d_out: int) -> nn.Module:
    """The module, computed by the oracle of its mechanism from now on; padding is on the right."""

    def forward(x: Tensor, mask: Tensor | None = None) -> Tensor:
        weights = dict(module.named_parameters())
        lengths = [x.shape[1]] * len(x) if mask is None else mask.sum(1).tolist()
        question = Question(
            resolve(str(mechanism.oracle)),
            x.detach().numpy(),
            lengths,
            {weight: tensor.detach().numpy() for weight, tensor in weights.items()},
            np.zeros((*x.shape[: 1 if mechanism.output == "sentence" else 2], d_out)),
            options,
            padding_matters=bool(mechanism.padding_matters),
        )
        found: Tensor = _Answered.apply(question, list(weights), x, *weights.values())
        return found

    module.forward = forward
    return module


def build(name: str, variant: str = "default", seed: int = 0, **options: Any) -> nn.Module:
    """A module in float64 with biases that are not zero; the same weights for one mechanism.

    ``options`` differ from those of the variant.
    """
    module = made(name, {**options_of(name, variant), **options}, seed=seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    return module


module_of = cache(build)
"""As `build`, but the same module every time: not to be changed."""


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


def longer(x: Tensor, mask: Tensor, more: int, content: float = 0.0) -> tuple[Tensor, Tensor]:
    """The batch with more padding behind it."""
    x = nn.functional.pad(x, (0, 0, 0, more), value=content)
    return x, nn.functional.pad(mask, (0, more), value=False)


def cotangent_of(out: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """What flows back into an output in `run`: of a shape and dtype the same numbers every time."""
    generator = torch.Generator().manual_seed(2)
    return torch.randn(out.shape, generator=generator, dtype=dtype or out.dtype)


def run(module: nn.Module, x: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
    """Output and all gradients of a fixed linear function of it."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    out = module(x, mask)
    (out * cotangent_of(out)).sum().backward()
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
