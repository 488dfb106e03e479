"""Rank tiles by what the compiler makes of them: python -m reference_impls.kernels.triton.ranking.

For each cell of the table of tiles the candidates are compiled, counted as the audit does, and
printed, best first: what is within all limits, then what is predicted to take the fewest cycles.
With --write the best is what `tiles.toml` says. What is compiled is kept in triton's own cache.

Two releases of Triton may disagree: then run it with the one that torch brings too (by PYTHONPATH,
as `nox -s nightly` audits). For float32 key gradients of heads of 320 on sm_80 that one has chosen:
from the tile of the newest it makes code with 5,044 spills in the loop.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import astuple, replace
from pathlib import Path

from reference_impls.kernels.triton.audit import (
    DEVICES,
    HEAD,
    KernelAudit,
    KernelCell,
    audit,
    cells,
    line,
    unable,
)
from reference_impls.kernels.triton.tiles import (
    TABLE,
    candidates,
    shortened,
    table_text,
    tiles,
    with_these,
)

COUNTS = Path(__file__).with_name("counts.toml")
DOUBTED = 1.1
"""What four warps with 64 rows have to be better by on 9.0: other projects report wrong code of
Triton 3.7.1 (ptxas 12.8.93) for those, which only a check of gradients on a device can exclude."""
BROKEN = 1.25
"""What each limit more that is broken has to be worth, where no tile is within all of them."""
TOLD = frozenset(["eights"])
"""Limits that no tile is refused for that has copies of 16 bytes too: the prediction knows the
bytes of either."""


def _shallow(cell: KernelCell, stages: int) -> list[KernelAudit]:
    """The candidates of so many stages, best first."""
    given = candidates(cell.kind, cell.numbers, cell.width, cell.capability)
    audits = [audit(cell, tile) for tile in given if tile.stages == stages]
    return sorted((one for one in audits if one.programs), key=_order)


def ranked(cell: KernelCell) -> list[KernelAudit]:
    """The candidates that a multiprocessor has room for, best first.

    One step more is loaded ahead where as many programs fit as without: the prediction does not
    see what waiting that saves.
    """
    # One step is loaded ahead where there is no room for two.
    found = _shallow(cell, 2) or _shallow(cell, 1)
    while found and not _fits(found[0]):
        del found[0]
    if not found:
        return []
    deeper = audit(cell, replace(found[0].tile, stages=found[0].tile.stages + 1))
    as_many = deeper.programs == found[0].programs
    if as_many and _broken(deeper) <= _broken(found[0]) and _fits(deeper):
        found.insert(0, deeper)
    return found


def _fits(one: KernelAudit) -> bool:
    """Whether there is room for the tile in all forms that take it: short ones read other rows."""
    others = (cell for cell in cells() if not cell.in_table and cell.takes_tile_of(one.cell))
    return all(audit(other, shortened(one.tile, other.length)).programs for other in others)


def _broken(one: KernelAudit) -> int:
    return len(one.beyond().keys() - (TOLD if one.copies else set()))


def _order(one: KernelAudit) -> tuple[bool, float]:
    tile, cycles = one.tile, one.cycles["predicted"]
    if one.cell.capability == 90 and (tile.rows, tile.warps) == (64, 4):
        cycles *= DOUBTED
    broken = _broken(one)
    return broken > 0, cycles * BROKEN**broken


def counted(audits: Iterable[KernelAudit]) -> str:
    """The text of `counts.toml`: what `reports.core.predicted` makes times of."""
    text = "# Written by `python -m reference_impls.kernels.triton.ranking --counts`: cycles of a\n"
    text += "# multiprocessor for 1,024 pairs, in bfloat16; tile: rows, columns, warps, stages.\n"
    for one in audits:
        cycles = {name: round(value, 1) for name, value in one.cycles.items()}
        predicted = cycles.pop("predicted")
        parts = ", ".join(f"{name} = {value}" for name, value in cycles.items())
        cell = one.cell
        text += f"\n[sm_{cell.capability}.{cell.kind}.{cell.width}]\n"
        text += f"tile = {list(astuple(one.tile))}\nprograms = {one.programs}\n"
        text += f"predicted = {predicted}\ncycles = {{ {parts} }}\n"
    return text


def rewrite(best: Iterable[KernelAudit]) -> None:
    """Put these tiles in the places of their cells."""
    text = "# Written by `python -m reference_impls.kernels.triton.ranking --write`:\n"
    text += "# by the widest head rows, columns, warps, stages.\n"
    for capability in DEVICES:
        own = [one for one in best if one.cell.capability == capability]
        cells = {(one.cell.kind, one.cell.numbers, str(one.cell.width)): one.tile for one in own}
        text += table_text({capability: with_these(TABLE, capability, cells)[capability]})
    TABLE.write_text(text)
    tiles.cache_clear()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print, and write if that is asked for; 2 where nothing can be compiled."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help='part of a cell\'s name: "sm_90 forward half"')
    parser.add_argument("--write", action="store_true", help="the best into tiles.toml")
    parser.add_argument("--counts", action="store_true", help=f"only write {COUNTS.name}")
    options = parser.parse_args(arguments)
    if reason := unable():
        print(f"nothing to rank: {reason}", file=sys.stderr)
        return 2
    if options.counts:
        own = [cell for cell in cells() if cell.counted]
        COUNTS.write_text(counted(map(audit, own)))
        return 0
    print(HEAD)
    best = []
    for cell in cells():
        if cell.in_table and options.only in str(cell):
            found = ranked(cell)
            best += found[:1]
            print(*map(line, found), sep="\n", end="\n\n", flush=True)
            if options.write:
                rewrite(best)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
