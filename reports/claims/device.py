"""The records of one device as claims ask for them, by the names that claims use."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import pandas as pd

from harness.experiments.conclusion import Conclusion
from harness.records.ratios import PROBLEM, WITHHELD, block_ratios, verified_cases
from harness.stats import noise_floor, ratio_interval
from reports.claims.record import Claim
from reports.claims.verdict import NOT_MEASURED, Evidence
from reports.core.costs import Costs
from reports.core.recipes import whole_words
from reports.core.source import TIMED, DeviceRecords

Record = Mapping[str, Any]


@dataclass(frozen=True)
class CaseName:
    """``mechanism[.implementation][[option=value,...]][@heads]``; without implementation or heads
    any.

    Options are exactly these; values as lower-case texts.
    """

    mechanism: str
    implementation: str
    options: frozenset[tuple[str, str]]
    heads: int | None

    def fits(self, text: str, heads: int | None = None) -> bool:
        """Whether a recorded name (``mtsa.algorithm1[a=1]``) is one of these."""
        other = parse(text)
        return (
            self.mechanism == other.mechanism
            and self.implementation in ("", other.implementation)
            and self.options == other.options
            and (self.heads is None or heads is None or self.heads == heads)
        )


def parse(text: str) -> CaseName:
    """Read a name; one that a record holds is never refused."""
    rest, _, heads = text.partition("@")
    plain, _, options = rest.partition("[")
    mechanism, _, implementation = plain.partition(".")
    pairs = (part.partition("=") for part in options.rstrip("]").split(",") if part)
    return CaseName(
        mechanism,
        implementation,
        frozenset((name.strip(), value.strip().lower()) for name, _, value in pairs),
        int(heads) if heads.isdigit() else None,
    )


def alternatives(given: str | Sequence[str]) -> list[str]:
    """One name or several, the preferred one first."""
    return [given] if isinstance(given, str) else list(given)


def same_form(first: str, second: str, asked: str | Sequence[str]) -> bool:
    """Whether the second may stand beside the first, by what the first's side asks for.

    Not where it is another form of the mechanism: an ablation of the paper's form is compared with
    that form, not with the released one.
    """
    other = parse(second).mechanism
    forms = {parse(name).mechanism for name in alternatives(asked)}
    return other not in forms or other == parse(first).mechanism


def first_fitting(given: str | Sequence[str], recorded: Iterable[str]) -> list[str]:
    """Recorded names that a claim's names stand for, the preferred ones first."""
    known = list(dict.fromkeys(recorded))
    return list(
        dict.fromkeys(
            name for text in alternatives(given) for name in known if parse(text).fits(name)
        )
    )


def place_of(given: str | Sequence[str], name: str, heads: int | None = None) -> int | None:
    """Which of a claim's names a recorded one is, the preferred is 0; None for none of them."""
    names = enumerate(map(parse, alternatives(given)))
    return next((place for place, one in names if one.fits(name, heads)), None)


def fitting_pairs(claim: Claim, recorded: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of recorded names that the claim's sides stand for, the preferred ones first."""
    p, known = claim.parameters, list(recorded)
    for first, second in product(*(first_fitting(p[side], known) for side in ("first", "second"))):
        if first != second and same_form(first, second, p["first"]):
            yield first, second


def not_measured(what: str, command: str) -> Evidence:
    """A finding that a command could change."""
    reason = f"{NOT_MEASURED}: {what}; {command} makes such records."
    return Evidence(reason=reason, answer="not testable here")


class DeviceFrames(Costs):
    """Records of one device as queries ask for them.

    `every` are all devices, itself among them; without them it is alone.
    """

    def __init__(self, device: DeviceRecords, every: Sequence[DeviceRecords] = ()) -> None:
        super().__init__(device)
        self.records, self.every = device.records, every or [device]

    @cached_property
    def verified(self) -> frozenset[str]:
        """`verified_cases` of them."""
        return verified_cases(self.records)

    @cached_property
    def withheld(self) -> dict[str, str]:
        """Cases whose times can't be right, or are of several kernels, and why: bench's rules."""
        return {row.case: row.detail for row in self.rows if row.verdict == WITHHELD}

    @cached_property
    def runs(self) -> list[Record]:
        """Finished training runs; of cut word vectors none (`whole_words`)."""
        finished = (r for r in self.records if r["kind"] == "run" and r["status"] == "ok")
        return [r for r in finished if whole_words(r)]

    @property
    def conclusions(self) -> list[Conclusion]:
        """What was declared on it."""
        return self.device.conclusions

    @property
    def everywhere(self) -> list[Conclusion]:
        """What was declared on any device."""
        return [one for device in self.every for one in device.conclusions]

    @cached_property
    def exact(self) -> dict[str, Record]:
        """The newest record of every exact check, by its name."""
        found = [r for r in self.records if r["kind"] == "exact"]
        return {str(r["check"]): r for r in sorted(found, key=lambda r: str(r.get("at")))}

    def keys(self, *cases: str, kinds: Sequence[str] = TIMED) -> tuple[str, ...]:
        """Keys of the records of some cases."""
        return tuple(
            str(r["key"]) for r in self.records if r["kind"] in kinds and r["case"] in cases
        )

    @cached_property
    def by_case(self) -> dict[str, pd.DataFrame]:
        """Rows of the time frame by case; the usual setting, without controls."""
        frame = self.times
        usual = frame[~frame["control"].astype(bool) & (frame["settings"] == self.profile.setting)]
        return {str(case): rows for case, rows in usual.groupby("case", sort=False)}

    @cached_property
    def _columns(self) -> dict[str, dict[Hashable, Any]]:
        return {case: rows.iloc[0].to_dict() for case, rows in self.by_case.items()}

    def cases(self, names: str | Sequence[str], where: Mapping[str, Any]) -> list[str]:
        """Cases whose names fit and whose columns have these values, the preferred name first."""
        known = self._columns
        alike = {c: r for c, r in known.items() if all(r[k] == v for k, v in where.items())}
        found = [
            case
            for text in alternatives(names)
            for case, row in alike.items()
            if parse(text).fits(str(row["name"]), int(row["heads"]))
        ]
        return list(dict.fromkeys(found))

    def floor(self, case: pd.DataFrame) -> float:
        """Noise floor of a case's problem, from its A/A control; infinite without one."""
        one = case.iloc[0]
        same = self.times
        for column in PROBLEM:
            same = same[same[column] == one[column]]
        good = same[same["status"] == "ok"]
        control = good[good["control"].astype(bool)]
        for case_id, twin in control.groupby("case", sort=False):
            base = good[good["case"] == str(case_id).removesuffix("+control")]
            if ratios := block_ratios(twin, base):
                return noise_floor(ratio_interval(ratios))
        return math.inf
