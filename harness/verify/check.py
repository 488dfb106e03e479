"""Check one implementation: against its oracle where it has one, by its own answers where not."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from harness.build import set_tf32
from harness.case import literal
from harness.json_file import replace_file
from harness.registry import Registry, code_hash, resolve
from harness.verify.batches import Batch, batches
from harness.verify.batches import large as of_large
from harness.verify.budget import Deviation, parted, summary
from harness.verify.compare import (
    DRAWS,
    OUTPUT,
    Computed,
    Question,
    compare,
    computed,
    numpy64,
    off_kinks,
)
from harness.verify.fixture import WAYS, Fixture, evaluated, forced
from harness.verify.unaided.judge import check_properties
from reference_impls.mechanism import Drawn, Implementation, Mechanism, Unsupported

Options: TypeAlias = "Mapping[str, str] | None"
"""What ``--option`` gave, as texts."""
AT_ONCE, PIECE = 1024, 256
"""Tokens up to which plain is asked of all rows at once; rows that it is asked of beyond that."""


@dataclass(frozen=True)
class Answers:
    """Answers of oracles, kept while implementations of one mechanism are asked the same."""

    folder: Path
    code: str  # of the oracle and of what asks it: another code never reads these answers

    def of(self, asked: Question) -> Computed:
        """The answer, read where it is there, else computed and written."""
        path = self.folder / f"{self.code}-{asked.digest}.npz"
        parts = ("values", "gradients")
        if path.exists():
            with np.load(path) as file:
                arrays = {tuple(name.split(" ", 1)): array for name, array in file.items()}
            return Computed(*({n: a for (of, n), a in arrays.items() if of == p} for p in parts))
        answer = asked.answer()
        held: dict[str, Any] = {f"{p} {n}": a for p in parts for n, a in getattr(answer, p).items()}
        whole = io.BytesIO()
        np.savez(whole, **held)
        replace_file(path, whole.getbuffer())
        return answer


def named_weights(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """All weights, frozen ones too, as float64 arrays by their state_dict names."""
    return {name: numpy64(value) for name, value in module.state_dict().items()}


def check_batch(
    mechanism: Mechanism,
    implementation: Implementation,
    batch: Batch,
    dtype: str,
    device: str,
    seed: int = 0,
    kept: Answers | None = None,
) -> tuple[list[Deviation], bool]:
    """Compare implementation, plain yardstick and oracle on one batch; whether it is at a kink."""
    if mechanism.oracle is None or mechanism.plain is None:
        raise ValueError(f"{mechanism.name} has no oracle")
    fixture = Fixture(mechanism, implementation, batch, dtype, device, seed)
    module = fixture.module(implementation.factory, **implementation.options)
    x, real, cotangent = fixture.inputs()
    mask = real if batch.masked or not implementation.mask_optional else None
    rows = batch.rows
    recorder = resolve(mechanism.recorder)(module) if batch.drawn else nullcontext(Drawn())
    with forced(batch.forced), recorder as drawn:
        got = computed(module, x, mask, cotangent, said=drawn.said)
        asked = Question(
            resolve(mechanism.oracle),
            np.where(real.cpu().numpy()[..., None], numpy64(x), 0),
            batch.lengths,
            named_weights(module),
            numpy64(cotangent),
            fixture.of_oracle,
            rows,
            padding_matters=bool(mechanism.padding_matters),
            drawn=drawn.of,
            odds=resolve(mechanism.odds) if batch.drawn else None,
        )
        # The answer to what was drawn is nobody else's.
        expected = asked.answer() if kept is None or batch.drawn else kept.of(asked)
        unlikely = asked.unlikely(batch.label)
    yardstick = None
    if not batch.drawn:  # else plain would draw otherwise
        plain = fixture.module(mechanism.plain)
        plain.load_state_dict(module.state_dict())
        if rows is not None:
            some = torch.tensor(rows, device=x.device)
            yardstick = computed(plain, x, mask, cotangent[:, rows], rows=some)
        else:
            ask = _in_pieces if max(batch.lengths) > AT_ONCE else computed
            yardstick = ask(plain, x, mask, cotangent)
    if rows is not None:
        got, expected = got.at(rows), expected.at(rows)
    if batch.evaluated:
        still = replace(asked, drawn=None, odds=None).answer() if batch.drawn else expected
        got = got.saying(evaluated(module, x, mask))
        expected = expected.saying(dict.fromkeys(WAYS, still.output))
        if yardstick is not None:
            yardstick = yardstick.saying(dict.fromkeys(WAYS, yardstick.output))
    arithmetic = implementation.arithmetic(dtype, device)
    found = compare(got, expected, yardstick, arithmetic, batch.label)
    found += [*unlikely, *fixture.counted(module)]
    return found, asked.at_a_kink(found, expected, arithmetic)


def _in_pieces(
    plain: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor | None, cotangent: torch.Tensor
) -> Computed:
    """What plain says of all rows, some at a time: it holds N x N x D of those that it is asked."""
    parts = []
    for rows in torch.arange(x.shape[1], device=x.device).split(PIECE):
        parts.append(computed(plain, x, mask, cotangent[:, rows], rows=rows))
    output = np.concatenate([part.output for part in parts], axis=1)
    names = parts[0].gradients
    return Computed(
        {OUTPUT: output}, {n: np.add.reduce([p.gradients[n] for p in parts]) for n in names}
    )


def check_drawn(
    mechanism: Mechanism,
    implementation: Implementation,
    batch: Batch,
    dtype: str,
    device: str,
    kept: Answers | None = None,
) -> list[Deviation]:
    """`check_batch` at the first drawn point that is not at a kink.

    If there is none in `DRAWS` points, the batch counts as over budget.
    """
    found, kink, _ = off_kinks(
        lambda seed: check_batch(mechanism, implementation, batch, dtype, device, seed, kept), 0
    )
    if not kink:
        return found
    never = f"gradients, {batch.label}: {DRAWS} points all at a kink"
    return [Deviation(never, math.inf, 0.0, "all")]


def chosen(
    name: str, device: str, given: Sequence[str], options: Options
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
        # Formulas say nothing of it either.
        mechanism = replace(
            mechanism, options={**mechanism.options, **own}, variants={}, random={}, parameters=None
        )
    return mechanism, implementation


def check(
    name: str,
    dtype: str,
    device: str,
    given: Sequence[str] = (),
    options: Options = None,
    large: bool = False,
    answers: str = "",
) -> dict[str, Any]:
    """Verify ``mechanism.implementation`` in one dtype on one device, on all small shapes.

    Parameters
    ----------
    name, dtype, device : str
    given : sequence of str
        What ``--with`` named.
    options : mapping of str
        What ``--option`` gave, as texts; see `chosen`.
    large : bool
        On the shapes of `harness.verify.batches.large` instead.
    answers : str
        Folder in which those of the oracle are kept for other implementations; empty for none.

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
    kept = Answers(Path(answers), code_hash(mechanism, "verify")) if answers else None
    found: list[Deviation] = []
    refused: list[str] = []
    done = 0
    for batch in of_large() if large else batches(mechanism, implementation, dtype):
        try:
            found += check_drawn(mechanism, implementation, batch, dtype, device, kept=kept)
        except Unsupported as reason:
            refused.append(f"{batch.label}: {reason}")
            continue
        done += 1
    if not done:
        return {**row, "verdict": "unsupported", "detail": refused[0].partition(": ")[2]}
    assert all(parted(found)), "neither values nor gradients may go without a comparison"
    told = [f"{len(refused)} of {done + len(refused)} batches unsupported"] if refused else []
    if (arithmetic := implementation.arithmetic(dtype, device)) != dtype:
        told.append(f"judged as {arithmetic}")
    detail = "; ".join(told)
    if failures := [d.what for part in parted(found) for d in part if not d.ok]:
        detail = f"{len(failures)} findings over budget, first: {failures[0]}"
    return {
        **row,
        "verdict": "wrong" if failures else "ok",
        "detail": detail,
        "comparisons": len(found),
        **summary(found),
    }
