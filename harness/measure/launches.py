"""How many operations a pass launches, for the launch floor. Runs in children."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_NO_WORK = ("empty", "new_empty", "_unsafe_view", "_reshape_alias", "lift_fresh")
"""Beginnings of names of operations that compute nothing; views compute nothing either."""


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        name = func.name().partition("::")[2]
        if not (func.is_view or name.startswith(_NO_WORK)):
            self.count += 1
        return func(*args, **(kwargs or {}))


def count_launches(call: Callable[[], object]) -> int:
    """Call once and count the operations that do work, those of the backward pass included.

    An operation may launch several kernels (a recurrent layer does), so this is the least number
    of launches. Compiled code and replayed graphs can't be counted.
    """
    with _Counter() as counter:
        call()
    return counter.count
