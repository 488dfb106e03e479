"""A mark for torch.compile, without what it costs to ask torch for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def constant(function: Callable[P, T]) -> Callable[P, T]:
    """`torch.compiler.assume_constant_result`: called once, while torch.compile traces.

    That one imports torch._dynamo, for 1.4 s in every process that never compiles anything.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function
