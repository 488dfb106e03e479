"""Timed calls once more: by a fresh module, in another process, eager, with gradients on.

Whatever a module did to be fast, by call number, address, contents, grad mode or compiled code,
what it gave while the clock ran must be what it gives here for the same input. Runs in children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from harness.build import apply_settings, case_inputs, case_module
from harness.case import Case, parse
from harness.inputs import Inputs, Source, positions, random_numbers
from harness.isolate import Wrong
from harness.registry import Registry
from harness.verify.budget import Deviation, budget, worst
from harness.verify.compare import SHAKES, UNIT

FOUND_BY = {"found_by": "timed-values"}
Results = dict[str, torch.Tensor]
"""By name: the output, and in training the gradients."""


def check_timed(
    case: str,
    evidence: Mapping[str, Any],
    given: Sequence[str] = (),
    seed: int = 0,
    count: bool = False,
) -> dict[str, Any]:
    """Compute timed calls again and compare.

    Parameters
    ----------
    case : str
    evidence : mapping
        From `harness.measure.clock.time_prepared`.
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
    fresh = _Fresh(parse(case), Registry(given), seed, evidence["secret"])
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
    return (
        f"{one.what} of timed call {look['calls']} of sample {look['sample']} differs from that of "
        f"a fresh module by {one.error:.2g} (budget {one.budget:.2g})"
    )


class _Fresh:
    """A module that was never timed, and the inputs of the calls that were."""

    def __init__(self, case: Case, registry: Registry, seed: int, secret: int) -> None:
        self.case = case
        apply_settings(case)
        mechanism, implementation, self._module = case_module(case, registry, seed)
        _, self._mask = case_inputs(case, implementation, seed)
        self._source = Source(case, mechanism.output, secret)
        self._random = random_numbers(case.problem.device)
        tf32 = case.run_settings().tf32
        self._arithmetic = "tf32" if tf32 else case.problem.dtype

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
            gradient = "" if name == "the output" else name
            allowed = budget(None, self._arithmetic, bool(gradient))
            apart = _apart(np.array(values), look["seed"], name, expected[name])
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
        for draw in range(SHAKES):
            generator = torch.Generator().manual_seed(draw)

            def shaken(x: torch.Tensor, generator: torch.Generator = generator) -> torch.Tensor:
                noise = torch.rand(x.shape, generator=generator, dtype=torch.float64) * 2 - 1
                return x * (1 + 4 * UNIT[self._arithmetic] * noise.to(x.device)).to(x.dtype)

            other = self._expected(look, shaken)
            for name in moved:
                at = positions(look["seed"], name, other[name].numel())
                values = _numbers(other[name], at)
                moved[name] = max(moved[name], _apart(values, look["seed"], name, expected[name]))
        return all(moved[d.gradient] >= 0.5 * d.error for d in bad)

    def operations(self) -> int:
        """Floating-point operations of a pass, as far as torch can count them."""
        (inputs,) = self._source.pieces(0, 1)
        with FlopCounterMode(display=False) as counter:
            self._pass(inputs, self._mask)
        return int(counter.get_total_flops())

    def _expected(
        self, look: Mapping[str, Any], change: Callable[[torch.Tensor], torch.Tensor]
    ) -> Results:
        """Results of the last call of a sample; of what draws random numbers, of all in order.

        What draws none is given the samples of the batch in another order: nothing that was kept
        for this input helps.
        """
        calls = list(self._source.pieces(look["seed"], look["calls"]))
        if not look["moved"]:
            x, *rest = (part.roll(1, 0) for part in calls[-1])
            mask = None if self._mask is None else self._mask.roll(1, 0)
            found = self._pass((change(x), *rest), mask)
            of_samples = ("the output", "the gradient of the input")
            return {n: r.roll(-1, 0) if n in of_samples else r for n, r in found.items()}
        self._random.manual_seed(look["seed"])
        for x, *rest in calls:
            found = self._pass((change(x), *rest), self._mask)
        return found

    def _pass(self, inputs: Inputs, mask: torch.Tensor | None) -> Results:
        x, *cotangent = inputs
        x = x.detach().clone().requires_grad_(bool(cotangent))
        self._module.zero_grad(set_to_none=True)
        with torch.enable_grad():
            output = self._module(x, mask)
        found = {"the output": output.detach()}
        if cotangent:
            output.backward(*cotangent)
            of = [("the input", x), *self._module.named_parameters()]
            for name, tensor in of:
                if tensor.grad is not None:
                    found[f"the gradient of {name}"] = tensor.grad
        return found


def _numbers(result: torch.Tensor, at: Sequence[int]) -> np.ndarray:
    picked = torch.take(result, torch.tensor(at).to(result.device))
    return picked.to(device="cpu", dtype=torch.float64).numpy()


def _apart(values: np.ndarray, seed: int, name: str, expected: torch.Tensor) -> float:
    """Largest deviation at the positions that were kept, relative to max(1, max|expected|)."""
    wanted = _numbers(expected, positions(seed, name, expected.numel()))
    scale = max(1.0, float(expected.abs().max()))
    apart = float(np.abs(values - wanted).max()) / scale
    return apart if np.isfinite(apart) else float("inf")


def _shapes(results: Mapping[str, Sequence[int]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in results.items())
