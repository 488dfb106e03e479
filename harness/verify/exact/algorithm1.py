"""Claim number one: Algorithm 1 gives what eq. 7-13 define, and the same gradients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.registry import builtins, resolve
from harness.verify.budget import error
from harness.verify.compare import grad_or_zeros
from reference_impls.mtsa.naive import positional_mask

BOUND = 1e-12
"""Largest difference, relative to max(1, the largest number); float64 rounds at 2e-16."""
LENGTHS = (1, 2, 7, 33)
D_IN, HEADS, D_HEAD = 6, 4, 3
MASKS = (
    ("forward", "forward", "backward", "backward"),
    ("none", "diagonal", "forward_inclusive", "backward_inclusive"),
    ("window:0", "window:2", "distance:0.7", "distance:3"),
)
SCALES = ("identity", "log_sigmoid")
ACTIVATIONS = ("relu", "elu")
IMPLEMENTATION = "algorithm1"


def configurations() -> Iterator[dict[str, Any]]:
    """Every set of masks with every pair of scale functions and activation."""
    names = ("masks", "scale_t", "scale_s", "activation")
    for chosen in product(map(list, MASKS), SCALES, SCALES, ACTIVATIONS):
        yield {"heads": HEADS, **dict(zip(names, chosen, strict=True))}


def scaled(score: Tensor, name: str) -> Tensor:
    """A scale function of appendix A.1."""
    return torch.nn.functional.logsigmoid(score) if name == "log_sigmoid" else score


def head(r: Tensor, s: Tensor, v: Tensor, m: Tensor, scale_t: str, scale_s: str) -> Tensor:
    """Steps 5 to 7 of Algorithm 1, unstabilised, as printed.

    Parameters
    ----------
    r, m : Tensor [N queries, N keys]
        Token2token scores and positional mask; printed transposed.
    s, v : Tensor [N keys, d_h]

    Returns
    -------
    Tensor [N queries, d_h]
        Zero for a query without an allowed key, for which the paper's quotient is 0 / 0.
    """
    e_r = torch.exp(scaled(r, scale_t)) * torch.exp(m)  # step 5
    e_s = torch.exp(scaled(s, scale_s))  # step 6
    e_x = v * e_s
    above, below = e_r @ e_x, e_r @ e_s  # step 7
    seen = (m > -math.inf).any(-1, keepdim=True)
    return above / torch.where(seen, below, torch.ones_like(below))


def algorithm1(x: Tensor, w: Mapping[str, Tensor], options: Mapping[str, Any]) -> Tensor:
    """Algorithm 1 step by step for one sequence x [N, D]; weights as of the module ``mtsa``."""
    act = torch.nn.functional.elu if options["activation"] == "elu" else torch.relu
    heads = []
    for c, mask in enumerate(options["masks"]):
        q, k, v = (x @ w[name][c] for name in ("q_w", "k_w", "v_w"))  # step 2
        r = q @ k.T / math.sqrt(q.shape[-1])  # step 3
        s = act(k @ w["s1_w"][c] + w["s1_b"][c]) @ w["s2_w"][c] + w["s2_b"][c]  # step 4
        m = torch.from_numpy(positional_mask(mask, np.arange(len(x)), len(x))).double()
        heads.append(head(r, s, v, m, options["scale_t"], options["scale_s"]))
    return torch.cat(heads, -1) @ w["o_w"]  # step 9


def _weights(generator: np.random.Generator) -> dict[str, np.ndarray]:
    d, h = D_HEAD, HEADS
    shapes = {
        **dict.fromkeys(("q_w", "k_w", "v_w"), (h, D_IN, d)),
        **{"s1_w": (h, d, d), "s1_b": (h, d), "s2_w": (h, d, d), "s2_b": (h, d)},
        "o_w": (h * d, h * d),
    }
    return {name: 0.7 * generator.standard_normal(shape) for name, shape in shapes.items()}


def _run(compute: Any, x: np.ndarray, weights: Mapping[str, np.ndarray], grad: np.ndarray) -> Any:
    """Output, and gradients of sum(output * grad) by x and every weight."""
    leaf = torch.from_numpy(x).requires_grad_()
    named = {k: torch.from_numpy(v.copy()).requires_grad_() for k, v in weights.items()}
    out = compute(leaf, named)
    out.backward(torch.from_numpy(grad))
    leaves = {"x": leaf, **named}
    slopes = {name: grad_or_zeros(leaf).numpy() for name, leaf in leaves.items()}
    return out.detach().numpy(), slopes


def _ours(options: Mapping[str, Any]) -> Any:
    """The repository's stabilised form, with weights put in its parameters' place."""
    mechanism = builtins()["mtsa"]
    factory = resolve(mechanism.implementation(IMPLEMENTATION).factory)
    module = factory(D_IN, HEADS * D_HEAD, **{**mechanism.options, **options}).double()

    def compute(x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        mask = torch.ones(1, len(x), dtype=torch.bool)
        return torch.func.functional_call(module, dict(weights), (x[None], mask))[0]

    return compute


def check() -> dict[str, Any]:
    """Compare Algorithm 1, as printed and as we compute it, with the oracle of eq. 7-13."""
    mechanism = builtins()["mtsa"]
    assert mechanism.oracle is not None
    naive = resolve(mechanism.oracle)
    worst = {"output": 0.0, "gradients": 0.0}
    count = {"output": 0, "gradients": 0}
    generator = np.random.default_rng(20190602)
    for options in configurations():
        ours = _ours(options)
        for n in LENGTHS:
            x, weights = generator.standard_normal((n, D_IN)), _weights(generator)
            grad = generator.standard_normal((n, HEADS * D_HEAD))
            wanted, grad_x, grad_w = naive(x, weights, grad_out=grad, **options)
            wanted_gradients = {"x": grad_x, **grad_w}
            for compute in (lambda a, w, o=options: algorithm1(a, w, o), ours):
                out, gradients = _run(compute, x, weights, grad)
                worst["output"] = max(worst["output"], error(out, wanted))
                count["output"] += 1
                for name, mine in gradients.items():
                    apart = error(mine, wanted_gradients[name])
                    worst["gradients"] = max(worst["gradients"], apart)
                    count["gradients"] += 1
    parts = {
        part: {
            "verdict": "ok" if worst[part] <= BOUND else "wrong",
            "value": worst[part],
            "detail": f"largest difference {worst[part]:.1e} over {count[part]:,} comparisons in "
            f"float64 (bound {BOUND:.0e})",
        }
        for part in worst
    }
    fine = all(p["verdict"] == "ok" for p in parts.values())
    return {
        "verdict": "ok" if fine else "wrong",
        "value": max(worst.values()),
        "parts": parts,
        "comparisons": sum(count.values()),
        "detail": f"largest difference {max(worst.values()):.1e}",
    }
