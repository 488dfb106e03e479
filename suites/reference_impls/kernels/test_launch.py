"""How kernels are launched: by Triton's own way once, then straight to what that compiled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
from reference_impls.kernels.triton import launch
from reference_impls.kernels.triton.tiles import Tile


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
        **{"num_warps": 4, "num_stages": 3, "enable_fp_fusion": True},
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


def test_what_is_compiled_in_another_thread_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = Kernel()
    promise = SimpleNamespace(result=lambda: Compiled(kernel))
    monkeypatch.setattr(Kernel, "__getitem__", lambda self, grid: lambda **given: promise)
    for _ in range(2):
        made(kernel, torch.zeros(8)).run()
    assert len(kernel.launched) == 1


def test_what_makes_no_other_kernel_for_us_makes_none_for_triton() -> None:
    """Asked of Triton's own way from a value to what it makes a kernel for."""
    from triton._C.libtriton import native_specialize_impl
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDABackend

    edges = (2**31 - 16, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**40, 2**40 + 1, 2**62)
    values: list[Any] = [*range(-40, 70), *edges, 0.0, 1.0, 16.0, 1e-30]
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int32):
        x = torch.zeros(64, dtype=dtype)
        values += [*(x[i:] for i in range(17)), x[:0], x[64:], x[3:4].expand(9)]
    backend = CUDABackend(GPUTarget("cuda", 90, 32))
    for specialised in (True, False):
        seen: dict[Any, Any] = {}
        for value in values:
            own = native_specialize_impl(backend, value, False, specialised, True)
            assert seen.setdefault(launch._made_for(value), own) == own, value


@pytest.fixture
def triton_driver() -> Iterator[list[tuple[Any, ...]]]:
    """Triton itself, compiling for an H200 that is not there: what reaches its launcher."""
    import triton
    from triton.backends.compiler import GPUTarget

    reached: list[tuple[Any, ...]] = []

    class Launcher:
        def __init__(self, source: Any, _: Any) -> None:
            self.source = source

        def __call__(self, *given: Any) -> None:
            arguments = given[9:]  # behind the grid, the stream, and what hooks are told
            assert len(arguments) == len(self.source.signature)
            for (place, *_), traits in self.source.attrs.items():
                if any(name == "tt.divisibility" for name, _ in traits):
                    value = arguments[place]
                    start = value.data_ptr() if isinstance(value, torch.Tensor) else value
                    assert start % 16 == 0, "as the kernel was compiled for"
            for (place, *_), value in self.source.constants.items():
                assert arguments[place] == value
            reached.append(given)

    def properties(_: int) -> dict[str, int]:
        return {"max_shared_mem": 227 * 1024}

    before = triton.runtime.driver._active
    utils = SimpleNamespace(
        load_binary=lambda *_: (1, 17, 32, 0, 1024), get_device_properties=properties
    )
    triton.runtime.driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda _: 5,
            get_current_target=lambda: GPUTarget("cuda", 90, 32),
            launcher_cls=Launcher,
            utils=utils,
        )
    )
    yield reached
    triton.runtime.driver._active = before


@pytest.mark.slow
def test_triton_is_given_the_same_either_way(
    triton_driver: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    from reference_impls.kernels.triton.inputs import Inputs
    from suites.support.attending import Problem

    # On a device of 9.0 the tiles are large; these compile in seconds.
    monkeypatch.setattr(Inputs, "tile", lambda *_: Tile(16, 16, 1, 2))
    given = Inputs(Problem(n=64, d_i=16, d_v=16, columns=16).call(torch.bfloat16), precise=False)
    for _ in range(2):
        found = launch.Outputs.of(given, save=True)
        g = torch.ones_like(found.out).permute(2, 0, 1, 3)
        launches = launch.forward(given, found, save=True)
        launches += launch.backward(given, found, g, given.gradients())
        for one in launches:
            one.run()
    count = len(launches)
    first, again = triton_driver[:count], triton_driver[count:]
    assert len(first) == len(again) == count > 4, "weights, and both passes"
    for given_first, given_again in zip(first, again, strict=True):
        assert len(given_first) == len(given_again)
        assert [type(value) for value in given_first] == [type(value) for value in given_again]
        numbers = [value for value in given_first if isinstance(value, int | float)]
        assert numbers == [value for value in given_again if isinstance(value, int | float)]
        shapes = [value.shape for value in given_first if isinstance(value, torch.Tensor)]
        assert shapes == [value.shape for value in given_again if isinstance(value, torch.Tensor)]
    assert len(launch._LAUNCHED) == count - 1, "both passes weigh alike"
