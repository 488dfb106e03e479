"""What ``claims.ipynb`` calls: every published claim with its verdict."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from harness.experiments.replicates import EXPLORATORY
from reports.claims.ledger import KINDS, ledger, made_on, score_by_machine, shown
from reports.claims.printed import load_all
from reports.claims.record import SORTS, whose_text
from reports.claims.verdict import ANSWERS, RATIOS, Verdict
from reports.contents import page_of
from reports.core.page import (
    Output,
    Shown,
    SourcePage,
    heading,
    remark,
    says,
    steps,
    together,
)
from reports.core.source import Source
from reports.core.tables import Cell, under
from reports.pages.audit import figures

SHOWN_KEYS = 3
"""Keys of records that a row names; all of them stand in the CSV file."""
WORDS = (0, 1, 2, 5, 6, 7, 8)


class Ledger(SourcePage):
    """The ledger of one source; every method shows one piece of the page."""

    kinds = KINDS

    def __init__(self, source: Source, place: Output) -> None:
        super().__init__(source, place)
        self.tables = load_all()
        self.titles = {d.key: d.title for d in source.devices}

    @cached_property
    def verdicts(self) -> list[Verdict]:
        """All of them, in the order of the claims."""
        return ledger(self.source.devices, self.tables, page_of=page_of(self.source))

    @cached_property
    def listed(self) -> list[Verdict]:
        """Those that stand in the tables."""
        return shown(self.verdicts)

    def about(self) -> Shown:
        """Which records these are."""
        devices = [
            " ".join(filter(None, [f"Device: {d.title}.", d.of_others("run")]))
            for d in self.source.devices
        ]
        return says([self.source.says, *devices])

    def score(self) -> Shown:
        """The score, of every device; and what failed that must not."""
        failed = [
            f"{v.claim.statement} This exact claim fails: {v.reason}"
            for v in self.verdicts
            if v.failed_exactly
        ]
        return says([*score_by_machine(self.verdicts, self.source), *failed], main=True)

    def ratios(self) -> Shown:
        """Measured ratios beside published ones, device by device."""
        pieces: list[Shown] = []
        for device in self.source.devices:
            mine = [
                v
                for v in self.verdicts
                if v.device == device.key
                and v.claim.query in RATIOS
                and math.isfinite(v.value)
                and math.isfinite(v.published_value)
            ]
            if mine:
                right = sum(v.verdict == "reproduced" for v in mine)
                figure = figures.intervals(
                    mine,
                    "Cost ratios: found and published",
                    f"{device.title}; diamond: published",
                    "first over second",
                    ratios=True,
                )
                caption = (
                    f"{right} of {len(mine)} published cost ratios are reproduced on "
                    f"{device.title}: the interval, noise floor included, lies within the "
                    "tolerance."
                )
                name = "ratios" if len(self.titles) == 1 else f"ratios-{device.key[:6]}"
                place = replace(self.place, footer=device.footer("time", "memory", "run"))
                pieces.append(place.figure(name, figure, caption))
        if not pieces:
            return remark(
                "No published cost ratio was measured: attnbench bench --profile paper does that."
            )
        return together(*pieces)

    def papers(self) -> Shown:
        """A table of claims for every paper."""
        pieces = []
        for paper, table in self.tables.items():
            head = table["paper"]
            title = f"{head['short']}: {head['title']} ({head['authors']}, {head['venue']})"
            pieces += [heading(title), self.of_paper(paper)]
        return together(*pieces)

    def of_paper(self, paper: str) -> Shown:
        """The table of one paper's claims."""
        return self._table(paper, [v for v in self.listed if v.claim.paper == paper])

    def arithmetic(self) -> Shown:
        """The arithmetic of every audit, step by step."""
        audits = [v for v in self.verdicts if v.claim.kind == "audit"]
        return together(
            *(
                together(
                    heading(v.claim.statement, 4, v.id),
                    remark(f"{v.claim.place}: “{v.claim.line}” {v.claim.setup}".rstrip()),
                    steps(v.steps),
                    says([_conclusion(v)]),
                )
                for v in audits
            )
        )

    def counts(self) -> Shown:
        """Verdicts by paper and kind, and everything as one CSV file.

        A claim counts once, as its row in the tables says; what counts nowhere, for none.
        """
        rows = []
        decided = [v for v, *_ in self._by_claim(self.listed) if v.counted]
        for (paper, table), sort in itertools.product(self.tables.items(), SORTS):
            mine = [v for v in decided if v.claim.paper == paper and v.claim.sort == sort]
            counts = [_counted([v for v in mine if v.verdict == answer]) for answer in ANSWERS]
            if mine:
                rows.append([table["paper"]["short"], sort, *counts])
        numbers = (_flat(v, self.titles) for v in self.verdicts)
        return self.place.table("all", numbers, under(["paper", "kind", *ANSWERS], rows), (0, 1))

    def _by_claim(self, verdicts: Sequence[Verdict]) -> list[list[Verdict]]:
        """Those of each claim, of several machines first the one that fills its row."""
        each: dict[str, list[Verdict]] = {}
        for v in verdicts:
            each.setdefault(v.id, []).append(v)
        return [sorted(some, key=_deciding) for some in each.values()]

    @cached_property
    def _records(self) -> str:
        """All records behind any claim, one file beside the page."""
        wanted = {key for v in self.verdicts for key in v.keys}
        found = {
            str(r["key"]): r
            for d in self.source.devices
            for r in d.records
            if r.get("key") in wanted
        }
        return self.place.lines("records", (json.dumps(r) for r in found.values()))

    def _table(self, name: str, verdicts: Sequence[Verdict]) -> Shown:
        """A row for each claim, and beneath what several share of how they were measured."""
        each = self._by_claim(verdicts)
        setups = Counter(_setup(v) for v, *_ in each)
        shared = [setup for setup, claims in setups.items() if setup and claims > 1]
        shown = [self._row(some, shared) for some in each]
        numbers = (_flat(v, self.titles) for v in verdicts)
        told = [f"Setup {at}. {setup}" for at, setup in enumerate(shared, 1)]
        return together(self.place.table(name, numbers, shown, WORDS), says(told))

    def _row(self, verdicts: Sequence[Verdict], shared: Sequence[str]) -> dict[str, str]:
        """What was found of one claim; of several machines the first is the row's own."""
        v, *others = verdicts
        where = made_on(v, self.source) if len(self.titles) > 1 else ""
        why = v.reason + f" ({where})" * bool(where) + (f" {v.claim.note}" if v.claim.note else "")
        elsewhere = [
            f"{made_on(one, self.source)}: {', '.join(filter(None, (one.said, one.measured)))}. "
            f"{one.reason}"
            for one in others
        ]
        # What was asked, and of what: a verdict means nothing without.
        setup = _setup(v)
        asked = [
            f"Setup {shared.index(setup) + 1}." if setup in shared else setup,
            f"Wanted: {v.wanted}." if v.wanted else "",
        ]
        notes = [*elsewhere, " ".join(filter(None, asked))]
        verdict = f"{v.verdict} ({', '.join(v.shades)})" if v.shades else v.verdict
        unlike = {one.said for one in others if one.settled and one.verdict != v.verdict}
        return {
            "verdict": Cell.of(
                f"{v.verdict}: {v.said}" if v.wants_records else verdict,
                strong=True,
                notes=tuple(f"elsewhere {said}" for said in sorted(unlike)),
            ),
            "kind": v.claim.sort,
            "claim": Cell.of(f"{v.claim.statement} ({v.claim.place})", hint=v.claim.line),
            "published": v.published,
            "found": v.measured,
            "direction": v.direction,
            "hardware": v.hardware,
            "whose": whose_text(v.claim) or "the paper's",
            "why": Cell.of(why, notes=tuple(filter(None, notes)), links=self._links(verdicts)),
        }

    def _links(self, verdicts: Sequence[Verdict]) -> tuple[tuple[str, str], ...]:
        """Where a claim is told at length, and the records of all machines behind it."""
        v, links = verdicts[0], []
        if v.steps:
            links.append(("arithmetic", f"#{v.id}"))
        elif v.page and v.verdict != "not testable here":
            links.append(("page", v.page))
        if keys := [key for one in verdicts for key in one.keys]:
            if self._records:
                links.append(("records", self._records))
            named = " ".join(keys[:SHOWN_KEYS])
            more = f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else ""
            links.append((f"records {named}{more}", ""))
        return tuple(links)


def _counted(verdicts: Sequence[Verdict]) -> str:
    """``14 (9 less favourable, 5 opposite)``: how many, and of how many more is to be said."""
    more = Counter(v.said.removeprefix(v.verdict).strip(" ()") for v in verdicts)
    told = ", ".join(f"{count} {said}" for said, count in sorted(more.items()) if said)
    return f"{len(verdicts)}{f' ({told})' * bool(told)}" if verdicts else ""


def _setup(v: Verdict) -> str:
    """How its claim was measured; an audit's stands beside its arithmetic."""
    return "" if v.steps else v.claim.setup


def _deciding(v: Verdict) -> tuple[bool, bool, int, int]:
    """Of one claim on several machines first the one that counts, has found something, of what is
    nearest to the published form, with most records.
    """
    return bool(v.told_on), math.isnan(v.value), -v.precedence.near, -len(v.keys)


def _conclusion(v: Verdict) -> str:
    wanted = f" Wanted: {v.wanted}." if v.wanted else ""
    note = f" {v.claim.note}" if v.claim.note else ""
    reason = v.reason.removeprefix(f"{EXPLORATORY}: ") if v.exploratory else v.reason
    return f"{v.said[0].upper()}{v.said[1:]}: {reason}{wanted}{note}"


def _flat(v: Verdict, titles: dict[str, str]) -> dict[str, object]:
    flat = v.as_json()
    flat["device"] = titles.get(v.device, "")
    flat["records"] = " ".join(v.keys)
    flat["arithmetic"] = "; ".join(v.steps)
    return flat
