"""Check one implementation: against its oracle where it has one, by properties where not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from harness.build import make, set_tf32, torch_dtype
from harness.case import literal
from harness.registry import Registry, resolve
from harness.verify.budget import Finding, budget, error, worst
from harness.verify.kinks import DRAWS, at_a_kink
from harness.verify.oracle import Reference, reference
from reference_impls.mechanism import Implementation, Mechanism, Unsupported

LENGTHS = (1, 2, 63, 64, 65, 257)
"""Across the edges of the usual tiles."""
SHORT = (2, 7, 65)
D_IN, D_OUT, HEADS = 12, 16, 4
INPUT_SCALES = {"f64": (1e-3, 4.0), "f32": (1e-3, 4.0), "f16": (1e-3,), "bf16": (1e-3,)}
"""Larger inputs in half precision: scores of 50 are rounded by 0.2, for plain as for all."""
SCORE_SCALES = (10.0, 100.0)


@dataclass(frozen=True)
class Trial:
    """One batch: configuration, lengths, dtype and what is exaggerated.

    Attributes
    ----------
    label : str
        How findings name it.
    options : mapping
        Differences to the mechanism's own configuration.
    lengths : tuple of int
        Real tokens per sample; the longest is N. Empty padding means a call without a mask.
    masked : bool
        Whether a mask is given (what x holds at padding is then NaN).
    input_scale, score_scale : float
        Factors on x, and on the weights that scale the scores.
    """

    label: str
    options: Mapping[str, Any]
    lengths: tuple[int, ...]
    masked: bool = True
    input_scale: float = 1.0
    score_scale: float = 1.0


def ragged(n: int) -> tuple[int, ...]:
    """Lengths of a batch with every kind of sample: full, half, one token, none."""
    return (n, max(1, n // 2), 1, 0)


def trials(mechanism: Mechanism, dtype: str) -> Iterator[Trial]:
    """All batches that an implementation of the mechanism must get right."""
    for n in LENGTHS:
        yield Trial(f"N={n}", {}, ragged(n))
    for n in (2, 65):
        yield Trial(f"N={n} without padding", {}, (n, n), masked=False)
    for name, options in mechanism.variants.items():
        for n in SHORT:
            yield Trial(f"{name}, N={n}", options, ragged(n))
        # Without a mask many take another way: causal SDPA, say, is told so instead of shown.
        yield Trial(f"{name}, N=257 without padding", options, (257, 257), masked=False)
    for scale in INPUT_SCALES[dtype]:
        yield Trial(f"x times {scale:g}, N=65", {}, ragged(65), input_scale=scale)
    if mechanism.score_weights and dtype in ("f64", "f32"):
        for scale in SCORE_SCALES:
            yield Trial(f"scores times {scale:g}, N=65", {}, ragged(65), score_scale=scale)


def numpy64(tensor: torch.Tensor) -> np.ndarray:
    """Copy a tensor to a float64 array."""
    return tensor.detach().to(device="cpu", dtype=torch.float64).numpy().copy()


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


def run_module(
    module: torch.nn.Module,
    x: torch.Tensor,
    mask: torch.Tensor | None,
    cotangent: torch.Tensor,
    **keywords: Any,
) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Values, input gradient and weight gradients of ``sum(output * cotangent)``.

    Raises
    ------
    ValueError
        If the output has another shape than the cotangent.
    """
    x = x.detach().clone().requires_grad_(True)
    module.zero_grad(set_to_none=True)
    output = module(x, mask, **keywords)
    if tuple(output.shape) != tuple(cotangent.shape):
        raise ValueError(f"output is {list(output.shape)}, expected {list(cotangent.shape)}")
    output.backward(cotangent.to(output.dtype))
    grads = {
        name: numpy64(p.grad) if p.grad is not None else np.zeros(p.shape)
        for name, p in module.named_parameters()
        if p.requires_grad
    }
    grad_x = np.zeros(x.shape) if x.grad is None else numpy64(x.grad)
    return numpy64(output), grad_x, grads


def compare(
    label: str,
    got: tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]],
    plain: tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]] | None,
    expected: Reference,
    dtype: str,
) -> tuple[list[Finding], list[Finding]]:
    """Findings for values, and for the gradients of input and weights."""
    yardstick = None if plain is None else error(plain[0], expected.output)
    values = [Finding(f"output, {label}", error(got[0], expected.output), budget(yardstick, dtype))]
    names = ["x", *got[2]]
    gradients = []
    for name in names:
        mine, want = (
            (got[1], expected.grad_x)
            if name == "x"
            else (got[2][name], expected.grad_weights[name])
        )
        other = None if plain is None else (plain[1] if name == "x" else plain[2][name])
        yardstick = None if other is None else error(other, want)
        gradients.append(
            Finding(
                f"grad of {name}, {label}", error(mine, want), budget(yardstick, dtype, True), name
            )
        )
    return values, gradients


def _batch(trial: Trial, d_in: int, dtype: torch.dtype, device: str, seed: int) -> tuple[Any, ...]:
    generator = torch.Generator().manual_seed(seed)
    n = max(trial.lengths)
    x = torch.randn(len(trial.lengths), n, d_in, generator=generator) * trial.input_scale
    x = x.to(device=device, dtype=dtype)
    real = torch.arange(n)[None, :] < torch.tensor(trial.lengths)[:, None]  # [B, N]
    real = real.to(device)
    if trial.masked:
        # Nothing at padding may matter, not even a NaN.
        x = x.masked_fill(~real[..., None], math.nan)
    return x, real, generator


def check_trial(
    mechanism: Mechanism,
    implementation: Implementation,
    trial: Trial,
    dtype: str,
    device: str,
    seed: int = 0,
) -> tuple[list[Finding], list[Finding]]:
    """Compare implementation, plain yardstick and oracle on one batch."""
    options = {**mechanism.options, **trial.options}
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
                    parameter.mul_(trial.score_scale)
        return module.to(device=device, dtype=torch_type).train()

    module = build(implementation.factory, implementation.options)
    x, real, generator = _batch(trial, d_in, torch_type, device, seed + 1)
    shape = (*x.shape[:2], d_out) if mechanism.output == "tokens" else (x.shape[0], d_out)
    cotangent = torch.randn(shape, generator=generator).to(device=device, dtype=torch_type)
    if mechanism.output == "tokens":
        cotangent = cotangent.masked_fill(~real[..., None], 0)
    mask = real if trial.masked or not implementation.mask_optional else None
    got = run_module(module, x, mask, cotangent)
    if mechanism.oracle is None or mechanism.plain is None:
        raise ValueError(f"{mechanism.name} has no oracle")
    plain = build(mechanism.plain, {})
    plain.load_state_dict(module.state_dict())
    yardstick = run_module(plain, x, mask, cotangent)
    oracle_options = {**meant, **({"heads": heads} if heads else {})}
    naive = resolve(mechanism.oracle)
    weights = named_weights(module)
    lengths, grad_out = trial.lengths, numpy64(cotangent)
    clean = np.where(real.cpu().numpy()[..., None], numpy64(x), 0)
    padded = bool(mechanism.padding_matters)
    expected = reference(
        naive, clean, lengths, weights, grad_out, oracle_options, padding_matters=padded
    )
    values, gradients = compare(trial.label, got, yardstick, expected, dtype)
    over = {f.tensor: f.error for f in gradients if not f.ok}
    if over and all(f.ok for f in values) and all(math.isfinite(e) for e in over.values()):
        arguments = (naive, clean, lengths, weights, grad_out, oracle_options)
        if at_a_kink(*arguments, over, dtype, padding_matters=padded):
            raise AtAKink(trial.label)
    return values, gradients


class AtAKink(Exception):
    """The point drawn lies at a kink: nothing can be said of its gradient."""


def check_drawn(
    mechanism: Mechanism,
    implementation: Implementation,
    trial: Trial,
    dtype: str,
    device: str,
    seed: int = 0,
) -> tuple[list[Finding], list[Finding]]:
    """`check_trial` at the first drawn point that is not at a kink.

    If there is none in `DRAWS` points, the trial counts as over budget.
    """
    for draw in range(DRAWS):
        try:
            return check_trial(mechanism, implementation, trial, dtype, device, seed + 1000 * draw)
        except AtAKink:
            continue
    never = Finding(f"gradients, {trial.label}: {DRAWS} points all at a kink", math.inf, 0.0)
    return [], [never]


def _row(what: str, findings: list[Finding]) -> dict[str, Any]:
    one = worst(findings)
    bad = [f.what for f in findings if not f.ok]
    return {
        f"{what}_error": one.error,
        f"{what}_budget": one.budget,
        f"{what}_margin": one.margin,
        f"{what}_worst": one.what,
        f"{what}_failures": bad[:10],
    }


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
    if device == "cpu":
        # Several of these run at a time, on small tensors.
        torch.set_num_threads(1)
    set_tf32(False)
    mechanism, implementation = Registry(given).find(name)
    if options:
        own = {key: literal(value) for key, value in options.items()}
        mechanism = replace(mechanism, options={**mechanism.options, **own}, variants={})
    row: dict[str, Any] = {"name": name, "dtype": dtype, "device": device}
    if device not in implementation.devices:
        return {**row, "verdict": "unsupported", "detail": f"does not run on {device}"}
    if mechanism.oracle is None:
        from harness.verify.properties import check_properties

        return {**row, **check_properties(mechanism, implementation, dtype, device)}
    values: list[Finding] = []
    gradients: list[Finding] = []
    refused: list[str] = []
    done = 0
    for trial in trials(mechanism, dtype):
        try:
            v, g = check_drawn(mechanism, implementation, trial, dtype, device, seed)
        except Unsupported as reason:
            refused.append(f"{trial.label}: {reason}")
            continue
        done += 1
        values += v
        gradients += g
    if not done:
        return {**row, "verdict": "unsupported", "detail": refused[0].partition(": ")[2]}
    fine = all(f.ok for f in values + gradients)
    failures = [f.what for f in values + gradients if not f.ok]
    detail = f"{len(refused)} of {done + len(refused)} batches unsupported" if refused else ""
    return {
        **row,
        "verdict": "ok" if fine else "wrong",
        "detail": detail if fine else f"{len(failures)} findings over budget, first: {failures[0]}",
        "comparisons": len(values) + len(gradients),
        **_row("value", values),
        **_row("gradient", gradients),
    }
