"""Published records: a journal as one packed file, without what no page and no claim reads.

``python -m harness.records.published results reports/published/cpu/layers`` packs the journal
``results`` into ``reports/published/cpu/layers.jsonl.xz``. `harness.records.journal.read` takes the
name without the suffix for a journal like any other.
"""

from __future__ import annotations

import json
import lzma
from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median_high, median_low
from types import MappingProxyType
from typing import Annotated, Any

import typer

from harness.errors import UsageError
from harness.json_file import replace_file
from harness.records import journal, predictions
from harness.records.schema import digest, run_keys

UNREAD = ("block", "verify")
"""Kinds that only the session itself reads, to know what is left and how long it takes."""
SAMPLES = ("samples", "beside_samples")
"""Of them only their number is read: medians and ratios stand beside them."""
UNREAD_OF_EPOCH = "loss"
"""Of training: epochs are chosen, and curves drawn, by the dev split."""
OF_EPOCH = ("seconds", "judging", "passes")
"""No epoch is chosen by them: times."""
CURVE_DIGITS = 6
"""Kept of what else an epoch has: scores, more than any page shows."""
DIGITS = 3
"""Kept of a sample, and of an epoch's times: there are more of these than of anything else."""
MEASURED = ("time", "anchor", "memory", "margin", "run", "calibration")
"""Kinds of which there are so many that their numbers' digits are most of what is published."""
MEASURED_DIGITS = 8
"""Kept of their other numbers: a thousand times more than any page shows."""
CONTROL = "control"
"""The arm of a calibration that is the baseline once more."""
OF_CALIBRATION = MappingProxyType({"ratio": 5, "ran_us": 6, "waited_us": 6})
"""Kept of a calibration's numbers, of which there are as many as of all others: its table gives
shares of comparisons, and noise to a tenth of a percent."""
OF_WITHDRAWN = (
    *("model", "task", "seed", "fold", "recipe", "vectors", "data", "code", "fingerprint"),
    *("status", "plan", "session", "at"),
)
"""Kept of a run that is withdrawn: by these it is known what repeats it."""
IN_FULL = ("test", "unseen", "recipe")
"""Of a run: what is told to be the same of two runs, or not."""
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 4, "pb": 0}]
"""For text that is mostly numbers."""


def places(folder: Path) -> list[Path]:
    """The journals that are packed in a folder, by their names."""
    found = sorted(folder.glob(f"*{journal.PACKED}"))
    return [path.with_name(path.name.removesuffix(journal.PACKED)) for path in found]


def pack(
    folder: Path, place: Path, numbers: Collection[str] = (), withdrawn: Collection[str] = ()
) -> Path:
    """Write what reports read of a journal as the packed file of another place.

    Session after session in their order, each with its first line; without measurements by other
    code than the newest, without what was repeated, and without sessions that hold nothing else.

    Parameters
    ----------
    folder : Path
        A journal.
    place : Path
        Its name as a published one, without suffix.
    numbers : collection of str
        Keys of runs whose predictions would take too much room: in their place the record has the
        numbers without seen test examples.
    withdrawn : collection of str
        Keys of runs whose results are no more to be told, nor comparisons that ask for them. That
        they were made stays known: what repeats them was declared late. What was withdrawn
        before, or has its numbers already, may be named again.

    Returns
    -------
    Path
        The file, written anew.

    Raises
    ------
    UsageError
        If the journal holds nothing to publish, or anything in it can't be read, or has no
        predictions of one of `numbers`, or nothing of one that is `withdrawn`, or if an older
        declaration of a question would be told in the place of one that goes.
    """
    found = journal.read(folder)
    if found.warnings:
        raise UsageError(f"{folder}: {found.warnings[0]}; mend or move that file first")
    of_session: dict[str, list[dict[str, Any]]] = {}
    read = [r for r in found.records if r["kind"] not in UNREAD]
    for record in journal.newest_code(_without(withdrawn, read, folder)):
        of_session.setdefault(record["session"], []).append(dict(record))
    if not of_session:
        raise UsageError(f"{folder} holds no record that a page or a claim reads")
    _clip(r for some in of_session.values() for r in some if r["kind"] == "calibration")
    every = [r for some in of_session.values() for r in some]
    told = {r["key"] for r in every if r.get("predictions") or r.get("unseen")}
    if strange := {*numbers} - told:
        raise UsageError(f"{folder} has no predictions of a run {min(strange)}; name others")
    for record in (r for r in every if r["key"] in numbers):
        if (kept := predictions.read([folder], record)) is not None:
            record["unseen"] = predictions.unseen_of(record["test"], kept)
            del record["predictions"]
    said = predictions.pack(folder, place, every)
    lines: list[Mapping[str, Any]] = []
    for session, first in found.sessions.items():
        if records := of_session.get(session):
            lines.append({k: v for k, v in first.items() if k != "file"})
            lines += [_short(record, said) for record in records]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    target = journal.packed(place)
    replace_file(target, lzma.compress(text.encode(), filters=_FILTERS))
    return target


def _without(
    withdrawn: Collection[str], records: Sequence[Mapping[str, Any]], folder: Path
) -> list[Mapping[str, Any]]:
    """The records, of some runs but that they were made, and no comparison that asks for them.

    What is left of a run has a key of its own: made again, it is another, and repeats this one.
    """
    keys = {digest(["withdrawn", key]): key for key in withdrawn}
    known = {r["key"] for r in records if r["kind"] == "run"}
    known |= {keys.get(r["key"], "") for r in records if r["kind"] == "withdrawn"}
    if strange := {*withdrawn} - known:
        raise UsageError(f"{folder} has no run {min(strange)} to withdraw; name others")
    designs = [r for r in records if r["kind"] in ("design", "family")]
    gone = {
        str(record["key"]): _asked(record) for record in designs if run_keys(record) & {*withdrawn}
    }
    for record in designs:
        # Of one question the newest declaration is told: an older one would stand up again.
        if record["key"] not in gone and _asked(record) in gone.values():
            raise UsageError(
                f"{folder} also asks by {record['key']} what is withdrawn: {record['question']}; "
                "withdraw its runs too"
            )
    kept: list[Mapping[str, Any]] = []
    for record in records:
        if record["kind"] == "run" and record["key"] in withdrawn:
            some = {name: record[name] for name in OF_WITHDRAWN if name in record}
            kept.append({"kind": "withdrawn", **some, "key": digest(["withdrawn", record["key"]])})
        elif not {record.get("key"), record.get("design")} & gone.keys():
            kept.append(record)
    return kept


def _asked(declared: Mapping[str, Any]) -> tuple[str, str]:
    """The question of a declaration, and the machine whose runs answer it."""
    return str(declared.get("question")), str(declared.get("fingerprint"))


def _short(record: Mapping[str, Any], said: frozenset[str]) -> dict[str, Any]:
    """The record, its samples shortened; without predictions that are not among those packed."""
    short = {k: _rounded(record[k]) for k in SAMPLES if isinstance(record.get(k), list)}
    if isinstance(epochs := record.get("epochs"), list):
        short["epochs"] = [
            {
                k: _rounded(v, DIGITS if k in OF_EPOCH else CURVE_DIGITS)
                for k, v in epoch.items()
                if k != UNREAD_OF_EPOCH
            }
            for epoch in epochs
        ]
    kept = {**record, **short}
    if record["kind"] in MEASURED:
        kept = {k: v if k in IN_FULL else _rounded(v, MEASURED_DIGITS) for k, v in kept.items()}
    if record["kind"] == "calibration":
        kept = _brief(kept)
    if (record.get("predictions") or {}).get("file") not in said:
        kept.pop("predictions", None)
    return kept


def _brief(value: Any) -> Any:
    """The same with the digits that `OF_CALIBRATION` says, however deep they stand."""
    if not isinstance(value, dict):
        return value
    return {
        k: _rounded(v, OF_CALIBRATION[k]) if k in OF_CALIBRATION else _brief(v)
        for k, v in value.items()
    }


def _clip(calibrations: Iterable[dict[str, Any]]) -> None:
    """Put wall times of each arm in ascending order, as the steps from each to the next.

    They pack small. Only medians are read of them, of the block and of all its comparison's blocks
    together: each is moved down to the nearest of these, or up to the lowest, by which none of
    them changes. Of the control nothing but its ratio is read; of what the arms ran, and waited for
    a core, the sum over all of them.
    """
    pooled: dict[tuple[Any, ...], list[float]] = {}
    clipped = []
    for record in calibrations:
        sides = {
            (problem, arm, side): of
            for problem, arms in record.get("arms", {}).items()
            for arm, both in arms.items()
            for side, of in both.items()
            if isinstance(of, dict) and "us" in of
        }
        if not sides:
            continue  # it failed, or is published already
        every = sides.values()
        record["ran_us"] = sum(of["inner"] * sum(of["us"]) for of in every)
        record["waited_us"] = sum(of["inner"] * sum(of["waited_us"].values()) for of in every)
        for (problem, arm, side), of in sides.items():
            us, waited = of["us"], of["waited_us"]
            of.clear()
            if arm != CONTROL:
                wall = sorted(t + waited.get(str(i), 0.0) for i, t in enumerate(us))
                at = record["condition"], record["repeat"], problem, arm, side
                pooled.setdefault(at, []).extend(wall)
                clipped.append((of, wall, pooled[at]))
    for of, wall, pool in clipped:
        ends = sorted({m(some) for m in (median_low, median_high) for some in (wall, pool)})
        kept = [0.0, *(ends[max(bisect_right(ends, us) - 1, 0)] for us in wall)]
        of["steps_us"] = [round(b - a, 6) for a, b in pairwise(kept)]


def _rounded(value: Any, digits: int = DIGITS) -> Any:
    """A number, or all that a list or a mapping holds, to so many significant digits."""
    if isinstance(value, list):
        return [_rounded(one, digits) for one in value]
    if isinstance(value, dict):
        return {name: _rounded(one, digits) for name, one in value.items()}
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value


def main(
    folder: Annotated[Path, typer.Argument(help="A journal.")],
    place: Annotated[Path, typer.Argument(help="reports/published/DEVICE/PURPOSE")],
    numbers: Annotated[
        list[str] | None, typer.Option(help="Key of a run: its numbers, not its predictions.")
    ] = None,
    withdraw: Annotated[
        list[str] | None, typer.Option(help="Key of a run: no more than that it was made.")
    ] = None,
) -> None:
    """Pack a journal for publishing."""
    try:
        target = pack(folder, place, numbers or (), withdraw or ())
    except UsageError as error:
        typer.echo(f"published: {error}", err=True)
        raise typer.Exit(2) from None
    typer.echo(f"{target}: {target.stat().st_size / 2**20:.2f} MiB")


if __name__ == "__main__":
    typer.run(main)
