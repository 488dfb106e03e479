"""What is kept from call to call, and what a CUDA graph has read: here without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from reference_impls.kernels.caching import TensorCache

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


@pytest.fixture
def capture(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether a graph is captured: the list's last entry."""
    now = [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: now[-1])
    return now


def number() -> Tensor:
    return torch.zeros(1)


def test_one_object_for_all_calls_and_never_more_than_the_most() -> None:
    kept: TensorCache[Tensor] = TensorCache(2)
    first = kept.of(1, CPU, number)
    assert kept.of(1, CPU, number) is first
    for key in range(20):
        kept.of(key, CPU, number)
        assert len(kept) <= 2
    assert kept.of(1, CPU, number) is not first


def test_what_a_graph_has_read_is_never_given_up(capture: list[bool]) -> None:
    kept: TensorCache[Tensor] = TensorCache(2)
    first = kept.of("warm", CUDA, number)
    capture.append(True)
    assert kept.of("warm", CUDA, number) is first
    capture.append(False)
    for key in range(20):
        kept.of(key, CUDA, number)
    assert kept.of("warm", CUDA, number) is first
    assert len(kept) <= 3
    capture.append(True)
    assert kept.of("warm", CUDA, number) is first


def test_what_is_made_in_a_capture_is_not_kept(capture: list[bool]) -> None:
    kept: TensorCache[Tensor] = TensorCache(2)
    kept.of("others", CUDA, number)
    capture.append(True)
    made = kept.of("cold", CUDA, number)
    assert len(kept) == 1
    capture.append(False)
    assert kept.of("cold", CUDA, number) is not made


def test_a_graph_on_a_gpu_is_nothing_to_a_cpu(capture: list[bool]) -> None:
    capture.append(True)
    kept: TensorCache[Tensor] = TensorCache(2)
    assert kept.of(1, CPU, number) is kept.of(1, CPU, number)
    for key in range(20):
        kept.of(key, CPU, number)
    assert len(kept) <= 2


def test_modes_leave_nothing_behind() -> None:
    kept: TensorCache[Tensor] = TensorCache(2)
    with FakeTensorMode():
        kept.of(1, CPU, number)
    assert len(kept) == 0
    with torch.inference_mode():
        assert not kept.of(1, CPU, number).is_inference()


def test_a_compiled_call_makes_its_own() -> None:
    kept: TensorCache[Tensor] = TensorCache(2)

    def call(x: Tensor) -> Tensor:
        return x + kept.of(x.shape[0], x.device, lambda: torch.ones(x.shape[0]))

    compiled: Any = torch.compile(call, fullgraph=True, backend="eager")
    for n in (2, 3, 2):
        assert torch.equal(compiled(torch.zeros(n)), torch.ones(n))
    assert len(kept) == 0
