"""Whether the Triton kernels are legal for a GPU is asked of the compiler, which needs none."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from reference_impls.kernels import triton
from reference_impls.kernels.triton import device
from reference_impls.kernels.triton.inputs import Inputs
from reference_impls.kernels.triton.tiles import SHARED_BYTES, TILES, Tile, candidates, choose
from reference_impls.mechanism import Unsupported
from suites.support.attending import Problem, masks_of
from suites.support.parameters import few

TRITON = pytest.importorskip("triton", reason="the CPU build of torch is without triton")
SPILLED_BYTES = 256
"""Of a thread, on its stack: what the loop with masks spills, and what is loaded once."""
POINTERS = {
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}


def test_tiles_fit_and_none_is_longer_than_the_sequence() -> None:
    for kind, by_numbers in TILES.items():
        for numbers, by_width in by_numbers.items():
            for width, tile in by_width.items():
                assert choose(kind, numbers, width, 10**6) == tile
                assert choose(kind, numbers, width - 1, 10**6) == tile
                assert choose(kind, numbers, width, 20).rows <= 32
                cramped = choose(kind, numbers, width, 10**6, large=False)
                assert cramped.rows == max(16, tile.rows // 2)
                assert cramped.columns == max(16, tile.columns // 2)
                assert set(candidates(kind, numbers, width))


def _launches(problem: Problem, dtype: torch.dtype) -> dict[str, Any]:
    """The launches of both passes by the kernels' names; nothing is run."""
    from reference_impls.kernels.triton import launch

    call = problem.call(dtype)
    inputs = Inputs(call, precise=dtype == torch.float32)
    found = launch.Outputs(*(*triton._outputs(inputs, True), inputs.maximum()))
    gradients = triton._gradients(inputs)
    launches = [
        *launch.forward(inputs, found, True),
        *launch.backward(inputs, found, call.v, gradients),
    ]
    return {one.kernel.fn.__name__: one for one in launches}


def _assembled(launch: Any, capability: int = 90) -> tuple[int, int, int]:
    """Compile a launch, for Hopper: bytes of shared memory, registers, bytes spilled."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature: dict[str, str] = {}
    attributes = {}
    for index, name in enumerate(launch.kernel.arg_names):
        if name in launch.constants:
            signature[name] = "constexpr"
            continue
        value = launch.arguments[name]
        even = isinstance(value, Tensor) or (isinstance(value, int) and value % 16 == 0)
        if isinstance(value, Tensor):
            signature[name] = POINTERS[value.dtype]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
        if even and name not in ("n", "heads", "batch", "seed", "threshold"):
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, dict(launch.constants), attributes)
    tile = launch.tile or Tile(0, 0, 4, 2)
    compiled = TRITON.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tile.warps, "num_stages": tile.stages},
    )
    registers, spilled = _registers(compiled.asm["cubin"])
    return compiled.metadata.shared, registers, spilled


def _registers(cubin: bytes) -> tuple[int, int]:
    """Registers of a thread and bytes of its stack, to which it spills."""
    tools = Path(TRITON.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    used = re.search(r"REG:(\d+) STACK:(\d+)", told)
    assert used is not None, told
    return int(used[1]), int(used[2])


def sized(d: int, columns: int | None = -1, **options: Any) -> Problem:
    """256 tokens and heads of width d; s has as many columns unless it is said."""
    masks = masks_of("forward", "backward", "none")
    columns = d if columns == -1 else columns
    return Problem(n=256, masks=masks, d_i=d, d_v=d, columns=columns, **options)


COMPILED = {
    "half-128": (sized(128), torch.bfloat16),
    "half-64-identity-dropout-padded": (
        sized(64, scale_t="identity", padding="tail", keep=0.9),
        torch.bfloat16,
    ),
    "single-64": (sized(64), torch.float32),
    "half-75-one-column": (sized(75, 1), torch.bfloat16),
    "f16-32-plain": (sized(32, None, scale_t="identity"), torch.float16),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", few(COMPILED, ["half-64-identity-dropout-padded"]))
def test_hopper_can_run_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.PACKED_FROM", 0)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.large_tiles", lambda _: True)
    for kernel, launch in _launches(*COMPILED[name]).items():
        shared, registers, spilled = _assembled(launch)
        print(f"{name} {kernel}: {shared} bytes shared, {registers} registers, {spilled} spilled")
        assert shared <= SHARED_BYTES, kernel
        assert spilled <= SPILLED_BYTES, kernel


CRAMPED = {
    "half-128": COMPILED["half-128"],
    "single-75": (sized(75), torch.float32),
}
"""What takes most of the shared memory, and the heads of setting A."""


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("name", CRAMPED)
def test_a_card_with_less_shared_memory_can_run_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.PACKED_FROM", 0)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.large_tiles", lambda _: False)
    for kernel, launch in _launches(*CRAMPED[name]).items():
        shared, _, spilled = _assembled(launch, 86)
        assert shared <= 99 * 1024, kernel
        assert spilled <= SPILLED_BYTES, kernel


def test_a_card_with_less_shared_memory_says_what_it_has_no_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device, "large_tiles", lambda *_: False)
    monkeypatch.setattr(triton, "large_tiles", lambda *_: False)
    monkeypatch.setattr(triton, "usable", lambda: "")
    monkeypatch.setattr(triton, "interpreted", lambda: True)
    q = torch.zeros(1, 1, 2, 129)
    with pytest.raises(Unsupported, match="129 wide; expected at most 128 on this device"):
        triton.refuse(q, q)
    triton.refuse(q[..., :128], q[..., :128])


def test_a_kernel_that_does_not_fit_is_refused_in_one_line() -> None:
    from triton.runtime.errors import OutOfResources

    from reference_impls.kernels.triton.launch import Launch

    class TooLarge:
        def __getitem__(self, _: object) -> Any:
            def start(**_: object) -> None:
                raise OutOfResources(131072, 101376, "shared memory")

            return start

    with pytest.raises(Unsupported, match=r"Required: 131072, .* take fused_tiled") as caught:
        Launch(TooLarge(), 1, {}, {}).run()
    assert "\n" not in str(caught.value)
