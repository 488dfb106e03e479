"""Timed calls once more: by a fresh module, in another process, eager, with gradients on.

Whatever a module did to be fast, by call number, address, contents, grad mode or compiled code,
what it gave while the clock ran must be what it gives here for the same input. Runs in children.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.build import apply_settings, case_inputs, case_module
from harness.case import Case, parse
from harness.inputs import (
    INPUT,
    OUTPUT,
    Inputs,
    InputSource,
    gradient_of,
    positions,
    random_numbers,
)
from harness.isolate import Wrong
from harness.registry import Registry
from harness.verify.budget import Deviation, arithmetic_of, budget, worst
from harness.verify.compare import SHAKES, UNIT, shaken

FOUND_BY = {"found_by": "timed-values"}
ALONE = 2
"""Samples of a batch that are computed alone, the others together."""
MOST_SHAKES = 8 * SHAKES
"""Of a small case's input: a single pre-activation near zero may cross it in one of six only."""
SHAKING_SECONDS = 10.0
"""For those beyond `SHAKES`. What takes longer has so many pre-activations that some cross."""
Results = dict[str, torch.Tensor]
"""By name: the output, and in training the gradients."""


def check_timed(
    case: str,
    evidence: Mapping[str, Any],
    given: Sequence[str] = (),
    count: bool = False,
) -> dict[str, Any]:
    """Compute timed calls again and compare.

    Parameters
    ----------
    case : str
    evidence : mapping
        From `harness.measure.clock.time_case`.
    count : bool
        Whether to count the operations of a pass too, by torch's own counter.

    Returns
    -------
    dict
        ``checked``, how many calls were compared, the ``checked_error`` with the least margin and
        its ``checked_budget``; where none was, ``unchecked`` says why. With `count` also
        ``operations``, 0 where nothing could be counted.

    Raises
    ------
    Wrong
        If one differs by more than the cap of the error budget.
    """
    fresh = _Fresh(parse(case), Registry(given), evidence["secret"])
    if not evidence["looks"]:
        raise Wrong("no timed call was looked at", FOUND_BY)
    found: list[Deviation] = []
    row: dict[str, Any] = {"checked": 0}
    for look in evidence["looks"]:
        if look["moved"] and fresh.case.run_settings().compile_mode:
            row["unchecked"] = "compiled code draws random numbers of its own"
            continue
        deviations = fresh.compare(look)
        bad = [d for d in deviations if not d.ok]
        if bad and not fresh.at_a_kink(look, bad):
            raise Wrong(_said(look, worst(bad)), FOUND_BY)
        found += deviations
        row["checked"] += 1
    if found:
        one = worst(found)
        row |= {"checked_error": one.error, "checked_budget": one.budget}
    if count:
        row["operations"] = fresh.operations()
    return row


def _said(look: Mapping[str, Any], one: Deviation) -> str:
    if one.what == INPUT:
        return f"timed call {look['calls']} of sample {look['sample']} changed its input"
    return (
        f"{one.what} of timed call {look['calls']} of sample {look['sample']} differs from that of "
        f"a fresh module by {one.error:.2g} (budget {one.budget:.2g})"
    )


class _Fresh:
    """A module that was never timed, and the inputs of the calls that were."""

    def __init__(self, case: Case, registry: Registry, secret: int) -> None:
        self.case = case
        apply_settings(case)
        mechanism, implementation, self._module = case_module(case, registry)
        _, self._mask = case_inputs(case, implementation)
        self._source = InputSource(case, mechanism.output, secret)
        self._random = random_numbers(case.problem.device)
        self._arithmetic = arithmetic_of(case, implementation)

    def compare(self, look: Mapping[str, Any]) -> list[Deviation]:
        """Each result of a look against what this module gives.

        Raises
        ------
        Wrong
            If there are others, or others' shapes.
        """
        expected = self._expected(look, lambda x: x)
        timed = {name: shape for name, (shape, _) in look["values"].items()}
        wanted = {name: list(result.shape) for name, result in expected.items()}
        if timed != wanted:
            raise Wrong(
                f"timed call {look['calls']} of sample {look['sample']} gave {_shapes(timed)}; "
                f"a fresh module gives {_shapes(wanted)}",
                FOUND_BY,
            )
        found = []
        for name, (_, values) in look["values"].items():
            gradient = "" if name in (INPUT, OUTPUT) else name
            allowed = budget(None, self._arithmetic, bool(gradient))
            apart = _apart(
                torch.tensor(values, dtype=torch.float64), look["seed"], name, expected[name]
            )
            found.append(Deviation(name, apart, allowed, gradient))
        return found

    def at_a_kink(self, look: Mapping[str, Any], bad: Sequence[Deviation]) -> bool:
        """Whether gradients alone differ, and this module's own move as far by rounding its input.

        See `harness.verify.compare.Question.at_a_kink`.
        """
        if not all(d.gradient for d in bad):
            return False
        expected = self._expected(look, lambda x: x)
        moved = dict.fromkeys((d.gradient for d in bad), 0.0)
        began = perf_counter()
        for draw in range(MOST_SHAKES):
            if draw >= SHAKES and perf_counter() - began > SHAKING_SECONDS:
                break
            generator = torch.Generator().manual_seed(draw)
            units = 4 * UNIT[self._arithmetic]
            other = self._expected(look, partial(shaken, units=units, generator=generator))
            for name in moved:
                values = _numbers(other[name], look["seed"], name)
                moved[name] = max(moved[name], _apart(values, look["seed"], name, expected[name]))
            if all(moved[d.gradient] >= 0.5 * d.error for d in bad):
                return True
        return False

    def operations(self) -> int:
        """Floating-point operations of a pass, as far as torch can count them."""
        (inputs,) = self._source.pieces(0, 1)
        with FlopCounterMode(display=False) as counter:
            self._pass(inputs, self._mask, [len(inputs[0])])
        return int(counter.get_total_flops())

    def _expected(
        self, look: Mapping[str, Any], change: Callable[[torch.Tensor], torch.Tensor]
    ) -> Results:
        """Results of the last call of a sample; of what draws random numbers, of all in order.

        What draws none is given the samples in another order, two of them alone: nothing that was
        kept for this input helps, nor doing less for a large batch.
        """
        calls = list(self._source.pieces(look["seed"], look["calls"]))
        batch = len(calls[-1][0])
        if look["moved"]:
            self._random.manual_seed(look["seed"])
            for x, *rest in calls:
                found = self._pass((change(x), *rest), self._mask, [batch])
        else:
            draw = torch.Generator().manual_seed(look["seed"])
            order = torch.randperm(batch, generator=draw).to(calls[-1][0].device)
            x, *rest = (part[order] for part in calls[-1])
            mask = None if self._mask is None else self._mask[order]
            parts = [1] * min(ALONE, batch - 1) + [max(1, batch - ALONE)]
            found = self._pass((change(x), *rest), mask, parts)
            back = order.argsort()
            for name in {OUTPUT, gradient_of(INPUT)} & {*found}:
                found[name] = found[name][back]
        return {**found, INPUT: calls[-1][0]}

    def _pass(self, inputs: Inputs, mask: torch.Tensor | None, parts: Sequence[int]) -> Results:
        """Results of a batch that is given in parts of so many samples."""
        self._module.zero_grad(set_to_none=True)
        outputs, leaves = [], []
        masks = [None] * len(parts) if mask is None else mask.split(list(parts))
        for some, (x, *cotangent) in zip(
            masks, zip(*(t.split(list(parts)) for t in inputs), strict=True), strict=True
        ):
            leaves.append(x.detach().clone().requires_grad_(bool(cotangent)))
            with torch.enable_grad():
                output = self._module(leaves[-1], some)
            outputs.append(output.detach())
            if cotangent:
                output.backward(*cotangent)
        found = {OUTPUT: torch.cat(outputs)}
        slopes = [leaf.grad for leaf in leaves if leaf.grad is not None]
        if slopes:
            found[gradient_of(INPUT)] = torch.cat(slopes)
        if len(inputs) > 1:
            for name, weight in self._module.named_parameters():
                if weight.grad is not None:
                    found[gradient_of(name)] = weight.grad
        return found


def _numbers(result: torch.Tensor, seed: int, name: str) -> torch.Tensor:
    return torch.take(result, positions(seed, name, result)).cpu().double()


def _apart(values: torch.Tensor, seed: int, name: str, expected: torch.Tensor) -> float:
    """Largest deviation at the positions that were kept, relative to max(1, max|expected|)."""
    scale = max(1.0, float(expected.abs().max()))
    apart = float((values - _numbers(expected, seed, name)).abs().max()) / scale
    return apart if math.isfinite(apart) else math.inf


def _shapes(results: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in results.items())
