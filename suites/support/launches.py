"""What a pass on CUDA would launch and wait for, told without a device: no kernel is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.measure.run import does_work
from reference_impls.kernels import core, triton, underflow

WAITING = (
    "_local_scalar_dense",
    "item",
    "is_nonzero",
    "equal",
    "nonzero",
    "masked_select",
    "unique",
    "_unique",
)
"""Beginnings of operations whose result, or its shape, the host needs; a mask as an index too."""


class Launches(TorchDispatchMode):
    """Names of what a pass launches, in order, inside our own operators too, and of what waits.

    Parameters
    ----------
    own : dict of str to callable
        Bodies of our operators, by name.
    """

    def __init__(self, own: dict[str, Callable[..., Any]]) -> None:
        super().__init__()
        self.own = own
        self.launched: list[str] = []
        self.waited: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any | None = None
    ) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        if name in self.own:
            with self:
                return self.own[name](*args, **(kwargs or {}))
        by_mask = name.startswith("index") and any(
            isinstance(t, Tensor) and t.dtype in (torch.bool, torch.uint8)
            for t in (args[1] if isinstance(args[1], list | tuple) else ())
        )
        if by_mask or name.startswith(WAITING):
            self.waited.append(name)
        found = func(*args, **(kwargs or {}))
        # A conversion is called a view, and is none where it copies.
        if does_work(func) or (name == "to" and found.data_ptr() != args[0].data_ptr()):
            self.launched.append(name)
        return found


@contextmanager
def on_no_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Launches]:
    """CPU tensors taken for those of a CUDA device: our kernels are noted and do nothing.

    What they would have written is whatever memory held.
    """
    from reference_impls.kernels.triton.launch import Launch

    operators = {
        "triton_forward": triton.triton_forward,
        "triton_backward": triton.triton_backward,
        "repaired": underflow.repaired,
        "repaired_backward": underflow.repaired_backward,
    }
    bodies = {name: vars(operator)["_init_fn"] for name, operator in operators.items()}
    launches = Launches(bodies)
    noted = launches.launched.append
    monkeypatch.setattr(Launch, "run", lambda one: noted(one.kernel.fn.__name__))
    monkeypatch.setattr(triton, "refuse", lambda *_: None)
    monkeypatch.setattr(underflow, "on_device", lambda _: True)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.large_tiles", lambda _: True)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.architecture", lambda _: 90)
    core.load("triton")
    with launches:
        yield launches
