"""Where a report's records come from: a journal, or what is published; by device, never mixed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from harness.errors import UsageError
from harness.experiments.conclusion import Conclusion, conclusions
from harness.experiments.preregistration import TRAINED, file_of
from harness.records import journal, schema
from harness.records import published as packs
from harness.records.predictions import Predictions, read
from harness.records.schema import run_keys
from reports.core.words import days

T = TypeVar("T")
PUBLISHED = Path(__file__).resolve().parents[1] / "published"
MOST_COMMITS = 4
"""Named under a figure."""
TIMED = ("time", "anchor")
SHOWN = (
    *TIMED,
    "memory",
    "margin",
    "design",
    "family",
    "run",
    "frontier",
    "stress",
    "attention",
)
"""Kinds of records that a report is made of."""


@dataclass(frozen=True)
class DeviceRecords:
    """All records of one fingerprint, whose hash is its key.

    Sessions are their first lines, oldest first. `has_twin`: another device of the report differs
    only in what no title says, a driver, say. `folders`: journals beside which predictions are
    kept. `elsewhere`: what was trained on the other devices, which a declaration may have known.
    """

    key: str
    fingerprint: Mapping[str, Any]
    records: tuple[Mapping[str, Any], ...]
    sessions: tuple[Mapping[str, Any], ...]
    has_twin: bool = False
    folders: tuple[Path, ...] = ()
    elsewhere: tuple[Mapping[str, Any], ...] = ()

    def said(self, run: Mapping[str, Any]) -> Predictions | None:
        """What a run said of its test examples; see `harness.records.predictions.read`."""
        return read(self.folders, run)

    @cached_property
    def conclusions(self) -> list[Conclusion]:
        """Of everything that was declared."""
        return conclusions(self.records, self.said, self.elsewhere)

    @property
    def kind(self) -> str:
        """``cpu`` or ``cuda``."""
        return str(self.fingerprint.get("device"))

    @property
    def name(self) -> str:
        """``AMD EPYC (cpu)``."""
        return f"{self.fingerprint.get('model')} ({self.kind})"

    @property
    def title(self) -> str:
        """``AMD EPYC (cpu), torch 2.13.0+cpu, 2 CPU threads``, and variables that were set."""
        return _title(self.fingerprint) + (f" [{self.key[:6]}]" if self.has_twin else "")

    def made_on(self, records: Iterable[Mapping[str, Any]]) -> str:
        """The title of where some of its records were made: of the last of several machines on
        which a design file was run they all are (`_gone_on`), and each machine is named.
        """
        titles = self.machines_of(records)
        if len(titles) < 2:
            return next(iter(titles), self.title)
        return "; ".join(f"{title} ({count})" for title, count in titles.most_common())

    def machines_of(self, records: Iterable[Mapping[str, Any]]) -> Counter[str]:
        """How many of some records each machine made, by its title."""
        return Counter(self._elsewhere.get(r.get("session"), self.title) for r in records)

    @property
    def machines(self) -> dict[str, str]:
        """The day of its first session, by machine: itself, and those that it has records from."""
        found: dict[str, str] = {}
        for s in self.sessions:  # the oldest first
            found.setdefault(self._elsewhere.get(s.get("session"), self.title), str(s.get("at")))
        return found

    @cached_property
    def _elsewhere(self) -> dict[Any, str]:
        """By session the title of another machine, of what was brought from it."""
        prints = {s.get("session"): s.get("fingerprint") for s in self.sessions}
        return {
            session: _title(f)
            for session, f in prints.items()
            if isinstance(f, Mapping) and schema.digest(f) != self.key
        }

    def of_others(self, *kinds: str) -> str:
        """Sentence on those of its records of some kinds that were made elsewhere, or empty."""
        by_what: dict[str, list[Mapping[str, Any]]] = {}
        for r in self.records:
            if r["kind"] in kinds:
                by_what.setdefault(str(r.get("task")).partition("[")[0], []).append(r)
        told = {what: self.made_on(some) for what, some in by_what.items()}
        said = "; ".join(f"{what}: {on}" for what, on in told.items() if on != self.title)
        what = "Begun elsewhere, and gone on with here (runs, those trained again too)"
        return f"{what}: {said}." if said else ""

    @property
    def slug(self) -> str:
        """For file names: ``amd-epyc-cpu-ef1fa9``."""
        text = f"{self.fingerprint.get('model')}-{self.kind}".lower()
        return re.sub(r"[^a-z0-9]+", "-", text).strip("-") + f"-{self.key[:6]}"

    def sessions_of(self, *kinds: str) -> tuple[Mapping[str, Any], ...]:
        """The sessions in which records of some kinds were made, oldest first."""
        made = {r.get("session") for r in self.records if r["kind"] in kinds}
        return tuple(s for s in self.sessions if s.get("session") in made)

    def footer(self, *kinds: str) -> str:
        """For figures of records of some kinds: the devices and the commits that measured them."""
        shown = [s["environment"] for s in self.sessions_of(*kinds) if s.get("environment")]
        commits = [schema.short_commit(e) for e in shown]
        named = list(dict.fromkeys(reversed(commits)))  # the newest first
        more = f" and {len(named) - MOST_COMMITS} more" if len(named) > MOST_COMMITS else ""
        what = "commits" if len(named) > 1 else "commit"
        changed = "; +: with local changes" if any(c.endswith("+") for c in named) else ""
        said = ", ".join(named[:MOST_COMMITS]) or "unknown"
        made = self.machines_of(r for r in self.records if r["kind"] in kinds)
        where = " and ".join(title for title, _ in made.most_common()) or self.title
        return f"{where}; {what} {said}{more}{changed}; {self.dates_of(*kinds)}"

    def dates_of(self, *kinds: str) -> str:
        """First and last day of its records of some kinds."""
        return days(r for r in self.records if r["kind"] in kinds) or "date unknown"

    def made(self, verb: str, *kinds: str) -> str:
        """``Measured 2026-11-25 on AMD EPYC ...``, and which of these records were not."""
        said = f"{verb} {self.dates_of(*kinds)} on {self.title}."
        return " ".join(filter(None, [said, self.of_others(*kinds)]))

    @property
    def newest(self) -> str:
        """Time of its newest record, as text that sorts."""
        return max((str(r.get("at", "")) for r in self.records), default="")

    def has(self, *kinds: str) -> bool:
        """Whether there is a record of one of these kinds."""
        return any(r["kind"] in kinds for r in self.records)


def _title(fingerprint: Mapping[str, Any]) -> str:
    variables = fingerprint.get("variables")
    known = variables if isinstance(variables, Mapping) else {}
    of_it = (
        f"{fingerprint.get('model')} ({fingerprint.get('device')})",
        f"torch {fingerprint.get('torch')}",
        schema.cpu_threads(fingerprint),
        *(f"{name}={value}" for name, value in sorted(known.items())),
    )
    return ", ".join(of_it)


@dataclass(frozen=True)
class Source:
    """What a report is built from: journals that were read, whether they are those published with
    attnbench, a sentence on that for the reader, and their devices, the newest first (of the
    published records those of which there is most).
    """

    folders: tuple[Path, ...]
    published: bool
    says: str
    devices: tuple[DeviceRecords, ...]
    warnings: tuple[str, ...]

    @property
    def conclusions(self) -> list[Conclusion]:
        """Of all devices."""
        return [one for device in self.devices for one in device.conclusions]

    def device(self, key: str, *kinds: str, record: str = "") -> DeviceRecords | None:
        """The device of a key; without one the newest that has records of these kinds.

        Parameters
        ----------
        record : str
            Key of a record of these kinds: without a device's key the device that has it is taken.

        Raises
        ------
        UsageError
            If no device has that key.
        """
        if key:
            return by_key("device", key, {d.key: d for d in self.devices}, lambda d: d.title)
        having = [d for d in self.devices if d.has(*kinds)]
        holding = [
            d for d in having if any(r["kind"] in kinds and r["key"] == record for r in d.records)
        ]
        return next(iter(holding or having), None)


def by_key(what: str, key: str, known: Mapping[str, T], title: Callable[[T], str]) -> T:
    """That of the key.

    Raises
    ------
    UsageError
        If there is none.
    """
    if key in known:
        return known[key]
    said = ", ".join(f"{one} ({title(it)})" for one, it in known.items()) or "none"
    raise UsageError(f"given {what} {key!r}; the records have {said}")


@lru_cache(maxsize=4)
def _devices(
    folders: tuple[Path, ...], stamps: tuple[tuple[tuple[str, int, int], ...], ...]
) -> tuple[list[DeviceRecords], list[str]]:
    """All devices of some journals, the newest first; `stamps` change with these."""
    records: dict[str, list[Mapping[str, Any]]] = {}
    prints: dict[str, Mapping[str, Any]] = {}
    sessions: dict[str, list[Mapping[str, Any]]] = {}
    warnings: list[str] = []
    for folder in folders:
        found = journal.read(folder)
        warnings += [f"{folder}: {warning}" for warning in found.warnings]
        own: dict[str, str] = {}
        for name, first in found.sessions.items():
            mapping = first.get("fingerprint")
            if isinstance(mapping, dict):
                own[name] = schema.digest(mapping)
                prints[own[name]] = mapping
                sessions.setdefault(own[name], []).append(first)
        for record in found.records:
            key = own.get(record["session"])
            if key is not None:
                records.setdefault(key, []).append(record)
    for start, end in _gone_on(records):
        sessions[end] += [s for s in sessions[start] if s not in sessions[end]]
    seen = {key: [r for r in some if r["kind"] in TRAINED] for key, some in records.items()}
    devices = [
        DeviceRecords(
            key,
            prints[key],
            tuple(journal.newest_code(some)),
            tuple(sorted(sessions[key], key=lambda s: str(s.get("at")))),
            folders=folders,
            elsewhere=tuple(r for other, its in seen.items() if other != key for r in its),
        )
        for key, some in records.items()
    ]
    return sorted(devices, key=lambda d: d.newest, reverse=True), warnings


def _gone_on(records: Mapping[str, list[Mapping[str, Any]]]) -> list[tuple[str, str]]:
    """Bring what a design file has on several machines to the one where it was declared last.

    Its verdict needs all of its runs. They are changed in place; returned is from where to where
    something was brought.
    """

    def declared(some: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [r for r in some if r["kind"] in ("design", "family") and file_of(r) is not None]

    every = [(r, device) for device, some in records.items() for r in declared(some)]
    moves = []
    for record, device in sorted(every, key=lambda one: str(one[0].get("at"))):
        wanted = run_keys(record)
        for other, some in records.items():
            if other == device or not any(r["kind"] == "run" and r["key"] in wanted for r in some):
                continue
            before = [r for r in declared(some) if file_of(r) == file_of(record)]
            its = wanted.union(*map(run_keys, before), (r["key"] for r in before))
            others = [r for r in some if r["kind"] in ("design", "family") and r["key"] not in its]
            shared = frozenset[str]().union(*map(run_keys, others))
            names, there = ("key", "design", "run"), set(map(id, records[device]))
            found = [r for r in some if any(r.get(name) in its for name in names)]
            brought = [r for r in found if id(r) not in there]
            if not brought:
                continue
            # What another comparison of that machine rests on stays there too.
            gone = its - shared
            some[:] = [r for r in some if not any(r.get(name) in gone for name in names)]
            records[device].extend(brought)
            moves.append((other, device))
    return moves


def _read(folders: Sequence[Path], published: bool, says: str, kinds: Sequence[str]) -> Source:
    # Several notebooks of a kernel read one journal.
    every, warnings = _devices(tuple(folders), tuple(map(journal.stamp, folders)))
    devices = [d for d in every if d.has(*kinds)]
    titles = [d.title for d in devices]
    # A device without a twin stays the object that it is, with what was concluded of it.
    told = (replace(d, has_twin=True) if titles.count(d.title) > 1 else d for d in devices)
    return Source(tuple(folders), published, says, tuple(told), tuple(warnings))


def find(folder: str, published: Path | None = None, kinds: Sequence[str] = SHOWN) -> Source:
    """Records of a journal; the published ones if it holds none (or none is given).

    Parameters
    ----------
    folder : str
        A journal, or empty.
    published : Path, optional
        Folder whose subfolders are journals.
    kinds : sequence of str
        A device without a record of one of these kinds is none.

    Returns
    -------
    Source
        Without devices if there is nothing at all.
    """
    if folder:
        source = _read([Path(folder)], False, f"Built from the journal {folder}.", kinds)
        if source.devices:
            return source
    places = packs.places(published or PUBLISHED)
    why = ""
    skipped: tuple[str, ...] = ()
    if folder:
        skipped = source.warnings
        state = "holds no measurements" if journal.exists(Path(folder)) else "does not exist"
        why = f" The journal {folder} {state}: attnbench bench and attnbench compare fill it."
    says = f"Built from the records published with attnbench, not from yours.{why}"
    found = _read(places, True, says, kinds)
    most = sorted(found.devices, key=lambda d: len(d.records), reverse=True)
    return replace(found, devices=tuple(most), warnings=(*skipped, *found.warnings))


def facts(fingerprint: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What a reader must know of the machine, from fingerprint and newest session.

    Parameters
    ----------
    sessions : sequence of mapping
        Those in which the records that are shown were made.
    """
    shown = {str(k): _said(v) for k, v in fingerprint.items() if v not in (None, {})}
    if sessions:
        newest = max(sessions, key=lambda s: (bool(s.get("environment")), str(s.get("at"))))
        environment = newest.get("environment") or {}
        commit = str(environment.get("commit") or "not a git checkout")
        shown["commit"] = commit + (" (with local changes)" if environment.get("dirty") else "")
        shown["platform"] = str(environment.get("platform"))
        packages = environment.get("packages") or {}
        shown["packages"] = ", ".join(f"{k} {v}" for k, v in packages.items())
        shown["sessions"] = f"{len(sessions)}, the last at {newest.get('at')}"
    return shown


def _said(value: Any) -> str:
    """A value of a fingerprint as words: ``M_MMAP_MAX = 0, M_TRIM_THRESHOLD = -1``."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} = {one}" for name, one in value.items())
    return str(value)
