"""Check one implementation: against its oracle where it has one, by its own answers where not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from harness.build import make, set_tf32, torch_dtype
from harness.case import literal
from harness.registry import Registry, resolve
from harness.verify.batches import D_IN, D_OUT, HEADS, Batch, batches
from harness.verify.budget import Deviation, summary
from harness.verify.compare import DRAWS, Question, compare, computed, numpy64, off_kinks
from harness.verify.unaided.judge import check_properties
from reference_impls.mechanism import Implementation, Mechanism, Unsupported


def named_weights(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """All weights, frozen ones too, as float64 arrays by their state_dict names."""
    return {name: numpy64(value) for name, value in module.state_dict().items()}


def written_out(mechanism: Mechanism, options: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """What options with a preset stand for, and the width it needs; 0 without one."""
    if mechanism.presets and options.get("preset") is not None:
        meant, width = resolve(mechanism.presets)(options)
        return dict(meant), int(width)
    return dict(options), 0


def _widths(mechanism: Mechanism, options: Mapping[str, Any], heads: int) -> tuple[int, int]:
    d_out = heads * (D_OUT // HEADS) if heads and D_OUT % heads else D_OUT
    if size := options.get("kernel_sizes", mechanism.options.get("kernel_sizes")):
        d_out = 4 * len(size)
    return (d_out, d_out) if mechanism.keeps_width else (D_IN, d_out)


def _tensors(
    batch: Batch, d_in: int, dtype: torch.dtype, device: str, seed: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    """x, which tokens are real, and where further random numbers come from."""
    generator = torch.Generator().manual_seed(seed)
    n = max(batch.lengths)
    x = torch.randn(len(batch.lengths), n, d_in, generator=generator) * batch.input_scale
    x = x.to(device=device, dtype=dtype)
    real = torch.arange(n)[None, :] < torch.tensor(batch.lengths)[:, None]  # [B, N]
    real = real.to(device)
    if batch.masked:
        # Nothing at padding may matter, not even a NaN.
        x = x.masked_fill(~real[..., None], math.nan)
    return x, real, generator


def check_batch(
    mechanism: Mechanism,
    implementation: Implementation,
    batch: Batch,
    dtype: str,
    device: str,
    seed: int = 0,
) -> tuple[list[Deviation], bool]:
    """Compare implementation, plain yardstick and oracle on one batch; whether it is at a kink."""
    options = {**mechanism.options, **batch.options}
    # The oracle knows no presets: it gets what they stand for.
    meant, width = written_out(mechanism, options)
    heads = meant.pop("heads", HEADS) if mechanism.takes_heads else 0
    if mechanism.takes_heads:
        options.pop("heads", None)
    d_in, d_out = _widths(mechanism, options, heads)
    d_out = width or d_out
    torch_type = torch_dtype(dtype)

    def build(factory: str, extra: Mapping[str, Any]) -> torch.nn.Module:
        module = make(mechanism, factory, d_in, d_out, heads, {**options, **extra}, seed)
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                if parameter.requires_grad:
                    # Zero biases would hide a bias that is left out or added twice.
                    noise = torch.randn(
                        parameter.shape, generator=torch.Generator().manual_seed(len(name))
                    )
                    parameter.add_(0.1 * noise)
                if name in mechanism.score_weights:
                    parameter.mul_(batch.score_scale)
        return module.to(device=device, dtype=torch_type).train()

    module = build(implementation.factory, implementation.options)
    x, real, generator = _tensors(batch, d_in, torch_type, device, seed + 1)
    shape = (*x.shape[:2], d_out) if mechanism.output == "tokens" else (x.shape[0], d_out)
    cotangent = torch.randn(shape, generator=generator).to(device=device, dtype=torch_type)
    if mechanism.output == "tokens":
        cotangent = cotangent.masked_fill(~real[..., None], 0)
    mask = real if batch.masked or not implementation.mask_optional else None
    got = computed(module, x, mask, cotangent)
    if mechanism.oracle is None or mechanism.plain is None:
        raise ValueError(f"{mechanism.name} has no oracle")
    plain = build(mechanism.plain, {})
    plain.load_state_dict(module.state_dict())
    yardstick = computed(plain, x, mask, cotangent)
    asked = Question(
        resolve(mechanism.oracle),
        np.where(real.cpu().numpy()[..., None], numpy64(x), 0),
        batch.lengths,
        named_weights(module),
        numpy64(cotangent),
        {**meant, **({"heads": heads} if heads else {})},
        padding_matters=bool(mechanism.padding_matters),
    )
    expected = asked.answer()
    found = compare(got, expected, yardstick, dtype, batch.label)
    return found, asked.at_a_kink(found, expected, dtype)


def check_drawn(
    mechanism: Mechanism,
    implementation: Implementation,
    batch: Batch,
    dtype: str,
    device: str,
    seed: int = 0,
) -> list[Deviation]:
    """`check_batch` at the first drawn point that is not at a kink.

    If there is none in `DRAWS` points, the batch counts as over budget.
    """
    found, kink, _ = off_kinks(
        lambda s: check_batch(mechanism, implementation, batch, dtype, device, s), seed
    )
    if not kink:
        return found
    never = f"gradients, {batch.label}: {DRAWS} points all at a kink"
    return [Deviation(never, math.inf, 0.0, "all")]


def chosen(
    name: str, device: str, given: Sequence[str], options: Mapping[str, str] | None
) -> tuple[Mechanism, Implementation]:
    """What is to be checked, in the configuration that `options` make; prepares this process.

    The record's variants differ from its own configuration and may contradict another one: they
    are left out where there are options.
    """
    if device == "cpu":
        # Several of these run at a time, on small tensors.
        torch.set_num_threads(1)
    set_tf32(False)
    mechanism, implementation = Registry(given).find(name)
    if options:
        own = {key: literal(value) for key, value in options.items()}
        mechanism = replace(mechanism, options={**mechanism.options, **own}, variants={})
    return mechanism, implementation


def check(
    name: str,
    dtype: str,
    device: str,
    given: tuple[str, ...] | list[str] = (),
    seed: int = 0,
    options: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Verify ``mechanism.implementation`` in one dtype on one device, on all small shapes.

    Parameters
    ----------
    name, dtype, device : str
    given : sequence of str
        What ``--with`` named.
    options : mapping of str
        What ``--option`` gave, as texts. The configuration that they make is checked, and not the
        record's variants, which differ from its own configuration and may contradict this one.

    Returns
    -------
    dict
        ``verdict`` ("ok", "wrong", "unsupported"), worst error, budget and margin of values and
        gradients, the number of comparisons, and ``detail``.
    """
    mechanism, implementation = chosen(name, device, given, options)
    row: dict[str, Any] = {"name": name, "dtype": dtype, "device": device}
    if device not in implementation.devices:
        return {**row, "verdict": "unsupported", "detail": f"does not run on {device}"}
    if mechanism.oracle is None:
        return {**row, **check_properties(mechanism, implementation, dtype, device)}
    found: list[Deviation] = []
    refused: list[str] = []
    done = 0
    for batch in batches(mechanism, dtype):
        try:
            found += check_drawn(mechanism, implementation, batch, dtype, device, seed)
        except Unsupported as reason:
            refused.append(f"{batch.label}: {reason}")
            continue
        done += 1
    if not done:
        return {**row, "verdict": "unsupported", "detail": refused[0].partition(": ")[2]}
    values = [d for d in found if not d.gradient]
    gradients = [d for d in found if d.gradient]
    failures = [d.what for d in (*values, *gradients) if not d.ok]
    fine = not failures
    detail = f"{len(refused)} of {done + len(refused)} batches unsupported" if refused else ""
    return {
        **row,
        "verdict": "ok" if fine else "wrong",
        "detail": detail if fine else f"{len(failures)} findings over budget, first: {failures[0]}",
        "comparisons": len(found),
        **summary("value", values),
        **summary("gradient", gradients),
    }
