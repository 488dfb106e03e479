"""Tile sizes of the Triton kernels: a table, not a search at run time, so that timings repeat.

`tiles.toml` is written by `reference_impls.kernels.triton.ranking`, which compiles what
`candidates` gives, and takes what is within the audit's limits and predicted to be fastest.
`reference_impls.kernels.triton.tune` measures, on a device: what it found stands in `measured.toml`
and counts in place of the prediction.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

from reference_impls.kernels import sizes

Kind = Literal["forward", "query_gradient", "key_gradient"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Numbers = Literal["half", "single"]
"""What the products of weights are made of: bfloat16, or float32 (for float16 inputs too)."""

SHARED_BYTES: Mapping[int, int] = {80: 163 * 1024, 90: 227 * 1024}
"""What one program may have of a multiprocessor's shared memory, by compute capability."""
LARGE_SHARED_BYTES = 160 * 1024
"""Devices with less for one program (99 KiB on RTX cards, of 8.6, 8.9 and 12.0) get tiles of half
the rows and columns."""
TABLE = Path(__file__).with_name("tiles.toml")
MEASURED = Path(__file__).with_name("measured.toml")
SHORTEST = 64
"""Tokens up to which all sequences have the same tile."""
WIDTHS = (64, 80, 128, 256, 320)
"""Of heads, each up to the next; 80 is for 75 and 320 for 300, see `cut`."""


@dataclass(frozen=True)
class Tile:
    """How one program cuts its work.

    Attributes
    ----------
    rows : int
        Queries of one program; keys in ``key_gradient``.
    columns : int
        What it goes through step by step: keys; queries in ``key_gradient``.
    warps, stages : int
        Groups of 32 threads, and steps that are loaded ahead.
    """

    rows: int
    columns: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns} {self.warps}w {self.stages}s"

    def of(self, rows: int, columns: int) -> Tile:
        """A smaller one, of at least 16 rows and columns and with as many rows to a warp."""
        rows, columns = max(16, rows), max(16, columns)
        warps = max(1, self.warps * rows // self.rows)
        return replace(self, rows=rows, columns=columns, warps=warps)


Tiles = Mapping[Kind, Mapping[Numbers, Mapping[int, Tile]]]


def read(path: Path, capability: int) -> Tiles:
    """What a table says for devices like 8.0 or 9.0: by kernel, numbers and widest head.

    Nothing where it is not there.
    """
    text = path.read_text() if path.exists() else ""
    table = tomllib.loads(text).get(f"sm_{capability}", {})
    return {
        kind: {
            numbers: {
                int(width): Tile(*tile)
                for width, tile in table.get(kind, {}).get(numbers, {}).items()
            }
            for numbers in get_args(Numbers)
        }
        for kind in KINDS
    }


@cache
def tiles(capability: int) -> Tiles:
    """The tiles of devices like 8.0 or 9.0: those that one has shown, else those predicted."""
    predicted, measured = (read(path, capability) for path in (TABLE, MEASURED))
    return {
        kind: {
            numbers: {**by_width, **measured[kind][numbers]}
            for numbers, by_width in predicted[kind].items()
        }
        for kind in KINDS
    }


Cells = Mapping[Any, Tile]
"""Tiles by kind, numbers and width, all three as texts."""


def with_these(path: Path, capability: int, cells: Cells) -> dict[int, Tiles]:
    """What a table says, by capability, with other tiles in some places of one of them."""
    table = {one: read(path, one) for one in SHARED_BYTES}
    own = {
        kind: {
            numbers: {
                **by_width,
                **{int(at[2]): t for at, t in cells.items() if at[:2] == (kind, numbers)},
            }
            for numbers, by_width in by_numbers.items()
        }
        for kind, by_numbers in table[capability].items()
    }
    return {**table, capability: own}


def table_text(table: Mapping[int, Tiles]) -> str:
    """A table as `read` reads it."""
    text = ""
    for capability, by_kind in table.items():
        for kind, by_numbers in by_kind.items():
            for numbers, by_width in by_numbers.items():
                if by_width:
                    text += f"\n[sm_{capability}.{kind}.{numbers}]\n"
                for width, tile in sorted(by_width.items()):
                    text += f"{width} = {list(astuple(tile))}\n"
    return text


WIDEST = sizes.WIDEST["triton"]
"""Wider heads would need their features in several programs."""
WIDEST_SMALL = 128
"""Where weights are float32 and the device is not large: 256 would take 112 KiB even so."""


def tiles_of(count: int, size: int) -> int:
    """How many of a size cover a count: Triton's own, on the host, takes microseconds."""
    return -(-count // size)


@cache
def power_of_two(number: int) -> int:
    """The smallest power of two that is at least a number; products need 16."""
    return max(16, 1 << (number - 1).bit_length()) if number else 16


@cache
def cut(width: int) -> tuple[int, int]:
    """Two powers of two that a width fits in with the fewest columns more, the second perhaps 0.

    75 is 64 + 16 in place of 128. A second of half the sum would save nothing.
    """
    whole = power_of_two(width)
    half = whole // 2
    rest = power_of_two(width - half)
    return (half, rest) if rest < half else (whole, 0)


def choose(
    kind: Kind,
    numbers: Numbers,
    width: int,
    length: int,
    large: bool = True,
    capability: int = 90,
) -> Tile:
    """The tile for heads of a width (the wider of keys and values) and N tokens.

    No tile is longer than the sequence needs: setting A has 64 tokens. Shorter ones take the tile
    of those: a size of its own would be a kernel of its own, which takes the compiler seconds.

    Parameters
    ----------
    large : bool
        Whether the device has `LARGE_SHARED_BYTES`.
    capability : {80, 90}
        Whose table.
    """
    by_width = tiles(capability)[kind][numbers]
    tile = by_width[width_in_table(by_width, width)]
    if not large:
        tile = tile.of(tile.rows // 2, tile.columns // 2)
    return shortened(tile, length)


def width_in_table(by_width: Iterable[int], width: int) -> int:
    """Which width of the table heads of a width belong to."""
    return min(one for one in by_width if width <= one)


def shortened(tile: Tile, length: int) -> Tile:
    """As much of a tile as sequences of a length take."""
    longest = max(SHORTEST, power_of_two(length))
    return tile.of(min(tile.rows, longest), min(tile.columns, longest))


SUMS: Mapping[Kind, tuple[float, float]] = {
    "forward": (2, 1.5),
    "query_gradient": (1, 2.5),
    "key_gradient": (3, 3),
}
"""Tiles [rows, features] and [rows, columns] that a step has in registers, float32."""


SIDES = (16, 32, 64, 128)
REGISTERS: Mapping[Numbers, tuple[int, int]] = {"half": (40, 224), "single": (16, 168)}
"""Least and most of a thread for `SUMS`: products of float32 have both factors there, in parts."""
MOST_SINGLE = 128
"""Of float32 where warps multiply, or heads are wider than 128: the parts of both factors are in
registers then, of warp groups those of one."""


def beyond(numbers: Numbers, rows: int, warps: int, capability: int) -> bool:
    """Whether warps of a group would load rows that a tile of float32 has not.

    Triton 3.6 has each of them load 16 of its own into registers, where there are fewer from behind
    the tile, and an H200 stops at what lies behind shared memory. Bfloat16 is read where it stands.
    """
    return numbers == "single" and capability == 90 and 64 <= rows < 16 * warps


def candidates(kind: Kind, numbers: Numbers, width: int, capability: int = 90) -> Iterator[Tile]:
    """Tiles worth compiling, by what they hold in shared memory and in registers.

    Products take 16 rows for each warp, and of bfloat16 on 9.0 64 for each four; fewer rows to a
    warp are several warps with the same scores, which only sums of many features are worth (of
    float32 not where that is `beyond` the tile). Wider than 256, sums of 64 rows would spill, and
    what is multiplied takes registers too.

    Yields
    ------
    Tile
        Of two steps loaded ahead, then of three; of float32 that wide of one before.
    """
    width, half = sum(cut(width)), numbers == "half"
    item, wider = 2 if half else 4, width > 256
    wide, long = SUMS[kind]
    least, most = REGISTERS[numbers]
    if not half and (capability == 80 or width > 128):
        most = MOST_SINGLE
    most = most * 2 // 3 if wider else most
    longest = 128 if half else 32  # three products of float32 make one
    by_group = half and capability == 90 and not wider
    by_warp: tuple[int, ...] = (16,) if half and width < 128 else (16, 8, 4)
    if width >= 256:
        by_warp = (*by_warp, 2)
    ahead: tuple[int, ...] = (2, 3)
    if wider:
        ahead = ahead if half else (1, *ahead)
    for rows, columns in product(SIDES, (side for side in SIDES if side <= longest)):
        for per_warp in by_warp:
            warps = rows // per_warp
            if warps not in (1, 2, 4, 8) or (by_group and (rows < 64 or warps < 4)):
                continue
            if beyond(numbers, rows, warps, capability):
                continue
            registers = (wide * rows * width + long * rows * columns) / (32 * warps)
            for stages in ahead:
                held = (rows + 3 * columns * max(1, stages - 1)) * width * item
                if least <= registers <= most and held <= SHARED_BYTES[capability]:
                    yield Tile(rows, columns, warps, stages)
