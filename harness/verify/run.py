"""Verify many implementations, each in a child, several at a time; finished ones are reused."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.isolate import USAGE, Call, Interpreter, Limits, Mode, Outcome, run_all
from harness.records import journal, schema
from harness.registry import Registry, code_hash

CALL = "harness.verify.check:check"
BESIDE = {
    "stress": "harness.verify.beside:stress",
    "determinism": "harness.verify.beside:determinism",
}
"""What is told beside a verdict, each a kind of record, and what a child calls for it."""
ALONE = {
    "compiled": ("harness.verify.beside:compiled", ("cpu", "cuda")),
    "graphed": ("harness.verify.beside:graphed", ("cuda",)),
}
"""What of determinism has a call of its own, and where: a compiler that does not end must not take
the rest with it."""
COMPILE_SECONDS = 120.0
"""Then compiling is given up, and told so; unrolled loops take minutes."""
LIMIT_SECONDS = 300.0
LARGE, LARGE_SECONDS = ", large shapes", 1800.0
"""Behind the name of a case, and what it may take: the oracle alone needs minutes."""
ANSWERS = ".answers"
"""Folder in a journal where the answers of oracles to large shapes are, until all are given."""

ON_GPU = 8
"""Children that share a GPU: what takes long is the compiler and the oracle, on the host; each has
a context of half a gigabyte."""

SETTLED = ("ok", "unsupported", "wrong", "void")
"""Verdicts that are not tried again."""
IN_PARTS = (*SETTLED, "timeout")
"""The same of what is stopped and goes on: time over and over for one row would end nothing."""


@dataclass(frozen=True)
class Verification:
    """One implementation in one dtype on one device."""

    name: str
    dtype: str
    device: str
    options: tuple[tuple[str, str], ...]
    large: bool
    case: str  # how a record names it
    code: str
    key: str


def case_name(name: str, options: tuple[tuple[str, str], ...], dtype: str, device: str) -> str:
    """``mtsa.plain[a=1]-f32-cpu``."""
    shown = "[" + ",".join(f"{k}={v}" for k, v in options) + "]" if options else ""
    return f"{name}{shown}-{dtype}-{device}"


def jobs(
    wanted: Iterable[tuple[str, str, tuple[tuple[str, str], ...]]],
    registry: Registry,
    fingerprint: Mapping[str, Any],
    large: bool = False,
) -> list[Verification]:
    """What is to be verified, with the keys of the records.

    Parameters
    ----------
    wanted : iterable of (name, dtype, options)
        ``mechanism.implementation``, a dtype, and what ``--option`` gave; repeated ones count once.
    large : bool
        Whether large shapes are meant, see `harness.verify.batches.large`.
    """
    device = str(fingerprint["device"])
    out = []
    for name, dtype, options in dict.fromkeys(wanted):
        code = code_hash(registry.find(name)[0], "verify")
        case = case_name(name, options, dtype, device) + LARGE * large
        key = schema.key("verify", case, 0, code, fingerprint)
        out.append(Verification(name, dtype, device, options, large, case, code, key))
    return out


def fitting(
    name: str, options: tuple[tuple[str, str], ...], heads: int, registry: Registry
) -> tuple[tuple[str, str], ...]:
    """The options to verify with: a list may have one entry per head, so their number goes along.

    Without a list (or an oracle) the number of heads is the one that everything is verified with.
    """
    mechanism = registry.find(name)[0]
    lists = any(";" in text for _, text in options)
    if not lists or not mechanism.takes_heads or mechanism.oracle is None:
        return options
    return options if "heads" in dict(options) else (*options, ("heads", str(heads)))


def workers_for(fingerprint: Mapping[str, Any], asked: int = 0) -> int:
    """Children at a time: as many as asked for, or one per thread; of those `ON_GPU` on a GPU."""
    most = ON_GPU if fingerprint["device"] == "cuda" else math.inf
    return asked or int(min(int(fingerprint["threads"]), most))


def verify(
    todo: Sequence[Verification],
    registry: Registry,
    fingerprint: Mapping[str, Any],
    on_row: Callable[[dict[str, Any]], None],
    folder: Path | None = None,
    session: Mapping[str, Any] | None = None,
    workers: int = 1,
    settled: Collection[str] = SETTLED,
) -> list[dict[str, Any]]:
    """Run all jobs; rows come in the order of `todo`.

    Parameters
    ----------
    on_row : callable
        Called with each row as it is known.
    folder : Path or None
        Journal in which finished rows are looked up and new ones written; None keeps none.
    session : mapping
        Environment for the journal's first line.
    workers : int
        Children at a time.
    settled : collection of str
        Rows with these verdicts are taken from the journal; with none all are done, and written.
    """
    looked_up = folder is not None and folder.exists() and settled
    known = journal.read(folder).finished() if folder is not None and looked_up else {}
    rows: dict[str, dict[str, Any]] = {}
    for job in todo:
        if known.get(job.key, {}).get("verdict") in settled:
            rows[job.key] = {**known[job.key], "reused": True}
            on_row(rows[job.key])
    missing = [job for job in todo if job.key not in rows]
    calls = [(job, _call(job, registry, folder)) for job in missing]
    mode: Mode = "persistent" if any(job.device == "cuda" for job in missing) else "fork"
    with ExitStack() as stack:
        writer = None
        if folder is not None and missing:
            head = {**(session or {}), "fingerprint": dict(fingerprint)}
            writer = stack.enter_context(journal.Writer(folder, head))
        for job, outcome in run_all(calls, workers, mode):
            if outcome.error == USAGE:  # found where the module is built
                raise UsageError(f"{job.name}: {outcome.detail}")
            record = {
                **schema.head("verify", job.case, job.code, fingerprint),
                **{"block": 0, "name": job.name, "dtype": job.dtype, "device": job.device},
                **judged(outcome),
            }
            rows[job.key] = writer.append(record) if writer else record
            on_row(rows[job.key])
    return [rows[job.key] for job in todo]


def _call(job: Verification, registry: Registry, folder: Path | None) -> Call:
    arguments: dict[str, Any] = {
        "name": job.name,
        "dtype": job.dtype,
        "device": job.device,
        "given": list(registry.extra),
        "options": dict(job.options),
    }
    if job.large:
        arguments |= {"large": True, "answers": "" if folder is None else str(folder / ANSWERS)}
    return Call(CALL, arguments, Limits(seconds=LARGE_SECONDS if job.large else LIMIT_SECONDS))


def judged(outcome: Outcome) -> dict[str, Any]:
    """What a record says of a check: the verdict that came back, or how its child ended."""
    found: dict[str, Any] = {"status": outcome.status, "task_seconds": outcome.seconds}
    if outcome.status != "ok":
        by = (outcome.value or {}).get("found_by")
        told = {"found_by": by} if by else {}
        return {**found, "verdict": outcome.status, "detail": outcome.detail, **told}
    if outcome.value["verdict"] == "wrong":
        found["status"] = "wrong"
    return {**found, **outcome.value}


def _by_chance(record: Mapping[str, Any]) -> bool:
    """Whether it, or what it ran alone, crashed or had no memory: next time it may not."""
    told = (record["status"], *(record.get(f"{what}_reason") or "" for what in ALONE))
    return any(str(one).startswith(("crash", "oom")) for one in told)


def beside(
    kind: str,
    wanted: Sequence[tuple[str, str]],
    options: tuple[tuple[str, str], ...],
    registry: Registry,
    fingerprint: Mapping[str, Any],
    folder: Path,
    session: Mapping[str, Any],
    on_row: Callable[[], None],
) -> list[dict[str, Any]]:
    """A kind of `BESIDE` for (name, dtype), one child after the other; known ones are reused.

    But not crashes: they may be chance. The options are those of the mechanisms' factories; the
    session is the environment for the journal's first line; `on_row` is called at the end of each.
    """
    known = journal.read(folder).finished()
    device = str(fingerprint["device"])
    records = []
    with ExitStack() as stack:
        interpreter, writer = None, None
        for name, dtype in wanted:
            case = case_name(name, options, dtype, device)
            head = schema.head(kind, case, code_hash(registry.find(name)[0], "verify"), fingerprint)
            record = known.get(head["key"])
            if record is None or _by_chance(record):
                what = {"name": name, "dtype": dtype, "options": dict(options), "device": device}
                interpreter = interpreter or stack.enter_context(Interpreter("fork"))
                told = _told_beside(interpreter, kind, {**what, "given": list(registry.extra)})
                if writer is None:
                    first = {**session, "fingerprint": dict(fingerprint)}
                    writer = stack.enter_context(journal.Writer(folder, first))
                record = writer.append({**head, "block": 0, **what, **told})
            records.append(record)
            on_row()
    return records


def _told_beside(interpreter: Interpreter, kind: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a record of a kind of `BESIDE` says of how its child ended, and what came back."""
    outcome = interpreter.run(BESIDE[kind], asked, Limits(seconds=LIMIT_SECONDS))
    found: dict[str, Any] = {"status": outcome.status, "detail": outcome.detail}
    if outcome.status != "ok":
        return {**found, "points": []} if kind == "stress" else found
    found |= outcome.value
    for what, (call, devices) in ALONE.items() if kind == "determinism" else ():
        if asked["device"] in devices:
            own = interpreter.run(call, asked, Limits(seconds=COMPILE_SECONDS))
            failed = {what: None, f"{what}_reason": f"{own.status}: {own.detail}"}
            found |= own.value if own.status == "ok" else failed
    return found


PROMISED = ("again", "graphed")
"""What an implementation that is declared deterministic promises, where it is tried."""


def broken(record: Mapping[str, Any]) -> str:
    """What a record of determinism has of the promise of one that is declared so; empty: nothing.

    What could not be told is not kept either; what it can't do at all it doesn't promise.
    """
    if record["status"] != "ok":
        told = f"{record['status']}: {record['detail']}"
        return "" if record["status"] == "unsupported" else told
    found = []
    for kind in (kind for kind in PROMISED if kind in record):
        if record[kind] is None:
            found.append(f"{kind} not told: {record[f'{kind}_reason']}")
        elif record[kind]:
            found.append(f"{kind} differs by {record[kind]:.0e}")
    return "; ".join(found)


_WHERE_TRIED = ("threads", "compiled", "graphed")


def same_bits(record: Mapping[str, Any]) -> str:
    """A record of determinism in words: ``bitwise``, or what differs by how much.

    What was not tried is named: ``bitwise; compiled not tried``.
    """
    if record["status"] != "ok":
        return str(record["status"])
    kinds = ("again", "batch", *(kind for kind in _WHERE_TRIED if kind in record))
    differing = [f"{kind} {record[kind]:.0e}" for kind in kinds if record[kind]]
    told = [", ".join(differing) or "bitwise"]
    return "; ".join([*told, *(f"{kind} not told" for kind in kinds if record[kind] is None)])


def price(record: Mapping[str, Any]) -> str:
    """What the deterministic mode costs: ``1.02x (1.00 to 1.05)``, quartiles in brackets."""
    if record["status"] != "ok" or record["price"] is None:
        return ""
    return f"{record['price']:.2f}x ({record['price_low']:.2f} to {record['price_high']:.2f})"
