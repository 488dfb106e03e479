"""A made-up journal with everything that the report shows; for tests, never for results."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness.records import journal
from suites.support import comparisons
from suites.support.made_up_records import case, margin, peak, reading, record

BASE, MINE, LSTM, DISA = "multi_head.sdpa", "mtsa.algorithm1", "bi_lstm.packed", "disa.broadcast"
HEADS = {BASE: 8, MINE: 8}
RATIOS = {BASE: 1.0, MINE: 1.3, LSTM: 4.0, DISA: 9.0}
"""Time over the baseline's at N = 64."""
MEMORY = {BASE: 1.0, MINE: 1.2, LSTM: 1.8, DISA: 12.0}
LENGTHS = (16, 64, 256, 1024)
BLOCKS = 5
GAINS = {"multi_head.sdpa": 0.0, MINE: 0.02, LSTM: 0.0, "none.fused": -0.06}
"""Of accuracy over the baseline's."""
SECONDS = {"multi_head.sdpa": 2.0, MINE: 2.4, LSTM: 8.0, "none.fused": 1.0}
PEAKS = {"multi_head.sdpa": 100, MINE: 120, LSTM: 180, "none.fused": 60}
"""MiB."""
VARIANT = f"{MINE}[source2token=false]"
EVIL = '<script>alert("$x_1$")</script>'
"""What a record may say to a careless page, and the key of a comparison to a careless notebook."""
EVIL_KEY = """../"'\\\n); open("executed", "w") #"""
SLOWER = 100.0
"""Times of the second machine over those of the first."""


def fingerprint(model: str) -> dict[str, Any]:
    """Of a made-up machine."""
    return {"device": "cpu", "model": model, "torch": "2.13.0", "threads": 2}


def session(model: str) -> dict[str, Any]:
    """A session's first line."""
    packages = {"torch": "2.13", EVIL: EVIL}
    environment = {"commit": "0123456789abcdef", "platform": EVIL, "packages": packages}
    return {"fingerprint": fingerprint(model), "environment": environment}


def growth(name: str, length: int) -> float:
    """How time grows with length, 1 at N = 64: MTSA overtakes at N = 256 and beyond."""
    power = {BASE: 2.0, MINE: 1.6, LSTM: 1.0, DISA: 2.0}[name]
    return float((length / 64) ** power)


def bench(scale: float = 1.0, lstm: str = LSTM) -> Iterator[dict[str, Any]]:
    """Times, memory and margins: setting A, and a sweep over lengths in which DiSA runs out."""
    rng = np.random.default_rng(0)
    problems = [(64, 64), *((4, n) for n in LENGTHS)]
    passes = {"forward": 1.0, "training": 3.0}
    for (batch, n), phase, name in itertools.product(problems, passes, RATIOS):
        called = lstm if name == LSTM else name
        one = case(called, n, phase, batch, HEADS.get(name, 0))
        if name == DISA and n == 1024:
            yield from (record("time", one, b, status="oom", detail=EVIL) for b in range(BLOCKS))
            continue
        for block in range(BLOCKS):
            for extra in ("", "+control") if name == BASE else ("",):
                seconds = scale * 0.01 * batch * passes[phase] * RATIOS[name] * growth(name, n)
                seconds *= (1 + 0.2 * block) * rng.lognormal(0, 0.004)
                yield reading(one + extra, block, seconds)
            if block < 2:
                yield peak(one, block, batch * MEMORY[name] * n / 64 * passes[phase])
        yield margin(one, 1e-7 * RATIOS[name], 2e-6)


def run(
    model: str,
    task: str,
    seed: int,
    test: dict[str, float],
    fold: int | None = None,
    seconds: float = 1.0,
    peak_mib: float = 100.0,
) -> dict[str, Any]:
    """One finished training run of three epochs."""
    dev = [{name: value - 0.01 / e for name, value in test.items()} for e in (1, 2, 3)]
    return comparisons.run(
        model,
        seed,
        0.0,
        task,
        key=f"{model} {task} {seed}" + ("" if fold is None else f" {fold}"),
        fold=fold,
        test=test,
        recipe={"width": 300, "heads": 6, "tuning_trials": len(model)},
        vectors="top10k_100d_int8",
        workers=2,
        seconds=3 * seconds,
        peak_bytes=peak_mib * 2**20,
        epochs=[
            {"epoch": e, "loss": 1 / e, "dev": dev[e - 1], "seconds": seconds} for e in (1, 2, 3)
        ],
    )


def runs(seed: int = 1) -> Iterator[dict[str, Any]]:
    """Runs on TREC (6 seeds), CR (10 folds), mirrored summation over K; variants."""
    rng = np.random.default_rng(seed)
    for model, gain in {**GAINS, VARIANT: 0.0}.items():
        mechanism = model.partition("[")[0]
        cost: dict[str, Any] = {"seconds": SECONDS[mechanism], "peak_mib": PEAKS[mechanism]}
        for s in range(6):
            value = 0.9 + 0.004 * s + gain + rng.normal(0, 0.001)
            yield run(model, "trec", s, {"accuracy": value}, **cost)
        if model != VARIANT:
            for fold in range(10):
                value = 0.8 + 0.003 * fold + gain + rng.normal(0, 0.002)
                yield run(model, "cr", 0, {"accuracy": value}, fold, **cost)
    for s in range(3):
        for model, level in ((BASE, 0.5), (MINE, 0.2)):
            for k in (5, 20):
                relative = level * math.sqrt(k) / 2 + 0.001 * s
                found = {"mse": 3 * relative, "relative_mse": relative}
                yield run(model, f"mirrored_summation[k={k}]", s, found)
        windowed = "multi_scale_transformer.windowed"
        for alpha in (0.5, -0.5):
            accuracy = 0.85 + 0.02 * alpha + 0.001 * s
            yield run(f"{windowed}[alpha={alpha}]", "trec", s, {"accuracy": accuracy})
        accuracy = 0.83 + 0.001 * s + 0.0001 * (s % 2)
        yield run(f"{windowed}[candidates=3;]", "trec", s, {"accuracy": accuracy})


def design(model: str = MINE, task: str = "trec", **more: Any) -> dict[str, Any]:
    """Six seeds of a model and of multi-head: MTSA on TREC."""
    recipe = {"choose": "dev", "tuning_trials": 5}
    shared = {"recipes": [recipe, recipe], "split": "official", "one_test_set": True}
    return comparisons.design(6, model, task, **{**shared, "margin": 0.01, **more})


def hostile_pair() -> Iterator[dict[str, Any]]:
    """Seeds differ widely, ours gains a little with every one; all texts are scripts."""
    task = f"trec {EVIL}"
    yield design(task=task, key=EVIL_KEY, question=f"q {EVIL_KEY}", split=EVIL, margin=0.05)
    for s in range(6):
        for model, gain in ((MINE, 0.02 + 0.001 * s), (BASE, 0.0)):
            yield unnamed(run(model, task, s, {"accuracy": 0.7 + 0.03 * s + gain}))


def unnamed(record: dict[str, Any]) -> dict[str, Any]:
    """A run that only its design says the task of: no page shows it beside those of others."""
    return {name: value for name, value in record.items() if name != "task"}


FAMILY, FAMILY_TASKS, FAMILY_MODELS = "family" + "0" * 10, (f"subj {EVIL}", "mr"), (MINE, LSTM)


def family() -> Iterator[dict[str, Any]]:
    """Two models against one on two tasks: one gains much, the other nothing."""
    declared = comparisons.family(FAMILY_MODELS, FAMILY_TASKS, key=FAMILY)
    designs = [design(m, t, margin=None) for t in FAMILY_TASKS for m in FAMILY_MODELS]
    yield {**declared, "designs": designs}
    for task in FAMILY_TASKS:
        for model, gain in ((BASE, 0.0), (MINE, 0.05), (LSTM, 0.0)):
            for s in range(6):
                value = 0.7 + 0.01 * s + gain + 0.002 * (-1) ** s * (model != BASE)
                yield unnamed(run(model, task, s, {"accuracy": value}))


def frontier() -> Iterator[dict[str, Any]]:
    """MTSA to 2,048, multi-head to 4,096 and DiSA to 256; the next length does not fit."""
    for name, longest in ((BASE, 4096), (MINE, 2048), (DISA, 256)):
        for n in (longest // 2, longest, longest + 128):
            fits: dict[str, Any] = (
                {"peak_bytes": n * 2**20, "pass_seconds": 1.0} if n <= longest else {}
            )
            yield record(
                "frontier",
                case(name, n, heads=HEADS.get(name, 0), setting="").removesuffix("+"),
                memory_limit_bytes=2**32,
                seconds_limit=10.0,
                status="ok" if fits else "oom",
                **fits,
            )


def stress() -> Iterator[dict[str, Any]]:
    """Multi-head fails beyond 100 in half precision, MTSA never."""
    for name, (dtype, level) in itertools.product((MINE, BASE), (("f32", 1e-7), ("f16", 1e-3))):
        points = []
        for kind, scale in itertools.product(("inputs", "scores"), (0.01, 1.0, 100.0, 10_000.0)):
            ok = name != BASE or dtype != "f16" or scale <= 100
            points.append(
                {
                    "kind": kind,
                    "scale": scale,
                    "ok": ok,
                    "gradient_ok": ok,
                    "error": level if ok else None,
                    "budget": 4 * level,
                    "gradient_error": level,
                    "gradient_budget": 4 * level,
                }
            )
        one = f"{name}-{dtype}-cpu"
        yield record("stress", one, name=name, dtype=dtype, options={}, points=points)


def attention() -> dict[str, Any]:
    """A look at MTSA: a forward and a backward head over four tokens."""
    tokens = ["Who", "walked", "there", "?"]
    n = len(tokens)
    forward = np.tril(np.ones((n, n)), -1)
    backward = forward.T
    weights = [m / np.maximum(m.sum(-1, keepdims=True), 1) for m in (forward, backward)]
    numbers = {"source2token_scores": [0.1, 0.9, 0.2, 0.0], "pooling_weights": [0.2, 0.5, 0.2, 0.1]}
    spread = {"sd": 0.1, "sentences": 25}
    return {
        "kind": "attention",
        "key": "a0",
        "run": "r0",
        "model": MINE,
        "task": "trec",
        "seed": 0,
        "fold": None,
        "status": "ok",
        "test": {"accuracy": 0.9},
        "tagged": 25,
        "seconds": 60.0,
        "sentences": [
            {
                "tokens": tokens,
                "numbers": numbers,
                "layers": [
                    {
                        "masks": ["forward", "backward"],
                        "token2token": [np.round(w, 4).tolist() for w in weights],
                        "source2token": [[0.1, 0.8, 0.3, 0.0], [0.1, 1.0, 0.1, 0.0]],
                    }
                ],
            }
        ],
        "checks": {"row_error": 2e-7, "forbidden": 0.0, "rows": 8, "cells": 20},
        "distances": [
            {"layer": "", "head": 0, "mask": "forward", "counts": [[-2, 10], [-1, 30]]},
            {"layer": "", "head": 1, "mask": "backward", "counts": [[1, 25], [3, 15]]},
        ],
        "by_tag": {
            "pooling_weights": {
                "NOUN": {"mean": 0.05, "tokens": 60, **spread},
                "DET": {"mean": -0.04, "tokens": 40, **spread},
            }
        },
        "contrast": {"pooling_weights": {"mean": 0.09, **spread}},
    }


def write(folder: Path, model: str, records: Iterable[dict[str, Any]]) -> Path:
    """Append the records of a session on one machine; returns the folder."""
    writer = journal.Writer(folder, session(model))
    for one in records:
        writer.append(one)
    writer.close()
    return folder


def write_everything(folder: Path) -> Path:
    """All of it, of one machine, and a bench and comparisons of another with a bad name."""
    write(folder, "Made up", [*bench(), design(), *runs(), *frontier(), *stress(), attention()])
    other = [*bench(SLOWER, f"{EVIL}.{EVIL}"), *hostile_pair(), *family()]
    return write(folder, f"Not made up {EVIL}", other)
