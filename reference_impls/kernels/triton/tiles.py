"""Tile sizes of the Triton kernels: a table, not a search at run time, so that timings repeat.

Chosen by arithmetic for an H200 (228 KiB of shared memory and 256 KiB of registers for each
multiprocessor); `reference_impls.kernels.triton.audit` counts what the compiler makes of them,
`reference_impls.kernels.triton.tune` measures others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from reference_impls.kernels import sizes

Kind = Literal["forward", "query_gradient", "key_gradient"]
Numbers = Literal["half", "single"]
"""What the products of weights are made of: bfloat16, or float32 (for float16 inputs too)."""

SHARED_BYTES = 227 * 1024
"""What one program may have of a Hopper multiprocessor's shared memory."""
LARGE_SHARED_BYTES = 160 * 1024
"""Devices with less for one program (99 KiB on RTX cards, of 8.6, 8.9 and 12.0) get tiles of half
the rows and columns; the table's take up to 144 KiB compiled for 8.0, and 176 KiB for 9.0."""


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


TILES: Mapping[Kind, Mapping[Numbers, Mapping[int, Tile]]] = {
    "forward": {
        "half": {
            32: Tile(128, 64, 4, 3),
            64: Tile(128, 64, 8, 3),
            128: Tile(128, 64, 8, 3),
            256: Tile(64, 32, 8, 2),
        },
        "single": {
            32: Tile(64, 32, 4, 2),
            64: Tile(64, 32, 8, 2),
            128: Tile(32, 32, 8, 2),
            256: Tile(16, 16, 8, 2),
        },
    },
    "query_gradient": {
        "half": {
            32: Tile(128, 64, 8, 2),
            64: Tile(128, 64, 8, 2),
            128: Tile(64, 64, 8, 2),
            256: Tile(32, 32, 8, 2),
        },
        "single": {
            32: Tile(64, 32, 8, 2),
            64: Tile(64, 32, 8, 2),
            128: Tile(32, 16, 8, 2),
            256: Tile(16, 16, 8, 2),
        },
    },
    "key_gradient": {
        "half": {
            32: Tile(64, 64, 4, 2),
            64: Tile(64, 64, 8, 2),
            128: Tile(64, 64, 8, 2),
            256: Tile(32, 32, 8, 2),
        },
        "single": {
            32: Tile(64, 32, 8, 2),
            64: Tile(32, 32, 8, 2),
            128: Tile(16, 16, 8, 2),
            256: Tile(16, 16, 8, 2),
        },
    },
}
WIDEST = sizes.WIDEST["triton"]
"""Wider heads would need their features in several programs."""
WIDEST_SMALL = 128
"""Where weights are float32 and the device is not large: 256 would take 112 KiB even so."""


def power_of_two(number: int, least: int = 16) -> int:
    """The smallest power of two that is at least a number; products need 16."""
    return max(least, 1 << (number - 1).bit_length()) if number else least


def choose(kind: Kind, numbers: Numbers, width: int, length: int, large: bool = True) -> Tile:
    """The tile for heads of a width (the wider of keys and values) and N tokens.

    No tile is longer than the sequence needs: setting A has 64 tokens.

    Parameters
    ----------
    large : bool
        Whether the device has `LARGE_SHARED_BYTES`.
    """
    table = TILES[kind][numbers]
    tile = next(tile for widest, tile in sorted(table.items()) if width <= widest)
    if not large:
        tile = replace(tile, rows=max(16, tile.rows // 2), columns=max(16, tile.columns // 2))
    longest = power_of_two(length)
    return replace(tile, rows=min(tile.rows, longest), columns=min(tile.columns, longest))


def candidates(kind: Kind, numbers: Numbers, width: int) -> Iterator[Tile]:
    """Tiles worth measuring, by what they hold in shared memory and in registers.

    Parameters
    ----------
    kind : {"forward", "query_gradient", "key_gradient"}
    numbers : {"half", "single"}
    width : int
        Of keys and values.

    Yields
    ------
    Tile
        Its loads fit into shared memory, and its sums into half of the registers.
    """
    width, item = power_of_two(width), 2 if numbers == "half" else 4
    sums = {"forward": 2, "query_gradient": 1, "key_gradient": 3}[kind]
    for rows in (16, 32, 64, 128):
        for columns in (16, 32, 64, 128):
            for warps in (4, 8):
                for stages in (2, 3, 4):
                    held = (3 * rows + 3 * columns * stages) * width * item
                    in_registers = 4 * rows * (sums * width + 2 * columns) / (32 * warps)
                    if held <= SHARED_BYTES and in_registers <= 4 * 192:
                        yield Tile(rows, columns, warps, stages)
