"""Claims as records: read from ``claims.toml``, every field checked."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args

from harness.errors import UsageError

FILE = Path(__file__).parent.with_name("claims.toml")
Kind = Literal["exact", "audit", "measured", "not testable"]
KINDS: tuple[Kind, ...] = get_args(Kind)
Sort = Literal["audit", "exact", "cost", "accuracy"]
SORTS: tuple[Sort, ...] = get_args(Sort)
"""Kinds of claims whose verdicts are counted together; no number is over several of them."""
COSTS = ("time_ratio", "memory_ratio", "epoch_ratio", "slope")
"""Queries about costs; of measured claims all others but *exact* are about trained models."""
WHOSE = ("paper", "elsewhere", "ours")
LACKS = ("hardware", "data", "not built")
ABOUT = ("cost", "accuracy")
_NAME = "$"
"""A text in the parameters that begins so stands for an entry of ``[names]``."""


@dataclass(frozen=True)
class Claim:
    """One published claim.

    Attributes
    ----------
    id : str
        ``<paper>-<item>-<name>``, item being its number in the list of claims.
    line : str
        What the paper says, word for word; `statement` in plain words.
    kind : {"exact", "audit", "measured", "not testable"}
        *exact*: settled by what ``attnbench verify`` records; *audit*: by the papers' printed
        numbers alone; *measured*: by a journal.
    setup : str
        How the published number was obtained, and how ours is.
    query : str
        Name of a query, with its `parameters`; empty if not testable, and then `why`.
    published, tolerance : mapping
        Where the published number is printed (`reports.claims.printed`), empty without one; what
        counts as reproduced (`reports.claims.verdict`).
    whose : {"paper", "elsewhere", "ours"}
        The paper states it; it states it of other data than it is tried on here; no paper states
        it, it is a check of ours. Only the first are counted.
    cheap_is_large : bool
        Of a ratio of costs: the larger, the less costs what the paper proposes, as where the model
        without it is on the first side.
    same_as : str
        Id of a claim that is judged by the very same measurement: it is counted there.
    lacks, about : {"hardware", "data", "not built", ""}, {"cost", "accuracy", ""}
        What it takes to test what is not testable, and what such a claim is about.
    counted_as : str
        The statement of that one.
    family : int
        Number of its ``[[family]]`` in the file: what the paper claims together.
    """

    id: str
    item: int
    paper: str
    place: str
    line: str
    statement: str
    kind: Kind
    setup: str = ""
    query: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict)
    published: Mapping[str, Any] = field(default_factory=dict)
    tolerance: Mapping[str, Any] = field(default_factory=dict)
    page: str = ""
    why: str = ""
    note: str = ""
    whose: str = "paper"
    cheap_is_large: bool = False
    same_as: str = ""
    lacks: str = ""
    about: str = ""
    counted_as: str = ""
    family: int = 0

    @property
    def sort(self) -> Sort:
        """With which claims it is counted."""
        if self.kind in ("exact", "audit"):
            return self.kind
        if self.kind == "not testable":
            return "cost" if self.about == "cost" else "accuracy"
        if self.query == "exact":
            # How far arithmetic is right is measured; no model is trained for it.
            return "exact"
        return "cost" if self.query in COSTS else "accuracy"

    @property
    def metric(self) -> str:
        """What the runs that it asks for are compared by."""
        return str(self.parameters.get("metric", "accuracy"))

    @property
    def counted(self) -> bool:
        """Whether it is a published claim that is not counted elsewhere."""
        return self.whose == "paper" and not self.same_as


def whose_text(claim: Claim) -> str:
    """Why a claim is not counted; empty for one that is."""
    if claim.same_as:
        return f"counted as “{claim.counted_as}”, whose measurement this is"
    return {
        "ours": "ours: no paper states it",
        "elsewhere": "not counted: the paper states it of other data",
    }.get(claim.whose, "")


_FIELDS = {f.name for f in fields(Claim)} - {"family", "counted_as"}
_NEEDED = ("id", "item", "paper", "place", "line", "statement", "kind")


def load_claims(path: Path = FILE) -> tuple[Claim, ...]:
    """All claims, in the order of the file.

    A ``[[family]]`` holds what its ``claims`` share, and what a claim says
    itself takes its place; of parameters only those of the same name.

    Raises
    ------
    UsageError
        If a record lacks a field, has an unknown one, or two have one id.
    """
    with path.open("rb") as file:
        data = tomllib.load(file)
    claims = tuple(_claims(data, path))
    seen: set[str] = set()
    for claim in claims:
        if claim.id in seen:
            raise UsageError(f"{path.name}: two claims are called {claim.id}; rename one")
        seen.add(claim.id)
    for claim in claims:
        if claim.same_as and claim.same_as not in seen:
            raise UsageError(f"{path.name}: {claim.id} is the same as {claim.same_as}: no claim")
    said = {claim.id: claim.statement for claim in claims}
    return tuple(replace(claim, counted_as=said.get(claim.same_as, "")) for claim in claims)


def _claims(data: Mapping[str, Any], path: Path) -> Iterator[Claim]:
    names = data.get("names", {})
    for number, family in enumerate(data["family"]):
        shared = {key: value for key, value in family.items() if key != "claims"}
        for own in family["claims"]:
            both = {**shared.get("parameters", {}), **own.get("parameters", {})}
            parameters = {key: _named(value, names, path) for key, value in both.items()}
            yield _claim({**shared, **own, "parameters": parameters}, path, number)


def _named(value: Any, names: Mapping[str, Any], path: Path) -> Any:
    if not (isinstance(value, str) and value.startswith(_NAME)):
        return value
    if value[1:] not in names:
        raise UsageError(f"{path.name}: unknown name {value}; [names] has {', '.join(names)}")
    return names[value[1:]]


def _claim(entry: Mapping[str, Any], path: Path, family: int) -> Claim:
    label = entry.get("id", entry.get("statement", "a claim"))
    if wrong := sorted(set(entry) - _FIELDS):
        raise UsageError(f"{path.name}: {label} has unknown {', '.join(wrong)}")
    if lacking := [name for name in _NEEDED if not entry.get(name)]:
        raise UsageError(f"{path.name}: {label} lacks {', '.join(lacking)}")
    if entry["kind"] not in KINDS:
        raise UsageError(f"{path.name}: {label} is {entry['kind']!r}; use {', '.join(KINDS)}")
    needed = "why" if entry["kind"] == "not testable" else "query"
    if not entry.get(needed):
        raise UsageError(f"{path.name}: {label} is {entry['kind']} and needs a {needed}")
    if entry.get("whose", "paper") not in WHOSE:
        raise UsageError(f"{path.name}: {label} is of {entry['whose']!r}; use {', '.join(WHOSE)}")
    for name, known in (("lacks", LACKS), ("about", ABOUT)):
        if (entry["kind"] == "not testable") != (entry.get(name) in known):
            raise UsageError(
                f"{path.name}: {label}: given {name} {entry.get(name)!r}; expected one of "
                f"{', '.join(known)} for what is not testable, and nothing for all else"
            )
    full = f"{entry['paper'].replace('_', '-')}-{entry['item']}-{entry['id']}"
    return Claim(**{**entry, "id": full, "family": family})
