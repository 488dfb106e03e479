"""Audit the Triton kernels without a GPU: python -m reference_impls.kernels.triton.audit.

Every cell of the table of tiles, heads of 75 with the long tiles, and both forms of setting A (64
tokens, heads of 75 and of 300), is compiled for sm_80 and sm_90 and counted: matrix instructions
issued over those needed, what is spilled, copies of 16 bytes and of 8, programs that a
multiprocessor holds. What is beyond a limit and not named in `exceptions.toml`, or named there
without need, is told, and the exit code is 1. Cycles are a prediction from the counts, to rank
tiles by, and no measurement; `reference_impls.kernels.triton.tune` is the counterpart on a device.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.geometry import of_masks
from reference_impls.kernels.triton import device
from reference_impls.kernels.triton.inputs import PACKED_FROM, Inputs
from reference_impls.kernels.triton.tiles import (
    SHARED_BYTES,
    Kind,
    Numbers,
    Tile,
    choose,
    cut,
    tiles,
    width_in_table,
)
from reference_impls.kernels.triton.trial import DTYPES
from reference_impls.masks import parse_all

if TYPE_CHECKING:
    from reference_impls.kernels.triton.compiled import Compiled
    from reference_impls.kernels.triton.launch import Launch

SETTING_A, TABLE_1 = (75, 64), (300, 64)
"""Width of heads, and tokens: 8 heads as the goals have them, and the 2 of the paper's Table 1. A
kernel is one whatever the number of heads."""
ISSUED, STACK = 1.05, 128
"""Most matrix instructions issued over needed, and bytes of stack of a thread."""
COUNTED = 64, 75, 128
"""Widths of heads whose times are predicted."""
EXCEPTIONS = Path(__file__).with_name("exceptions.toml")


@dataclass(frozen=True)
class Multiprocessor:
    """What one multiprocessor has, and does in a cycle: data sheets, and tuning guides of CUDA.

    Attributes
    ----------
    shared : int
        Bytes that one program may have; all programs together have 1 KiB more, and lose 1 KiB each.
    by_group, by_warp : int
        Multiplications of bfloat16 in a cycle, in instructions of warp groups and of warps; TF32
        has half.
    cached : float
        Bytes of the level-two cache in a cycle: 5,120 for all multiprocessors.
    """

    shared: int
    by_group: int
    by_warp: int
    cached: float
    registers: int = 65536
    warps: int = 64
    exponentials: int = 16
    instructions: int = 4
    shared_read: int = 128


DEVICES = {
    80: Multiprocessor(SHARED_BYTES[80], 1024, 1024, 5120 / 108),
    90: Multiprocessor(SHARED_BYTES[90], 2048, 1024, 5120 / 132),
}


@dataclass(frozen=True)
class KernelCell:
    """A kernel that the table of tiles decides: for a device, numbers, heads and a length."""

    capability: int
    kind: Kind
    numbers: Numbers
    width: int
    length: int = PACKED_FROM

    def __str__(self) -> str:
        short = "" if self.length >= PACKED_FROM else f" N{self.length}"
        return f"sm_{self.capability} {self.kind} {self.numbers} {self.width}{short}"

    @property
    def in_table(self) -> bool:
        """Whether it is one of the table's, not another that takes its tile."""
        by_width = tiles(self.capability)[self.kind][self.numbers]
        return self.length >= PACKED_FROM and self.width in by_width

    def takes_tile_of(self, other: KernelCell) -> bool:
        """Whether the tile is that of the other, which is in the table."""
        by_width = tiles(self.capability)[self.kind][self.numbers]
        own = (self.capability, self.kind, self.numbers, width_in_table(by_width, self.width))
        return own == (other.capability, other.kind, other.numbers, other.width)

    @property
    def counted(self) -> bool:
        """Whether its time is predicted: long sequences in bfloat16."""
        long = self.length >= PACKED_FROM
        return long and self.numbers == "half" and self.width in COUNTED

    @property
    def tile(self) -> Tile:
        """From the table, as the kernels take it."""
        return choose(self.kind, self.numbers, self.width, self.length, capability=self.capability)

    def launch(self, tile: Tile) -> Launch:
        """What is compiled: source scores per feature, as a layer lays them out; nothing runs."""
        from reference_impls.kernels.triton import launch

        dtype, heads = DTYPES[self.numbers], 2
        laid_out = torch.zeros(4, 1, self.length, heads, self.width, dtype=dtype)
        q, k, v, s = laid_out.permute(0, 3, 1, 2, 4)
        geometry = of_masks(parse_all(None, heads), self.length, q.device)
        call = KernelCall(q, k, v, s, geometry, None, "log_sigmoid")
        inputs = Inputs(call, precise=self.numbers == "single")
        found = launch.Outputs.of(inputs, save=True)
        if self.kind == "forward":
            return launch.forward(inputs, found, True, tile)[-1]
        launches = launch.backward(inputs, found, v, inputs.gradients(), (tile, tile))
        return launches[-1 if self.kind == "key_gradient" else -2]

    def needed(self, tile: Tile, width: int) -> int:
        """Multiplications of a step of the tile, for keys and values of a width.

        Forward: scores, numerator, denominator. Of queries: scores, both parts of dP, dq. Of keys:
        those, and the gradients of numerator and denominator. Each float32 product is three.
        """
        products = {"forward": 3, "query_gradient": 4, "key_gradient": 6}[self.kind]
        return products * tile.rows * tile.columns * width * (3 if self.numbers == "single" else 1)


def cells() -> Iterator[KernelCell]:
    """All that is audited: the table's, the headline's width of 75, and setting A's two forms."""
    for capability in DEVICES:
        for kind, by_numbers in tiles(capability).items():
            for numbers, by_width in by_numbers.items():
                for one in sorted({*by_width, SETTING_A[0]}):
                    yield KernelCell(capability, kind, numbers, one)
                for width, length in (SETTING_A, TABLE_1):
                    yield KernelCell(capability, kind, numbers, width, length)


@dataclass(frozen=True)
class KernelAudit:
    """What a cell's code does in a step of its main loop, with one tile.

    Attributes
    ----------
    issued, of_true : float
        Matrix instructions issued over those that the padded width needs, and the true one.
    local : int
        Loads and stores of a thread's own memory.
    copies, eights, narrow : int
        See `reference_impls.kernels.triton.compiled.loads_of`.
    by_warp : int
        Matrix instructions of single warps.
    programs : int
        That one multiprocessor holds at once.
    cycles : mapping
        Of a multiprocessor for 1,024 pairs of query and key, by what takes them; "predicted" is the
        largest, and of the others the share that nothing else hides.
    """

    cell: KernelCell
    tile: Tile
    compiled: Compiled
    issued: float
    of_true: float
    local: int
    copies: int
    eights: int
    narrow: int
    by_warp: int
    programs: int
    cycles: Mapping[str, float]

    def beyond(self) -> dict[str, float]:
        """What is over a limit, by the limit's name."""
        own = DEVICES[self.cell.capability]
        groups = self.cell.capability >= 90 and self.cell.numbers == "half"
        found: dict[str, tuple[float, float]] = {
            "issued": (round(self.issued, 2), ISSUED),
            "local": (self.local, 0),
            "stack": (self.compiled.stack, STACK),
            "shared": (self.compiled.shared, own.shared),
            "eights": (self.eights, 0),
            "narrow": (self.narrow, 0),
            "by_warp": (self.by_warp if groups else 0, 0),
        }
        return {name: value for name, (value, most) in found.items() if value > most}


def unable() -> str:
    """Why nothing can be compiled here, in one line; empty where it can."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing; pip install triton"
    if device.interpreted():
        return "TRITON_INTERPRET=1 is set; the interpreter compiles nothing, unset it"
    return ""


def audit(cell: KernelCell, tile: Tile | None = None) -> KernelAudit:
    """Compile a cell with a tile, by default the table's, and count.

    Short sequences have but tiles at an edge of their ranges: their step is that with masks.
    """
    from reference_impls.kernels.triton.compiled import Product, compile_launch, loads_of, total

    tile = tile or cell.tile
    compiled = compile_launch(cell.launch(tile), cell.capability)
    if len(compiled.steps) != 2:
        raise RuntimeError(f"{cell}: {len(compiled.steps)} loops with products; expected two")
    step = compiled.steps[0 if cell.length >= PACKED_FROM else 1]
    products = {one: often for one, often in step.items() if isinstance(one, Product)}
    issued = sum(
        often * one.multiplications * tile.warps / (4 if one.group else 1)
        for one, often in products.items()
    )
    others = {name: often for name, often in step.items() if isinstance(name, str)}
    padded = sum(cut(cell.width))
    return KernelAudit(
        cell,
        tile,
        compiled,
        issued / cell.needed(tile, padded),
        issued / cell.needed(tile, cell.width),
        total(others, "LDL", "STL"),
        *loads_of(others),
        sum(often for one, often in products.items() if not one.group),
        programs(DEVICES[cell.capability], compiled),
        predicted(cell, tile, compiled, step),
    )


def programs(own: Multiprocessor, compiled: Compiled) -> int:
    """How many programs a multiprocessor holds, by registers, shared memory and warps."""
    by_warp = -(-compiled.registers // 8) * 8 * 32
    return min(
        own.registers // (by_warp * compiled.warps),
        (own.shared + 1024) // (compiled.shared + 1024),
        own.warps // compiled.warps,
    )


def predicted(
    cell: KernelCell, tile: Tile, compiled: Compiled, step: Mapping[Any, int]
) -> dict[str, float]:
    """`KernelAudit.cycles`: the other warps of a scheduler hide the smaller parts."""
    from reference_impls.kernels.triton.compiled import Product, width_of

    own, item = DEVICES[cell.capability], 2 if cell.numbers == "half" else 4
    tensor = read = cached = special = 0.0
    for name, often in step.items():
        if isinstance(name, Product):
            many = often * compiled.warps / (4 if name.group else 1)
            rate = (own.by_group if name.group else own.by_warp) / (2 if name.single else 1)
            tensor += many * name.multiplications / rate
            if name.group:
                sides = name.columns + (name.rows if name.from_shared else 0)
                read += many * name.depth * sides * item
        else:
            bytes_ = 32 * compiled.warps * often * width_of(name)
            special += often if name.startswith("MUFU") else 0
            if name.startswith(("LDS", "STS", "LDL", "STL")):
                read += bytes_
            if name.startswith(("LDG.", "LDGSTS", "LDL", "STL")):  # the first cache is taken
                cached += bytes_
    parts = {
        "tensor": tensor,
        "exponentials": 32 * compiled.warps * special / own.exponentials,
        "instructions": compiled.warps * sum(step.values()) / own.instructions,
        "shared": read / own.shared_read,
        "cached": cached / own.cached,
    }
    together = max(1, programs(own, compiled)) * compiled.warps / 4
    longest = max(parts.values())
    parts["predicted"] = longest + (sum(parts.values()) - longest) / together
    pairs = tile.rows * tile.columns / 1024
    return {name: cycles / pairs for name, cycles in parts.items()}


def exceptions(path: Path = EXCEPTIONS) -> tuple[dict[tuple[str, str], float], bool]:
    """What is allowed beyond a limit: the cell's name and the limit's, with how much.

    And whether it was counted with this very release of triton: another may do better.
    """
    import triton

    table = tomllib.loads(path.read_text())
    counted_with = table.pop("triton")
    other = table.pop("other").get(triton.__version__, {})
    allowed = {
        (cell, limit): most
        for limit, reasons in table.items()
        for by_cell in reasons.values()
        for cell, most in by_cell.items()
    }
    for name, most in other.items():
        cell, _, limit = name.rpartition(" ")
        allowed[cell, limit] = most
    return allowed, counted_with == triton.__version__


def judged(
    audits: Iterable[KernelAudit], allowed: Mapping[tuple[str, str], float], all_needed: bool = True
) -> list[str]:
    """What is wrong, one line each: beyond a limit and not named, or named without need."""
    wrong = []
    for one in audits:
        beyond = one.beyond()
        for limit, value in beyond.items():
            most = allowed.get((str(one.cell), limit))
            if most is None or value > most:
                named = "not named" if most is None else f"named with {most:g}"
                wrong.append(
                    f"{one.cell}: {limit} {value:g}, {named}; another tile, or a line with its "
                    f"reason in {EXCEPTIONS.name}"
                )
        wrong += [
            f"{cell}: {limit} is within its limit; take the line out of {EXCEPTIONS.name}"
            for cell, limit in allowed
            if all_needed and cell == str(one.cell) and limit not in beyond
        ]
    return wrong


HEAD = (
    f"{'cell':36}{'tile':18}{'issued':>7}{'true':>6}{'local':>6}{'stack':>6}{'regs':>5}{'KiB':>5}"
    f"{'copies':>7}{'eights':>7}{'narrow':>7}{'by':>6}{'held':>5}{'cycles':>7}  largest"
)


def line(one: KernelAudit) -> str:
    """A row of the table that is printed."""
    compiled, cycles = one.compiled, dict(one.cycles)
    predicted = cycles.pop("predicted")
    largest = sorted(cycles, key=lambda name: -cycles[name])[:2]
    by = "warp" if one.by_warp else "group"
    return (
        f"{one.cell!s:36}{one.tile!s:18}"
        f"{one.issued:7.2f}{one.of_true:6.2f}{one.local:6d}{compiled.stack:6d}"
        f"{compiled.registers:5d}{compiled.shared / 1024:5.0f}{one.copies:7d}"
        f"{one.eights:7d}{one.narrow:7d}"
        f"{by:>6}{one.programs:5d}{predicted:7.0f}  "
        + ", ".join(f"{name} {cycles[name]:.0f}" for name in largest)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where something is wrong, 2 where nothing can be compiled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--capability", type=int, choices=sorted(DEVICES), help="default: all")
    parser.add_argument("--only", default="", help='part of a cell\'s name: "forward half 75"')
    options = parser.parse_args(arguments)
    if reason := unable():
        print(f"nothing to audit: {reason}", file=sys.stderr)
        return 2
    chosen = [
        cell
        for cell in cells()
        if options.only in str(cell) and options.capability in (None, cell.capability)
    ]
    if not chosen:
        names = ", ".join(str(cell) for cell in cells())
        parser.error(f"given --only {options.only!r}; expected part of one of {names}")
    print(HEAD)
    audits = []
    for cell in chosen:
        audits.append(audit(cell))
        print(line(audits[-1]), flush=True)
    wrong = judged(audits, *exceptions())
    for told in wrong:
        print(told, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
