"""Made-up records of a device, for tests of what is said of them; never for results."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from reports.claims.record import Claim
from suites.support.comparisons import run

BASELINE = "multi_head.sdpa"
_SERIAL = itertools.count()


def case(
    name: str,
    length: int,
    phase: str = "training",
    batch: int = 64,
    heads: int = 8,
    setting: str = "1-thread",
) -> str:
    """A case id at the papers' width; ``heads`` 0 for none."""
    shown = f"-H{heads}" if heads else ""
    return f"{name}-B{batch}-N{length}-D300x600{shown}-f32-{phase}-cpu+{setting}"


def record(kind: str, case_id: str, block: int = 0, **more: Any) -> dict[str, Any]:
    """What a session writes of a case, with a key of its own; ok unless it says otherwise."""
    return {
        "kind": kind,
        "key": f"{kind}{next(_SERIAL)}",
        "case": case_id,
        "block": block,
        "interpreter": f"i{block}",
        "order": block,
        "status": "ok",
        "code": "c",
        **more,
    }


def reading(case_id: str, block: int, seconds: float, **more: Any) -> dict[str, Any]:
    """A time."""
    return record("time", case_id, block, median=seconds, samples=[seconds], **more)


def peak(case_id: str, block: int, mib: float) -> dict[str, Any]:
    """A peak of memory."""
    size = mib * 2**20
    return record("memory", case_id, block, peak_bytes=size, transient_bytes=size)


def margin(case_id: str, error: float = 1e-7, budget: float = 1e-6) -> dict[str, Any]:
    """Error and budget at a case's own shape."""
    return record("margin", case_id, error=error, budget=budget, margin=budget / error)


def timed(
    seconds: Mapping[str, float],
    *,
    blocks: int = 7,
    noise: float = 0.002,
    verified: bool = True,
    control: bool = True,
    seed: int = 0,
) -> Iterator[dict[str, Any]]:
    """Times of cases by id, each block with a drift of its own, and margins.

    Every baseline among them is there a second time, as its control.
    """
    generator = np.random.default_rng(seed)
    every = dict(seconds)
    if control:
        every |= {f"{c}+control": s for c, s in seconds.items() if c.startswith(BASELINE)}
    for block in range(blocks):
        drift = float(generator.lognormal(0, 0.2))
        for case_id, size in every.items():
            yield reading(case_id, block, size * drift * float(generator.lognormal(0, noise)))
    if verified:
        yield from map(margin, seconds)


def peaks(by_case: Mapping[str, Sequence[float]]) -> Iterator[dict[str, Any]]:
    """Memory readings in MiB, one per block."""
    for case_id, sizes in by_case.items():
        for block, size in enumerate(sizes):
            yield peak(case_id, block, size)


def trained(
    model: str,
    values: Sequence[float],
    *,
    task: str = "trec",
    metric: str = "accuracy",
    epoch_seconds: float = 1.0,
    selected: tuple[float, float] | None = None,
    width: int = 300,
) -> Iterator[dict[str, Any]]:
    """Runs of a model, one per seed, with these test metrics; selected: heads, dependents."""
    for seed, value in enumerate(values):
        yield run(
            model,
            seed,
            value,
            task,
            key=f"run{next(_SERIAL)}",
            test={metric: value},
            vectors="v",
            recipe={"width": width, "choose": "dev", "tuning_trials": 3},
            epochs=[{"epoch": 1, "seconds": epoch_seconds}],
            chosen_epoch=1,
            selected={"heads": selected[0], "dependents": selected[1]} if selected else None,
        )


def claim(query: str = "", kind: Any = "measured", name: str = "x", **more: Any) -> Claim:
    """A claim of MTSA's paper."""
    shared = {"item": 1, "paper": "mtsa", "place": "p", "line": "l", "statement": "Statement."}
    return Claim(id=name, kind=kind, query=query, **{**shared, **more})


def exact(check: str, verdict: str = "ok", **more: Any) -> dict[str, Any]:
    """What ``attnbench verify`` writes of an exact check."""
    detail = f"{check} is {verdict}"
    return record("exact", check, check=check, verdict=verdict, detail=detail, **more)


def unsealed(path: Path) -> list[dict[str, Any]]:
    """Take the checksums out of a journal's file, as in those that never had any; its lines."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for name in ("checksum", "sealed"):
            line.pop(name, None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return lines
