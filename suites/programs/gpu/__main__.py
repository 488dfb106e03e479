"""``python -m suites.programs.gpu``: run the parts that are not done, pack what they recorded."""

from __future__ import annotations

import json
import lzma
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from harness.cli.output import bare_table, duration, say
from harness.errors import UsageError
from harness.json_file import replace_file
from harness.measure.device import device_fingerprint, environment
from harness.records import journal
from harness.registry import Registry
from harness.verify.batches import telling
from suites.programs.command import application, console, finishing

PART_SECONDS = 570.0
"""A lent machine runs no command for longer than ten minutes."""
TRIES = 4
"""Times that a part which its limit ended goes on in one run."""
PATIENCE_SECONDS = 20.0
"""From being asked to stop until it is stopped."""
MOST_BYTES = 16 * 2**20
LOG_BYTES = 4 * 2**20
"""Of the log's end, which tells why the last part failed; all of it stays where it was written."""
STATE, LOG, PACK = "parts.json", "log.txt", f"gpu{journal.PACKED}"
DOCTOR = "doctor"
"""The part without which nothing is begun; if it says no it is asked again the next time."""
DONE = ("ok", "failed", "left out")
COLOURS = {"ok": "green", "left out": "dim", "unfinished": "yellow"}

SANITIZER = ("compute-sanitizer", "--target-processes", "all", "--error-exitcode", "9")
SANITIZED = ("bf16", "f32")
"""Dtypes of MTSA's layer by Triton that it watches, a part each."""
FAST = ("mtsa", "multi_head", "bi_lstm", "multi_cnn", "disa")
"""What the parts behind it measure: verified first."""
SPENDING = (
    *("--only", "mtsa.fused@8", "--only", "multi_cnn.conv"),
    *("--lengths", "64,512", "--dtypes", "bf16"),
)
"""What the quick profile has no time to tell the energy of."""
TUNED = (64, 80, 128)
"""Widths of heads whose tiles are tried, a part each: the compiler needs minutes for every one."""
TILES = "tiles.json"
LONGEST = ("mtsa.fused@8", "multi_head.sdpa@8", "disa.fused", "multi_cnn.conv")


@dataclass(frozen=True)
class Part:
    """A command, in the program's folder: a module that Python runs, and its arguments.

    ``before`` is a program that runs Python, with arguments of its own; where it is not installed
    the part is left out, by name. ``places`` is how the module is told device and folder.
    """

    name: str
    module: str
    arguments: tuple[str, ...]
    before: tuple[str, ...] = ()
    places: tuple[str, ...] = ("--device", "{device}", "--journal", "{folder}")

    def missing(self) -> str:
        """Why it can't be run here; empty where it can."""
        if self.before and shutil.which(self.before[0]) is None:
            return f"{self.before[0]} is not installed"
        return ""

    def command(self, python: str, device: str, folder: str) -> list[str]:
        """The whole command line."""
        where = (place.format(device=device, folder=folder) for place in self.places)
        return [*self.before, python, "-m", self.module, *self.arguments, *where]


def parts(device: str) -> Iterator[Part]:
    """All parts in their order: what is cheap, and what the others stand on, comes first."""
    yield Part("doctor", "harness", ("doctor",))
    yield Part("verify", "harness", ("verify", *FAST, "--resume"))
    yield Part("bench", "harness", ("bench", "--profile", "quick"))
    yield Part("goals", "suites.programs.goals", ())
    frontier = ("frontier", *LONGEST, "--limit", "65536", "--dtypes", "bf16")
    yield Part("frontier", "harness", frontier)
    if device == "cuda":
        core = (f"predicted-{d}-{p}" for d in (64, 75, 128) for p in ("forward", "training"))
        asked = tuple(word for name in core for word in ("--only", name))
        yield Part("predicted", "suites.programs.goals", (*asked, "--blocks", "3"))
        tune, out = "reference_impls.kernels.triton.tune", ("--out", "{folder}/" + TILES)
        for width in TUNED:
            yield Part(f"tune {width}", tune, ("--only", f"half {width}"), places=out)
    yield Part("energy", "harness", ("bench", "--profile", "paper", *SPENDING))
    yield Part("verify all", "harness", ("verify", "--resume"))
    for dtype in SANITIZED:
        watched = ("verify", "mtsa.fused_triton", "--dtypes", dtype)
        yield Part(f"sanitizer {dtype}", "harness", watched, SANITIZER)
    for one in Registry().mechanisms.values():
        if any(telling(one, i, device) for i in one.implementations):
            yield Part(f"large {one.name}", "harness", ("verify", one.name, "--large"))
    yield Part("determinism", "harness", ("verify", "--determinism"))


app = application()


class Folder:
    """What is known of the parts; another commit makes all of them new.

    Those named by ``again`` are run once more where they failed.
    """

    def __init__(self, place: Path, commit: str, again: Collection[str] = ()) -> None:
        self.place, self.commit = place, commit
        self.parts: dict[str, dict[str, Any]] = {}
        place.mkdir(parents=True, exist_ok=True)
        self._file = place / STATE
        if not self._file.exists():
            return
        try:
            held = json.loads(self._file.read_text())
            known = held["parts"] if held["commit"] == commit else {}
            failed = {n for n, found in known.items() if found["status"] == "failed"}
        except (ValueError, TypeError, KeyError) as error:
            raise UsageError(
                f"can't read {self._file} ({type(error).__name__}); remove it to begin anew"
            ) from error
        once_more = failed.intersection([*again, DOCTOR])
        self.parts = {n: found for n, found in known.items() if n not in once_more}

    def done(self, part: Part) -> bool:
        """Whether it needs no further run."""
        return self.parts.get(part.name, {}).get("status") in DONE

    def note(self, part: Part, status: str, seconds: float, detail: str) -> None:
        """Write down how a run of a part ended; its seconds are those of all of its runs."""
        before = self.parts.get(part.name, {})
        self.parts[part.name] = {
            "status": status,
            "seconds": round(before.get("seconds", 0.0) + seconds, 1),
            "runs": before.get("runs", 0) + 1,
            "detail": detail,
        }
        text = json.dumps({"commit": self.commit, "parts": self.parts}, indent=1)
        replace_file(self._file, f"{text}\n".encode())


def run_part(part: Part, device: str, folder: Folder, limit: float) -> None:
    """Run a part for at most so many seconds, asked to stop before it is stopped."""
    if reason := part.missing():
        folder.note(part, "left out", 0.0, reason)
        return
    command = part.command(sys.executable, device, str(folder.place))
    begun = time.monotonic()
    with (folder.place / LOG).open("a") as log:
        print(f"\n$ {shlex.join(command)}", file=log, flush=True)
        child = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            child.wait(limit)
        except subprocess.TimeoutExpired:
            _stop(child)
            status, detail = "unfinished", f"stopped after {limit:.0f} s; it goes on"
        except BaseException:
            _stop(child)
            raise
        else:
            status = "ok" if child.returncode == 0 else "failed"
            detail = "" if child.returncode == 0 else f"exit code {child.returncode}, see {LOG}"
    folder.note(part, status, time.monotonic() - begun, detail)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a child and all that it started."""
    for sent, patience in ((signal.SIGTERM, PATIENCE_SECONDS), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, sent)
            child.wait(patience)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue


def run_all(
    todo: Sequence[Part], folder: Folder, device: str, seconds: float, out: Console
) -> None:
    """Run what is not done, until the time is over; nothing else if the doctor says no."""
    ends = time.monotonic() + seconds
    for part in todo:
        for _ in range(TRIES):
            limit = min(PART_SECONDS, ends - time.monotonic() - PATIENCE_SECONDS)
            if folder.done(part) or limit <= 0:
                break
            say(out, f"{part.name} ...")
            run_part(part, device, folder, limit)
        if part.name == DOCTOR and folder.parts.get(part.name, {}).get("status") == "failed":
            raise UsageError(
                f"the doctor says that {device} can't be measured here; see {folder.place / LOG}"
            )


def bundle(folder: Path, place: Path) -> list[Path]:
    """Pack everything that was recorded, and say how the parts ended, in a few small files.

    Raises
    ------
    UsageError
        If they are larger than what can be sent.
    """
    place.mkdir(parents=True, exist_ok=True)
    whole = b"".join(path.read_bytes() for path in sorted(folder.glob("*.jsonl")))
    (place / PACK).write_bytes(lzma.compress(whole, preset=9))
    for name in (STATE, LOG, TILES):
        if place != folder and (folder / name).exists():
            written = (folder / name).read_bytes()
            (place / name).write_bytes(written[-LOG_BYTES:] if name == LOG else written)
    files = [place / name for name in (PACK, STATE, LOG, TILES) if (place / name).exists()]
    size = sum(path.stat().st_size for path in files)
    if size > MOST_BYTES:
        raise UsageError(f"{place}: {size:,} bytes; expected at most {MOST_BYTES:,}")
    return files


def code(results: Mapping[str, Mapping[str, Any]], todo: Sequence[Part]) -> int:
    """1 where a part failed, 3 where one is not done, else 0."""
    statuses = [results.get(part.name, {}).get("status", "not begun") for part in todo]
    if "failed" in statuses:
        return 1
    return 3 if any(status not in DONE for status in statuses) else 0


def print_parts(
    out: Console, results: Mapping[str, Mapping[str, Any]], todo: Sequence[Part]
) -> None:
    """How every part ended."""
    table = bare_table("part", "", "seconds", "runs", "")
    for part in todo:
        found = results.get(part.name, {"status": "not begun"})
        status = found["status"]
        table.add_row(
            part.name,
            f"[{COLOURS.get(status, 'bold red' if status == 'failed' else 'dim')}]{status}[/]",
            str(found.get("seconds", "")),
            str(found.get("runs", "")),
            str(found.get("detail", "")),
        )
    out.print(table)


@app.command()
@finishing("gpu")
def main(
    folder: Annotated[str, typer.Option(metavar="DIR", help="records, and how far it is")] = (
        "results/gpu"
    ),
    packed: Annotated[
        str, typer.Option("--out", metavar="DIR", help="also pack all of it here")
    ] = "",
    only: Annotated[
        list[str] | None, typer.Option(metavar="PART", help="a part; may be repeated")
    ] = None,
    device: Annotated[str, typer.Option(help="cuda, or cpu to try the parts")] = "cuda",
    minutes: Annotated[
        float | None, typer.Option(help="stop before so many are over; it goes on next time")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="the commands; run nothing")] = False,
) -> int:
    """Verify, measure and record all that only a GPU can tell, in parts of under ten minutes.

    Killed and started again it goes on where it was; what failed is run again if --only names it.
    attnbench report --journal OUT/gpu shows what --out OUT packed.
    Exit code 1: a part failed; 3: not everything is done.
    """
    out = console()
    every = list(parts(device))
    unknown = set(only or ()) - {part.name for part in every}
    if unknown:
        raise UsageError(
            f"--only: given {', '.join(sorted(unknown))}; expected "
            f"{', '.join(part.name for part in every)}"
        )
    todo = [part for part in every if not only or part.name in only]
    if dry_run:
        for part in todo:
            say(out, shlex.join(part.command("python", device, folder)))
        return 0
    fingerprint = device_fingerprint(device)
    place = Folder(Path(folder), _commit(), only or ())
    say(out, f"{fingerprint['model']} ({device}), torch {fingerprint['torch']}; {folder}")
    begun = time.monotonic()
    try:
        run_all(todo, place, device, math.inf if minutes is None else 60 * minutes, out)
    finally:
        print_parts(out, place.parts, todo)
        if packed:
            files = bundle(Path(folder), Path(packed))
            say(out, f"packed: {', '.join(map(str, files))}")
    say(out, f"{duration(time.monotonic() - begun)}")
    return code(place.parts, todo)


def _commit() -> str:
    found = environment()
    return f"{found.get('commit')}{'+' * bool(found.get('dirty'))}"


if __name__ == "__main__":
    app()
