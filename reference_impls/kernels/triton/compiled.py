"""A launch compiled ahead of time, for a GPU that need not be here, and what its code holds.

What is counted is the machine's own code, as the disassembler of the triton package prints it: a
loop is a branch back to a label, and its innermost form is one step of a kernel.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from reference_impls.kernels.triton.launch import COMPILED, Launch
from reference_impls.kernels.triton.parts import NEVER_SPECIAL

POINTERS = {
    torch.float64: "*fp64",
    torch.float32: "*fp32",
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.int32: "*i32",
    torch.uint8: "*u8",
    torch.bool: "*i1",
}
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
LABEL = re.compile(r"^(\.L_x_\d+):")
TARGET = re.compile(r"\(\.L_x_\d+\)")
WARP_GROUP = re.compile(r"HGMMA\.(\d+)x(\d+)x(\d+)\.F32(?:\.(BF16|TF32|F16)\b|$)")  # bare: float16
WARP = re.compile(r"HMMA\.(16816|1688|1684)\.F32(?:\.(BF16|TF32))?")
WARP_SHAPES = {"16816": (16, 8, 16), "1688": (16, 8, 8), "1684": (16, 8, 4)}


@dataclass(frozen=True)
class Product:
    """A matrix instruction: what one warp, or with ``group`` one group of four, multiplies.

    Attributes
    ----------
    rows, columns, depth : int
    single : bool
        TF32, else bfloat16 or float16.
    group, from_shared : bool
        A group of four warps; its left matrix is read from shared memory too.
    """

    rows: int
    columns: int
    depth: int
    single: bool
    group: bool
    from_shared: bool = False

    @property
    def multiplications(self) -> int:
        """Of one instruction."""
        return self.rows * self.columns * self.depth


@dataclass(frozen=True)
class Compiled:
    """What one kernel's code holds.

    Attributes
    ----------
    registers, stack, shared : int
        Registers and bytes of stack of a thread; bytes of shared memory of a program.
    warps : int
        Of one program: each goes through all of its code.
    steps : tuple of Counter
        Of each innermost loop with matrix instructions, in their order: how often one trip of one
        warp has an instruction, by its name; of `Product` for those.
    """

    registers: int
    stack: int
    shared: int
    warps: int
    steps: tuple[Mapping[str | Product, int], ...]


def compile_launch(launch: Launch, capability: int) -> Compiled:
    """Compile a launch for a compute capability (80, 90), as running it there would.

    Parameters
    ----------
    launch : Launch
        Of one of the large kernels, with its tile; for others the compiler's own choice is taken.
    """
    import triton
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
        if even and name not in NEVER_SPECIAL:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(launch.kernel, signature, dict(launch.constants), attributes)
    warps, stages = (4, 2) if launch.tile is None else (launch.tile.warps, launch.tile.stages)
    compiled = triton.compile(
        source,
        target=GPUTarget("cuda", capability, 32),
        options={**COMPILED, "num_warps": warps, "num_stages": stages},
    )
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        used = re.search(r"REG:(\d+) STACK:(\d+)", _told("cuobjdump", "-res-usage", file.name))
        code = _told("nvdisasm", "-c", file.name)
    if used is None:
        raise RuntimeError("cuobjdump: expected a line with REG and STACK; another release of it?")
    shared = compiled.metadata.shared
    return Compiled(int(used[1]), int(used[2]), shared, warps, tuple(steps_of(code)))


def _told(tool: str, *arguments: str) -> str:
    """What a tool of the triton package prints."""
    import triton

    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    return subprocess.run([path, *arguments], capture_output=True, text=True, check=True).stdout


def steps_of(code: str) -> list[Counter[str | Product]]:
    """The instructions of each innermost loop with matrix instructions, of a disassembly."""
    lines: list[tuple[str, str]] = []
    at: dict[str, int] = {}
    for line in code.splitlines():
        if label := LABEL.match(line):
            at[label[1]] = len(lines)
        elif found := INSTRUCTION.search(line):
            lines.append((found[1], found[2]))
    loops = []
    for end, (name, operands) in enumerate(lines):
        target = TARGET.search(operands) if name == "BRA" else None
        start = at.get(target[0][1:-1], end + 1) if target else end + 1
        if start <= end and any("MMA" in inside for inside, _ in lines[start:end]):
            loops.append((start, end))
    innermost = [
        (start, end)
        for start, end in loops
        if not any((start, end) != one and start <= one[0] and one[1] <= end for one in loops)
    ]
    return [Counter(_named(*line) for line in lines[a : b + 1]) for a, b in sorted(innermost)]


def _named(name: str, operands: str) -> str | Product:
    """An instruction's name, or what it multiplies."""
    if found := WARP_GROUP.match(name):
        rows, columns, depth = map(int, found.groups()[:3])
        left = operands.split(",")[1].strip()
        return Product(rows, columns, depth, found[4] == "TF32", True, left.startswith("gdesc"))
    if found := WARP.match(name):
        return Product(*WARP_SHAPES[found[1]], found[2] == "TF32", False)
    if "MMA" in name and not name.startswith("HFMA2"):  # a multiply-add of halves
        raise RuntimeError(f"a matrix instruction that nobody counts: {name}; teach compiled.py it")
    return name


def total(step: Mapping[str, int], *names: str) -> int:
    """How many instructions of a step have names that begin so."""
    return sum(often for name, often in step.items() if name.startswith(names))


def loads_of(step: Mapping[str, int]) -> tuple[int, int, int]:
    """Asynchronous copies of 16 bytes in a step, of 8, and other loads from global memory."""
    by_bytes = {16: total(step, "UTMALDG"), 8: 0}
    for name, often in step.items():
        if name.startswith("LDGSTS") and width_of(name) in by_bytes:
            by_bytes[width_of(name)] += often
    copies, eights = by_bytes.values()
    return copies, eights, total(step, "LDG.", "LDGSTS", "UTMALDG") - copies - eights


def width_of(name: str) -> int:
    """Bytes of a thread that one load or store moves; matrices of 8 x 8 take 4 each."""
    if matrices := re.match(r"(?:LD|ST)SM\.16\.MT?88(?:\.([24]))?", name):
        return 4 * int(matrices[1] or 1)
    found = re.search(r"\.(?:U|S)?(128|64|16|8)\b", name)
    return 4 if found is None else int(found[1]) // 8
