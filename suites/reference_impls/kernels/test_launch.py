"""How kernels are launched: by Triton's own way once, then straight to what that compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
from reference_impls.kernels.triton import launch  # noqa: E402 (imports triton)
from reference_impls.kernels.triton.tiles import Tile  # noqa: E402


class Kernel:
    """One that is not there: notes how it is launched, compiled or not."""

    arg_names = ("x", "n", "step", "WIDTH")

    def __init__(self, makes: bool = True) -> None:
        self.compiled: list[dict[str, Any]] = []
        self.launched: list[tuple[Any, ...]] = []
        self.makes = makes

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        def first(**given: Any) -> Any:
            self.compiled.append({"grid": grid, **given})
            return Compiled(self) if self.makes else None

        return first


class Compiled:
    """What the kernel was compiled to."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given: self.kernel.launched.append((grid, *given))


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_LAUNCHED", {})


def made(kernel: Kernel, x: torch.Tensor, step: int = 32, width: int = 64) -> launch.Launch:
    arguments = {"n": 7, "x": x, "step": step}
    return launch.Launch(kernel, 3, arguments, {"WIDTH": width}, Tile(64, 64, 4, 3))


def test_the_second_launch_goes_to_what_the_first_compiled() -> None:
    kernel, x = Kernel(), torch.zeros(8)
    for _ in range(3):
        made(kernel, x).run()
    ((first),) = kernel.compiled
    assert first == {
        **{"grid": (3,), "x": x, "n": 7, "step": 32, "WIDTH": 64},
        **{"num_warps": 4, "num_stages": 3},
    }
    assert [one[:1] for one in kernel.launched] == [((3, 1, 1),)] * 2
    for _, *given in kernel.launched:
        assert given[0] is x
        assert given[1:] == [7, 32, 64], "the constants too, in the kernel's own order"


@pytest.mark.parametrize(
    ("x", "step", "width"),
    [
        (torch.zeros(8), 32, 128),
        (torch.zeros(8), 1, 64),
        (torch.zeros(8), 33, 64),
        (torch.zeros(8), 2**40, 64),
        (torch.zeros(8, dtype=torch.bfloat16), 32, 64),
        (torch.zeros(9)[1:], 32, 64),
    ],
)
def test_what_triton_makes_another_kernel_for_is_its_own(
    x: torch.Tensor, step: int, width: int
) -> None:
    kernel = Kernel()
    made(kernel, torch.zeros(8)).run()
    made(kernel, x, step, width).run()
    assert len(kernel.compiled) == 2
    assert not kernel.launched
    other = Kernel()
    made(other, torch.zeros(8)).run()
    assert len(other.compiled) == 1


def test_other_numbers_of_a_kind_are_the_same_kernel() -> None:
    kernel = Kernel()
    made(kernel, torch.zeros(8), 32).run()
    made(kernel, torch.ones(64), 160).run()
    assert len(kernel.compiled) == len(kernel.launched) == 1
    assert kernel.launched[0][3] == 160


def test_the_interpreter_is_asked_every_time() -> None:
    kernel = Kernel(makes=False)
    for _ in range(2):
        made(kernel, torch.zeros(8)).run()
    assert len(kernel.compiled) == 2
