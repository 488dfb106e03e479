"""On CUDA no eager call waits for the device, and what it launches is known: told without one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from harness.measure.run import does_work
from harness.registry import Registry, resolve
from reference_impls.kernels import core, tiled, triton, underflow
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.tiled import cutting
from reference_impls.kernels.triton import device
from suites.support.attending import Problem

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
REGISTRY = Registry()
FORWARD, TRAINING = 10, 50
"""Launches of MTSA's layer in float32, without a mask; multi-head's: 4 and 18."""


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

    ``own`` are the bodies of our operators, by name.
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


def launched(
    name: str, training: bool, monkeypatch: pytest.MonkeyPatch, padded: bool = False
) -> list[str]:
    """By one pass of a layer at the widths of setting A, nothing awaited in it."""
    _, implementation = REGISTRY.find(name)
    layer: Any = resolve(implementation.factory)
    module = layer(300, 600, heads=8, **implementation.options).train(training)
    x = torch.randn(2, 64, 300)
    mask = torch.arange(64) < torch.tensor([[64], [40]]) if padded else None

    def once() -> None:
        if not training:
            with torch.inference_mode():
                module(x, mask)
            return
        out = module(x.clone().requires_grad_(), mask)
        out.backward(torch.ones_like(out))

    with on_no_device(monkeypatch) as seen:
        once()  # what is made once and kept
        del seen.launched[:], seen.waited[:]
        once()
    assert seen.waited == []
    return seen.launched


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_the_layer_waits_for_nothing_and_launches_what_is_known(
    training: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = launched("mtsa.fused_triton", training, monkeypatch, padded)
    repairs = [one for one in seen if one.startswith("repair")]
    own = ["repair_kernel", "repair_query_kernel", "repair_key_kernel"]
    assert repairs == own[: 3 if training else 1]
    if not padded:
        assert len(seen) <= (TRAINING if training else FORWARD), seen


@pytest.mark.parametrize("training", [False, True])
def test_algorithm1_waits_for_nothing(training: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "repair_kernel" in launched("mtsa.algorithm1", training, monkeypatch)


@pytest.mark.parametrize("backend", ["triton", "tiled"])
@pytest.mark.parametrize("training", [False, True])
def test_flagged_queries_are_nothing_that_the_host_must_know(
    backend: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Problem(n=12, scale=100.0, padding="tail").call()
    assert tiled.attend(call)[1].any()

    def once() -> list[str]:
        with on_no_device(monkeypatch) as seen, torch.set_grad_enabled(training):
            a = core.attend(*call, backend=backend)
            if training:
                a.backward(torch.ones_like(a))
        assert seen.waited == []
        return seen.launched

    once()  # of the second on, gradients are added to those that are there
    for_them = Counter(once())
    if backend == "tiled":
        monkeypatch.setattr(underflow, "repair", lambda *_: None)
        monkeypatch.setattr(underflow, "add_gradients", lambda *_: None)
        for_them -= Counter(once())
    assert {"repair_kernel", *(["repair_key_kernel"] if training else [])} <= set(for_them)
    # Nothing is filled, copied or added up, as the backend has its own way back.
    others = {"zeros_like", "zeros", "zero_", "_to_copy", "clone", "copy_", "add"}
    assert not others & set(for_them), for_them


def test_numbers_of_a_geometry_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if on a device; a capture cuts as the calls before it did."""
    call = Problem(n=40).call()
    wanted = cutting.groups(call.geometry, 40)
    read: list[Any] = []
    asked = torch.Tensor.tolist

    def noted(t: torch.Tensor) -> Any:
        read.append(t)
        return asked(t)

    monkeypatch.setattr(torch.Tensor, "tolist", noted)
    elsewhere = Geometry(*(t.as_subclass(Elsewhere) for t in call.geometry))
    assert cutting.groups(elsewhere, 40) == wanted
    waits = len(read)
    assert waits
    assert cutting.groups(elsewhere, 40) == wanted
    assert len(read) == waits
    monkeypatch.setattr(cutting, "host_can_decide", lambda _: False)
    assert cutting.groups(elsewhere, 40) == wanted
    unread = elsewhere._replace(hi=elsewhere.hi.clone())
    assert len(cutting.groups(unread, 40)) == 1


class Elsewhere(torch.Tensor):
    """Says that it is on a device."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """That of CUDA."""
        return torch.device("cuda")


def test_without_triton_the_host_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cuda: Any = SimpleNamespace(is_cuda=True)
    monkeypatch.setattr(device, "present", lambda: False)
    assert not underflow.on_device(on_cuda)
    monkeypatch.setattr(device, "present", lambda: True)
    assert underflow.on_device(on_cuda)
    assert not underflow.on_device(torch.zeros(1))
