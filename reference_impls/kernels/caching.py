"""What is found or made once and read by many calls, also by compiled ones and by CUDA graphs."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def constant(function: Callable[P, T]) -> Callable[P, T]:
    """`torch.compiler.assume_constant_result`: called once, while torch.compile traces.

    That one imports torch._dynamo, for 1.4 s in every process that never compiles anything.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function


class TensorCache(Generic[T]):
    """At most so many things made of tensors, one object for all calls.

    A CUDA graph reads tensors at their addresses: what a capture has looked up stays, however much
    comes after it. What is made during a capture belongs to that graph and has no values before
    the graph is replayed: it is not kept.

    Parameters
    ----------
    most : int
        All are given up when one more is made; what graphs read is not counted.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._made: dict[Hashable, T] = {}
        self._captured: dict[Hashable, T] = {}

    def __len__(self) -> int:
        return len(self._made) + len(self._captured)

    def of(self, key: Hashable, device: torch.device, make: Callable[[], T]) -> T:
        """What was made for the key, or is now; always now while torch.compile traces.

        Parameters
        ----------
        key : hashable
        device : torch.device
            Where it is.
        make : callable
            Makes it.
        """
        if torch.compiler.is_compiling():
            return make()
        captured = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        if captured and key in self._made:
            self._captured[key] = self._made.pop(key)
        for held in (self._captured, self._made):
            if key in held:
                return held[key]
        with torch.inference_mode(False):  # it may serve training later
            made = make()
            # A mode that only plays a call through makes no values either.
            real = type(torch.empty(0)) is Tensor
        if real and not captured:
            if len(self._made) >= self.most:
                self._made.clear()
            self._made[key] = made
        return made
