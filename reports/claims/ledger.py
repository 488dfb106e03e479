"""The ledger: every claim with its verdict, on every device that has records; and its score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from harness.case import parse
from harness.stats import ALPHA, holm
from reports.claims import arithmetic, averages, costs, models, retests
from reports.claims.device import DeviceFrames
from reports.claims.printed import (
    Asked,
    PrintedNumber,
    Tables,
    load_all,
    published,
    size_text,
)
from reports.claims.record import SORTS, Claim, Sort, load_claims
from reports.claims.verdict import (
    ANSWERS,
    AS_PUBLISHED,
    NOT_MEASURED,
    RATIOS,
    Answer,
    Evidence,
    Region,
    Verdict,
    region,
)
from reports.core.source import SHOWN, DeviceRecords, Source, find

AUDITS: Mapping[str, Callable[[Asked], Evidence]] = {
    "ratio": arithmetic.ratio,
    "difference": arithmetic.difference,
    "share": arithmetic.share,
    "average": arithmetic.average,
    "carried_over": arithmetic.carried_over,
    "shortest_path": arithmetic.shortest_path,
    "operations": arithmetic.operations,
    "layers_per_head": arithmetic.layers_per_head,
    "like_for_like": arithmetic.like_for_like,
    "runs_agree": arithmetic.runs_agree,
    "wins_everywhere": arithmetic.wins_everywhere,
    "not_printed": arithmetic.not_printed,
    "welch": retests.welch_test,
    "proportions": retests.proportions,
    "implied": retests.implied_by_p,
    "paired": retests.paired,
    "correlations": retests.correlations,
    "deviation": retests.deviation,
}
"""Queries of audit claims, over the transcribed tables."""

QUERIES: Mapping[str, Callable[[Claim, DeviceFrames], Evidence]] = {
    query.__name__: query
    for query in (
        costs.time_ratio,
        costs.memory_ratio,
        costs.slope,
        models.accuracy_difference,
        averages.difference_over_tasks,
        models.epoch_ratio,
        models.selected_shares,
        models.content_over_stop_words,
        models.share_of_stop_words,
        models.exact,
    )
}
"""Queries of exact and measured claims, over the records of one device."""

KINDS = (*SHOWN, "exact")
"""Records of which a device must have some."""
NO_DEVICE = DeviceRecords("", {"device": "cpu"}, (), ())
"""Without records: by it each claim says what would make some."""
SAME_CLASS, OTHER_CLASS = "same class", "another class"
PAGES = {"exact": "claims", "audit": "audit", "measured": "scaling"}
"""Page of a claim that names none, by its kind."""


def devices_of(journal: str) -> Source:
    """The journal's devices; those of the published records if it holds none."""
    return find(journal, kinds=KINDS)


def file_of(page: str, device: str) -> str:
    """File of a page where there is one device."""
    return f"{page}.html"


def ledger(
    devices: Sequence[DeviceRecords],
    tables: Tables | None = None,
    claims: Sequence[Claim] | None = None,
    page_of: Callable[[str, str], str] = file_of,
) -> list[Verdict]:
    """The verdicts, in the order of the claims; of one claim in the order of the devices.

    Parameters
    ----------
    devices : sequence of DeviceRecords
        Each has a verdict of its own, they are never mixed; without any nothing is measured.
    tables : mapping, optional
        Transcribed tables by paper; all of ours without it.
    claims : sequence of Claim, optional
        All of ours without it.
    page_of : callable
        File of the report for the name of a page and the key of a device (empty for none).
    """
    known = load_all() if tables is None else tables
    every = load_claims() if claims is None else claims
    asked = [claim for claim in every if claim.kind not in ("audit", "not testable")]
    of_device = {device.key: _hardware(device.records) for device in devices}
    evidence = {}
    for device in devices or [NO_DEVICE]:
        frames = DeviceFrames(device, devices)
        measured = corrected(asked, [QUERIES[c.query](c, frames) for c in asked])
        evidence[device.key] = dict(zip((c.id for c in asked), measured, strict=True))
    found: list[Verdict] = []
    for claim in every:
        if claim.kind == "not testable":
            by_device = {"": Evidence(reason=claim.why, answer="not testable here")}
        elif claim.kind == "audit":
            by_device = {"": AUDITS[claim.query](Asked(claim, known))}
        else:
            by_device = {key: one[claim.id] for key, one in evidence.items()}
        told_on = _told_on(by_device) if claim.sort == "accuracy" else {}
        found += [
            replace(
                _verdict(claim, one, known, key, page_of, of_device.get(key, "")),
                told_on=told_on.get(key, ""),
            )
            for key, one in by_device.items()
        ]
    return found


def _told_on(by_device: Mapping[str, Evidence]) -> dict[str, str]:
    """By device where what it has measured is decided, if elsewhere: a model learns alike anywhere.

    That of the highest precedence decides, then that of the most records.
    """
    measured = {key: one for key, one in by_device.items() if math.isfinite(one.value)}
    if len(measured) < 2:
        return {}
    best = max(measured, key=lambda key: (measured[key].precedence, len(measured[key].keys)))
    return {key: best for key in measured if key != best}


def corrected(claims: Sequence[Claim], evidence: Sequence[Evidence]) -> list[Evidence]:
    """The evidence of one device; what is significant only by itself becomes undecided.

    Claims that a paper makes together are tested together, by Holm: those of one ``[[family]]``
    whose evidence has a p-value, such as the corpora of a table or the rows of an ablation. The
    intervals stay those of each claim by itself.

    Parameters
    ----------
    claims, evidence : sequence
        Side by side, in any order.
    """
    found = list(evidence)
    members: dict[int, list[int]] = {}
    for i, (claim, one) in enumerate(zip(claims, evidence, strict=True)):
        if not math.isnan(one.p):
            members.setdefault(claim.family, []).append(i)
    for places in members.values():
        if len(places) < 2:
            continue
        for i, p in zip(places, holm([evidence[i].p for i in places]), strict=True):
            lost = evidence[i].p < ALPHA <= p
            said = (
                f"Holm over the {len(places)} claims made together that are measured: p = {p:.2g}"
            )
            found[i] = replace(
                evidence[i],
                reason=f"{evidence[i].reason} {said}{', no longer significant' if lost else ''}.",
                answer="undecided" if lost else evidence[i].answer,
            )
    return found


def _verdict(
    claim: Claim,
    evidence: Evidence,
    tables: Tables,
    device: str,
    page_of: Callable[[str, str], str],
    hardware: str,
) -> Verdict:
    printed = published(claim, tables)
    wanted = region(claim.tolerance, printed) if claim.tolerance else None
    measured = claim.sort in ("cost", "accuracy") and math.isfinite(evidence.value)
    answer = evidence.answer
    if answer is None:
        answer, why = _judged(claim, evidence, printed)
        evidence = replace(evidence, reason=f"{evidence.reason}{why}")
    page = claim.page or PAGES.get(claim.kind, "")
    # What no paper states has a number all the same where a law gives one, which `wanted` tells.
    stated = printed if claim.whose != "ours" else PrintedNumber()
    return Verdict(
        **vars(evidence),
        claim=claim,
        verdict=answer,
        published=stated.text,
        published_value=stated.value,
        wanted="" if wanted is None else wanted.says,
        device=device,
        page=page_of(page, device) if page else "",
        direction=_direction(claim, evidence, wanted, printed, answer) if measured else "",
        hardware=hardware if measured and claim.sort == "cost" else "",
    )


def _judged(claim: Claim, evidence: Evidence, printed: PrintedNumber) -> tuple[Answer, str]:
    """What the regions around a printed number say, wherever it lies by what is printed.

    Reproduced is what lies in all of them, not reproduced what lies in none.
    """
    if not claim.tolerance:
        return "undecided", ""
    ends = [region(claim.tolerance, replace(printed, value=v)) for v in (printed.low, printed.high)]
    least, most = [one.least for one in ends], [one.most for one in ends]
    every = replace(ends[0], least=max(least), most=min(most))
    some = replace(ends[0], least=min(least), most=max(most))
    low, high = evidence.low, evidence.high
    if every.judge(low, high) == "reproduced":
        return "reproduced", ""
    if some.judge(low, high) == "not reproduced":
        return "not reproduced", ""
    if region(claim.tolerance, printed).judge(low, high) == "undecided":
        return "undecided", ""
    span = f"{size_text(printed.low)} to {size_text(printed.high)}"
    return "undecided", f" By what is printed the number to compare with may be {span}."


def _direction(
    claim: Claim,
    evidence: Evidence,
    wanted: Region | None,
    printed: PrintedNumber,
    answer: Answer,
) -> str:
    """Whom a result favours that is not the published one; see `Verdict.direction`.

    What is reproduced is as published where its interval reaches what is printed, or nothing is;
    and of no direction against a weak baseline, which would be where it comes from.
    """
    holds = answer == "reproduced"
    none = holds and (claim.whose == "ours" or evidence.weak)
    if answer not in ("reproduced", "not reproduced") or none:
        return ""
    beside = evidence.low > printed.high or evidence.high < printed.low
    beside = beside and size_text(evidence.value) != size_text(printed.value)
    # Of a slope a law is published, and no number.
    if holds and (claim.query == "slope" or not beside):
        return AS_PUBLISHED
    if wanted is None:
        return ""
    middle = 1.0 if claim.query in RATIOS else 0.0
    # What is claimed to be positive, or was printed on one side of equality, or claimed to lie
    # there without a number, lies on the other.
    stated = (wanted.least >= middle) - (wanted.most <= middle)
    claimed = 1 if wanted.strict else printed.side(middle) or stated
    beyond = [end - middle for end in (evidence.low, evidence.high)]
    if claimed and claim.query != "slope" and max(claimed * b for b in beyond) < 0:
        return "opposite"
    reference = printed.value
    if math.isnan(reference):
        reference = evidence.value - wanted.side(evidence.value)
    above = evidence.value > reference
    dear = claim.sort == "cost" and not claim.cheap_is_large
    return "less favourable" if above == dear else "more favourable"


def _hardware(records: Sequence[Mapping[str, Any]]) -> str:
    """Of the times and memories of one device, empty without: all published ones are of GPUs."""
    kinds = {parse(r["case"]).problem.device for r in records if r["kind"] in ("time", "memory")}
    if not kinds:
        return ""
    return SAME_CLASS if kinds == {"cuda"} else OTHER_CLASS


def _in_words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {said}" for said, count in counts.items())


def _place(said: str) -> tuple[int, str]:
    """Where a verdict stands in a score: in the order of the answers, and those not testable."""
    answer = said.partition(" (")[0]
    return [*ANSWERS, answer].index(answer), said


def score(verdicts: Sequence[Verdict], device: str = "") -> dict[Sort, Counter[str]]:
    """Count the verdicts of one device, with those that need none, sort by sort: no sum is formed.

    Checks of ours, claims that are tried on other data than the paper's, those that another
    claim's measurement decides too, and accuracies that another device decides are not counted.

    Parameters
    ----------
    device : str
        Its key; empty where no device has records.
    """
    mine = [v for v in verdicts if v.device in ("", device)]
    counts = {
        sort: Counter(
            sorted((v.said for v in mine if v.claim.sort == sort and v.counted), key=_place)
        )
        for sort in SORTS
    }
    return {sort: found for sort, found in counts.items() if found}


def score_lines(verdicts: Sequence[Verdict], titles: Mapping[str, str]) -> list[str]:
    """The score in words, of every device; it is named where there are several.

    What a device has not measured is counted where none has.
    """
    if len(titles) < 2:
        alone = score(verdicts, next(iter(titles), ""))
        return [f"{sort}: {_in_words(counts)}" for sort, counts in alone.items()]
    exact = [v for v in shown(verdicts) if v.claim.sort == "exact"]
    if len({v.id for v in exact}) == len(exact):
        # Mathematics is alike on all of them, by whichever tried it; else each tells what it found.
        others = [v for v in verdicts if v.claim.sort != "exact"]
        verdicts = [*others, *(replace(v, device="") for v in exact)]
    untestable = [v for v in verdicts if v.claim.lacks and v.counted]
    verdicts = [v for v in verdicts if not v.claim.lacks]
    scores = {title: score(verdicts, key) for key, title in titles.items()}
    lines = []
    for sort in SORTS:
        by_title = {title: counts[sort] for title, counts in scores.items() if sort in counts}
        first: Mapping[str, int] = next(iter(by_title.values()), {})
        none = Counter(v.said for v in untestable if v.claim.sort == sort)
        # What needs no records is alike on all of them, and said once.
        if len(by_title) == len(titles) and all(one == first for one in by_title.values()):
            lines.append(f"{sort}: {_in_words(first)}")
        else:
            for title, counts in by_title.items():
                if told := {said: n for said, n in counts.items() if said != NOT_MEASURED}:
                    lines.append(f"{sort}, on {title}: {_in_words(told)}")
            counted = [v for v in verdicts if v.claim.sort == sort and v.claim.counted]
            measured = {v.id for v in counted if v.said != NOT_MEASURED}
            none = Counter({NOT_MEASURED: len({v.id for v in counted} - measured)}) + none
        if none:
            lines.append(f"{sort}, on none of these: {_in_words(none)}")
    return lines


def made_on(v: Verdict, source: Source) -> str:
    """The machine whose records are behind a verdict; of runs of several, each."""
    device, on = _runs_on(v, source)
    if device is None or set(on) <= {device.title}:
        return device.title if device is not None else ""
    return "; ".join(f"{title}, {count} runs" for title, count in on.most_common())


def score_by_machine(verdicts: Sequence[Verdict], source: Source) -> list[str]:
    """`score_lines`, each verdict on the machine that made most of its runs."""
    titles = {d.title: d.title for d in source.devices}
    placed = []
    for v in verdicts:
        device, on = _runs_on(v, source)
        most = [title for title, _ in on.most_common(1)] or [device.title if device else ""]
        placed.append(replace(v, device=most[0]))
        titles |= {title: title for title in most if title}
    return score_lines(placed, titles)


def _runs_on(v: Verdict, source: Source) -> tuple[DeviceRecords | None, Counter[str]]:
    """Its device, and how many of the runs behind it each machine made; of other records none."""
    device = next((d for d in source.devices if d.key == v.device), None)
    keys = set(v.keys)
    runs = [r for r in device.records if r["kind"] == "run" and r["key"] in keys] if device else []
    return device, device.machines_of(runs) if device else Counter()


def shown(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Verdicts worth a line: a device that lacks the records is silent where another has them.

    A claim that no device has measured keeps one line, of the first device; so does an exact one
    of which all say the same.
    """
    settled = {v.id for v in verdicts if not v.wants_records}
    found: dict[tuple[str, str], Verdict] = {}
    for v in verdicts:
        if not v.wants_records:
            found.setdefault((v.id, v.said if v.claim.sort == "exact" else v.device), v)
        elif v.id not in settled:
            found.setdefault((v.id, ""), v)
    return list(found.values())
