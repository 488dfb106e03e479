"""One batch tried: the module, what it is given, and what it says in training and evaluation."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from harness.build import make, torch_dtype
from harness.registry import resolve
from harness.verify.batches import D_IN, D_OUT, HEADS, Batch
from harness.verify.budget import Deviation
from harness.verify.compare import numpy64
from reference_impls.mechanism import Implementation, Mechanism, Size


def written_out(mechanism: Mechanism, options: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """What options with a preset stand for, and the width it needs; 0 without one."""
    if mechanism.presets and options.get("preset") is not None:
        meant, width = resolve(mechanism.presets)(options)
        return dict(meant), int(width)
    return dict(options), 0


@dataclass(frozen=True)
class Fixture:
    """An implementation at one batch."""

    mechanism: Mechanism
    implementation: Implementation
    batch: Batch
    dtype: str
    device: str
    seed: int = 0  # of weights and inputs

    @property
    def options(self) -> dict[str, Any]:
        """The configuration."""
        return {**self.mechanism.options, **self.batch.options}

    @cached_property
    def of_oracle(self) -> dict[str, Any]:
        """The configuration as the oracle is told it: without presets, with the number of heads."""
        meant, _ = written_out(self.mechanism, self.options)
        if self.mechanism.takes_heads:
            meant.setdefault("heads", HEADS)
        return meant

    @cached_property
    def size(self) -> Size:
        """Widths and heads of the module, and what is not as in the record."""
        mechanism = self.mechanism
        heads = self.of_oracle["heads"] if mechanism.takes_heads else 0
        d_out = heads * (D_OUT // HEADS) if heads and D_OUT % heads else D_OUT
        if sizes := self.options.get("kernel_sizes"):
            d_out = 4 * len(sizes)
        if self.batch.head_width:
            d_out = heads * self.batch.head_width
        d_in = d_out if mechanism.keeps_width else D_IN
        d_out = written_out(mechanism, self.options)[1] or d_out
        return Size(1, 1, d_in, d_out, heads or 1, options=self.batch.options)

    def module(self, factory: str, **more: Any) -> torch.nn.Module:
        """A module in training mode whose biases are not zero."""
        mechanism, size, options = self.mechanism, self.size, {**self.options, **more}
        if mechanism.takes_heads:
            options.pop("heads", None)
        heads = size.heads if mechanism.takes_heads else 0
        module = make(mechanism, factory, size.d_in, size.d_out, heads, options, self.seed)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    # Zero biases would hide a bias that is left out or added twice.
                    noise = torch.randn(
                        parameter.shape, generator=torch.Generator().manual_seed(len(name))
                    )
                    # Wide heads sum as many terms: weights that grew with them would leave one
                    # key all of the attention, and gradients nothing but rounding.
                    wide = bool(self.batch.head_width) and parameter.dim() > 1
                    terms = max(D_IN, parameter.shape[-2]) if wide else D_IN
                    parameter.add_(0.1 * math.sqrt(D_IN / terms) * noise)
                if name in mechanism.score_weights:
                    parameter.mul_(self.batch.score_scale)
        return module.to(device=self.device, dtype=torch_dtype(self.dtype)).train()

    def inputs(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """x, which tokens are real, and a cotangent: zero at padding and outside the rows asked."""
        batch, rows, dtype = self.batch, self.batch.rows, torch_dtype(self.dtype)
        generator = torch.Generator().manual_seed(self.seed + 1)
        n = max(batch.lengths)
        x = torch.randn(len(batch.lengths), n, self.size.d_in, generator=generator)
        x = (x * batch.input_scale).to(device=self.device, dtype=dtype)
        real = torch.arange(n)[None, :] < torch.tensor(batch.lengths)[:, None]  # [B, N]
        real = real.to(self.device)
        if batch.masked:
            # Nothing at padding may matter, not even a NaN.
            x = x.masked_fill(~real[..., None], math.nan)
        tokens = self.mechanism.output == "tokens"
        shape = (*x.shape[:2], self.size.d_out) if tokens else (x.shape[0], self.size.d_out)
        cotangent = torch.randn(shape, generator=generator).to(device=self.device, dtype=dtype)
        if tokens:
            cotangent = cotangent.masked_fill(~real[..., None], 0)
        if rows is not None:
            left_out = np.setdiff1d(np.arange(n), rows)
            cotangent[:, left_out] = 0
        return x, real, cotangent

    def counted(self, module: torch.nn.Module) -> list[Deviation]:
        """The number of trained weights against the record's formula, where that says something."""
        formula, known = self.mechanism.parameters, {"heads", *self.mechanism.formula_options}
        if formula is None or not known.issuperset(self.batch.options):
            return []
        wanted = int(formula(self.size))
        given = sum(p.numel() for p in module.parameters() if p.requires_grad)
        what = f"number of weights, {given:,} for {wanted:,} by the formula, {self.batch.label}"
        return [Deviation(what, float(abs(given - wanted)), 0.0)]


@contextmanager
def forced(values: Mapping[str, Any]) -> Iterator[None]:
    """Within it, constants ``"module:NAME"`` have other values."""
    with ExitStack() as stack:
        for place, value in values.items():
            module, _, name = place.partition(":")
            holder = importlib.import_module(module)
            stack.callback(setattr, holder, name, getattr(holder, name))
            setattr(holder, name, value)
        yield


WAYS = ("output in evaluation after load_state_dict", "output after weights are written and eval()")
"""The two promised ways to change weights between calls in evaluation."""


def evaluated(
    module: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor | None
) -> dict[str, np.ndarray]:
    """What a module says in evaluation after either of `WAYS`.

    It is asked with other weights before, so that what it keeps of them shows.
    """
    own = {name: value.clone() for name, value in module.state_dict().items()}
    other = own | {name: 1.5 * own[name] for name, _ in module.named_parameters()}
    module.eval()
    with torch.no_grad():
        module.load_state_dict(other)
        module(x, mask)
        module.load_state_dict(own)
        loaded = numpy64(module(x, mask))
        module.load_state_dict(other)
        module(x, mask)
        for name, parameter in module.named_parameters():
            parameter.data.copy_(own[name])  # torch counts no change
        written = numpy64(module.eval()(x, mask))
    module.train()
    return dict(zip(WAYS, (loaded, written), strict=True))
