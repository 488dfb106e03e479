"""What every float64 oracle is held to: gradients, restriction to rows, edges, the goldens."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from harness.registry import resolve
from harness.verify.golden import load
from suites.support.batches import (
    CONFIGURATIONS,
    MECHANISMS,
    mechanism_of,
    of_sentences,
    options_of,
)
from suites.support.oracles import (
    GOLDEN,
    N,
    Variant,
    assert_alike,
    assert_gradients_of,
    close,
    naive_of,
)
from suites.support.parameters import few

ORACLES = [
    Variant(name.partition(".")[0], variant, tail)
    for name, variant in CONFIGURATIONS
    for tail in ((0, 3) if mechanism_of(name).padding_matters else (0,))
]
some_oracles = [o for o in ORACLES if o.variant == "default"]
each_oracle = pytest.mark.parametrize("oracle", few(ORACLES, some_oracles), ids=str)
of_tokens = pytest.mark.parametrize(
    "oracle", few([o for o in ORACLES if not of_sentences(o.name)], some_oracles), ids=str
)


FLATTER = {"five_layers": 0.3}
"""Variants whose weights are drawn smaller by a factor: products of so many layers bend so much
that a difference over a step short enough for them is nothing but rounding."""


@each_oracle
def test_gradients_are_those_of_the_forward_pass(oracle: Variant) -> None:
    x, weights, rng = oracle.draw()
    factor = FLATTER.get(oracle.variant, 1.0)
    assert_gradients_of(oracle, x, {name: factor * w for name, w in weights.items()}, rng)


@of_tokens
def test_rows_restrict_the_full_computation(oracle: Variant) -> None:
    x, weights, rng = oracle.draw(N + 2)
    full = oracle(x, weights)[0]
    for rows in ([4, 0, 5], [0], [N + 1], [2, 2], []):
        at = np.array(rows, dtype=int)
        g = rng.normal(size=(len(rows), full.shape[1]))
        everywhere = np.zeros(full.shape)
        np.add.at(everywhere, at, g)
        got = oracle(x, weights, at, g)
        close(got[0], full[at])
        _, *want = oracle(x, weights, None, everywhere)
        assert_alike(got, (got[0], *want), 1e-12)


LINEAR = ("mtsa", "mtsa_released", "multi_head", "msmsa", "disa", "multi_cnn")


@pytest.mark.parametrize("name", LINEAR)
def test_few_rows_never_cost_n_times_n(name: str) -> None:
    n, oracle = 2400, Variant(name, "default")
    x, weights, _ = oracle.draw(n)
    rows = np.array([0, 1000])  # one without a key under the forward mask
    g = np.ones((2, oracle(x[:2], weights)[0].shape[1]))
    tracemalloc.start()
    oracle(x, weights, rows, g)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n * n * 8 / 4  # bytes: a quarter of one n x n matrix


SCORES = ("q_w", "s1_w", "s2_w", "s2_b", "dep_w", "head_w", "fi_w", "g_w", "g_b", "gates_w")
"""Ends of the names of weights that make scores or, without attention, gates."""


@pytest.mark.parametrize("n", [1, 2, N])
@each_oracle
def test_nothing_overflows(oracle: Variant, n: int) -> None:
    x, drawn, rng = oracle.draw(n)
    for factor, names in ((1, ()), (100, drawn), (1e6, SCORES)):
        weights = {k: w * (factor if k.endswith(tuple(names)) else 1) for k, w in drawn.items()}
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            out = oracle(x, weights)[0]
            _, grad_x, grads = oracle(x, weights, None, rng.normal(size=out.shape))
        assert (out.ndim == 1) == of_sentences(oracle.name)
        assert all(np.isfinite(a).all() for a in (out, grad_x, *grads.values()))


NAMED = ("reset", "windows", "form", "direction", "activation", "readout", "unselected", "scale_t")


@pytest.mark.parametrize("name", MECHANISMS)
def test_unknown_names_are_errors(name: str) -> None:
    x, weights, _ = Variant(name, "default").draw()
    for option in sorted(set(NAMED) & set(mechanism_of(name).options)):
        with pytest.raises((KeyError, ValueError)):
            naive_of(name)(x, weights, **{**options_of(name), option: "nonsense"})


GOLDENS = [
    (m.name, path, adapter)
    for m in MECHANISMS.values()
    for folder, adapter in m.goldens.items()
    for path in sorted((GOLDEN / folder).glob("*.npz"))
]


def test_every_folder_that_a_record_names_has_goldens() -> None:
    named = {folder for m in MECHANISMS.values() for folder in m.goldens}
    assert {path.parent.name for _, path, _ in GOLDENS} == named


@pytest.mark.parametrize(
    ("name", "path", "adapter"), GOLDENS, ids=[f"{p.parent.name}-{p.stem}" for _, p, _ in GOLDENS]
)
def test_goldens(name: str, path: Any, adapter: str) -> None:
    golden = load(path)
    options, weights, d_out, *instead = resolve(adapter)(golden.config, dict(golden.arrays))
    a = {**golden.arrays, **(instead[0] if instead else {})}
    options = {**mechanism_of(name).options, **options}
    length, want = a["x"].shape[1], a["output_f64"]
    assert want.shape[-1] == d_out
    assert all(w.dtype == np.float64 for w in weights.values())
    tolerance = 1e-10 * max(1.0, float(np.abs(want).max()))
    counted = {"padded": length} if mechanism_of(name).padding_matters else {}
    for b, real in enumerate(a["mask"]):
        n = int(real.sum())
        assert real[:n].all()
        rows = np.arange(length if counted else n)
        pick: Any = b if of_sentences(name) else (b, rows)
        g = a["grad_out"][pick].astype(np.float64) if "grad_out" in a else None
        x = a["x"][b, :n].astype(np.float64)
        out, grad_x, _ = naive_of(name)(x, weights, rows, g, **options, **counted)
        close(out, want[pick], tolerance)
        if g is not None:
            close(grad_x, a["grad_x_f64"][b, :n], tolerance)
