"""Modules that a clock must see through, and tasks that time them in a process of their own."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from harness.case import Case
from harness.isolate import untouched
from harness.measure.clock import time_case, time_prepared
from harness.measure.run import prepare
from harness.verify.timed import check_timed

HERE = "suites.support.clocked:"


class Plain(torch.nn.Module):
    """One product."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)
        self.calls = 0

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.map(x)


class Changing(Plain):
    """Compiled code depends on a number that is another one in every call."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.calls += 1
        return self.map(x) * self.calls


class Scaled(Plain):
    """Compiled code depends on a number that others may change."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.map(x) * (1 + self.calls)


class Settling(Plain):
    """Compiled code depends on a number that stops changing after some calls."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.calls = min(self.calls + 1, 2)
        return self.map(x) * self.calls


class Forgetful(Plain):
    """Makes dynamo give up within its first call: one function, compiled for many numbers."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        for number in range(20):
            torch._dynamo.graph_break()
            x = _scaled(x, number)
        return self.map(x)


def _scaled(x: Tensor, number: int) -> Tensor:
    return x * (1 + number)


class Threadbare(Plain):
    """Sets the number of threads of the whole process."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        torch.set_num_threads(3)
        return self.map(x)


class Mover(Plain):
    """Confines the process to one core while it is timed."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 5:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        return self.map(x)


class Sleepy(Plain):
    """Its first call takes 0.3 s longer."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == 1:
            time.sleep(0.3)
        return self.map(x)


def slow_compiler(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """A backend of torch.compile that takes a second to do nothing."""
    time.sleep(1.0)
    return graph.forward


def time_compiled(
    name: str, slow: bool = False, beside: str = "", beside_first: bool = False
) -> dict[str, Any]:
    """`time_eagerly_compiled` of a module here; with `beside` in turn with another one."""
    return time_eagerly_compiled(
        slow,
        case=case(name, "+compiled"),
        given=[HERE + one for one in dict.fromkeys((name, beside)) if one],
        rounds=5,
        seconds=0.0,
        beside=case(beside, "+compiled") if beside else None,
        beside_first=beside_first,
    )


def time_eagerly_compiled(slow: bool = False, **arguments: Any) -> dict[str, Any]:
    """`time_case` of whatever is given, compiled by a backend that generates no code."""
    backend: Any = slow_compiler if slow else "eager"

    def compiled(module: torch.nn.Module, case: Case) -> Any:
        plain = case.run_settings().compile_mode is None
        return module if plain else torch.compile(module, backend=backend, dynamic=False)

    with mock.patch("harness.measure.run.compiled", compiled):
        return time_case(**arguments)


def time_compiled_once_more() -> dict[str, Any]:
    """Time a compiled module that must be compiled anew in the midst of being timed."""
    modules: list[Scaled] = []

    def compiled(module: Scaled, _: object) -> Any:
        modules.append(module)
        return torch.compile(module, backend="eager", dynamic=False)

    with mock.patch("harness.measure.run.compiled", compiled):
        prepared = prepare(case("Scaled", "+compiled"), [HERE + "Scaled"])
    run = prepared.call
    numbers = itertools.count(1)

    def call(*inputs: Tensor) -> None:
        if next(numbers) == 12:
            modules[0].calls = 1
        run(*inputs)

    prepared.call = call
    return time_prepared(prepared, rounds=20, seconds=0.0)


def case(name: str, settings: str, phase: str = "forward") -> str:
    """Id of a small case of a user's module."""
    return f"{name}.module-B2-N4-D8-f32-{phase}-cpu{settings}"


def time_trusting(**asked: Any) -> dict[str, Any]:
    """Time a case in a process that does not look at what was replaced in it from now on."""
    untouched.refuse_replaced = lambda: None
    return time_case(**asked)


def check_trusting(**asked: Any) -> dict[str, Any]:
    """Compute timed calls again in such a process."""
    untouched.refuse_replaced = lambda: None
    return check_timed(**asked)
