"""On CUDA no eager call waits for the device, and what it launches is known: told without one."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.registry import Registry, resolve
from reference_impls.kernels import core, tiled, underflow
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.tiled import cutting
from reference_impls.kernels.triton import device
from suites.support.attending import Problem
from suites.support.launches import on_no_device

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
torch.set_num_threads(1)
REGISTRY = Registry()
FORWARD, TRAINING = 10, 50
"""Launches of MTSA's layer in float32, without a mask; multi-head's: 4 and 18."""


def launched(name: str, training: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """By one pass of a layer at the widths of setting A, nothing awaited in it."""
    _, implementation = REGISTRY.find(name)
    layer: Any = resolve(implementation.factory)
    module = layer(300, 600, heads=8, **implementation.options).train(training)
    x = torch.randn(2, 64, 300)

    def once() -> None:
        if not training:
            with torch.inference_mode():
                module(x)
            return
        out = module(x.clone().requires_grad_())
        out.backward(torch.ones_like(out))

    with on_no_device(monkeypatch) as seen:
        once()  # what is made once and kept
        del seen.launched[:], seen.waited[:]
        once()
    assert seen.waited == []
    return seen.launched


@pytest.mark.parametrize("training", [False, True])
def test_the_layer_waits_for_nothing_and_launches_what_is_known(
    training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = launched("mtsa.fused_triton", training, monkeypatch)
    repairs = [one for one in seen if one.startswith("repair")]
    own = ["repair_kernel"]
    assert repairs == [*own, "repair_query_kernel", "repair_key_kernel"][: 3 if training else 1]
    assert len(seen) <= (TRAINING if training else FORWARD), seen


@pytest.mark.parametrize("backend", ["triton", "tiled"])
@pytest.mark.parametrize("training", [False, True])
def test_flagged_queries_are_nothing_that_the_host_must_know(
    backend: str, training: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = Problem(n=12, scale=100.0, padding="tail").call()
    assert tiled.attend(call)[1].any()
    with on_no_device(monkeypatch) as seen, torch.set_grad_enabled(training):
        a = core.attend(*call, backend=backend)
        assert any(name == "repair_kernel" for name in seen.launched)
        if training:
            a.backward(torch.ones_like(a))
            assert "repair_key_kernel" in seen.launched
    # Autograd adds nothing up that is zero, where the backend has its own way back.
    filled = {"zeros_like", "zeros", "zero_", "_to_copy"} & set(seen.launched)
    assert backend == "tiled" or not filled
    assert seen.waited == []


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
    class OnCuda:
        is_cuda = True

    monkeypatch.setattr(device, "present", lambda: False)
    assert not underflow.on_device(OnCuda())  # type: ignore[arg-type]
    monkeypatch.setattr(device, "present", lambda: True)
    assert underflow.on_device(OnCuda())  # type: ignore[arg-type]
    assert not underflow.on_device(torch.zeros(1))
