"""Was the plan changed after results had been seen? From the order of a journal's records.

Inside one session file the order of the lines is the order of things. Between sessions there are
only stamps of wall clocks, which can be set back, and differ between machines: an order that rests
on such a clock is told as unsure. What no record shows can't be known: results that were looked at
outside of ``attnbench compare``, and records that were removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from harness.experiments.replicates import Pair, Record, is_ok, is_paired, pairs_of
from harness.experiments.unequal import as_tuned
from harness.records.schema import run_keys
from harness.train.recipe import identity


def designs(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Every declared design of two models: by itself, or as one of several declared together.

    Those of a family carry its session and time, and its key as ``family``.
    """
    for record in records:
        if record["kind"] == "design":
            yield dict(record)
        elif record["kind"] == "family":
            its = {name: record.get(name) for name in ("session", "at", "plan")}
            yield from ({**design, **its, "family": record["key"]} for design in record["designs"])


def file_of(record: Record) -> str | None:
    """SHA-256 of the design file that declares what a record asks for; None if none does."""
    plan = record.get("plan")
    return plan["sha256"] if plan else None


def design_file(record: Record) -> str:
    """Its name; empty if none declares what a record asks for."""
    return str((record.get("plan") or {}).get("file", ""))


class _Place(NamedTuple):
    session: str
    line: int
    stamp: str

    def before(self, other: _Place) -> bool:
        if self.session == other.session:
            return self.line < other.line
        return self.stamp < other.stamp


TRAINED = ("run", "withdrawn", "attention")
"""Kinds of records behind which a model was trained: a run, one whose result is no more told, or to
be looked at."""


def _work(run: Record) -> tuple[str, ...]:
    """What a run does, whatever machine and code did it, and whatever ended it.

    A longer patience goes on where a shorter one ended: what was seen of the one is seen of both.
    """
    recipe = as_tuned(run.get("recipe") or {})
    settings = sorted((name, repr(value)) for name, value in recipe.items())
    drawn = (run.get(name) for name in ("model", "task", "seed", "fold"))
    return tuple(map(str, (*drawn, settings)))


def _repeats(run: Record, other: Record) -> bool:
    """Whether a run of the same `_work` is of the same data as another, as far as both tell theirs.

    Older records name no data, a look at attention no vectors.
    """
    data = run.get("data"), other.get("data")
    words = other["kind"] == "attention" or run.get("vectors") == other.get("vectors")
    return words and (None in data or data[0] == data[1])


class Order:
    """Which of two records is the older one, and which runs do the same.

    Parameters
    ----------
    records : iterable of mapping
        A whole journal, as `harness.records.journal.read` gives it: those of one session in the
        order of its lines.
    elsewhere : iterable of mapping
        Those of other machines of which a model was `TRAINED`, where the journal's are told by
        machine.
    """

    def __init__(self, records: Iterable[Record], elsewhere: Iterable[Record] = ()) -> None:
        self._places: dict[str, _Place] = {}
        self._turned: set[str] = set()
        self._doing: dict[tuple[str, ...], dict[str, Record]] = {}
        latest: dict[str, str] = {}
        for line, record in enumerate(records):
            session, stamp = str(record.get("session")), str(record.get("at") or "")
            if stamp < latest.get(session, "") or not stamp:
                self._turned.add(session)
            # A clock that was set back has not undone what was written before.
            latest[session] = max(stamp, latest.get(session, ""))
            place = _Place(session, line, latest[session])
            inside = record["designs"] if record["kind"] == "family" else ()
            for one in (record, *inside):
                key = str(one.get("key"))
                # A design may be declared by itself and in a family: the older declaration counts.
                if key not in self._places or place.before(self._places[key]):
                    self._places[key] = place
            self._note(record)
        for run in elsewhere:  # of which only its machine's clock is asked
            place = _Place("elsewhere", 0, str(run.get("at") or ""))
            self._places.setdefault(str(run["key"]), place)
            self._note(run)

    def _note(self, record: Record) -> None:
        if record["kind"] in TRAINED and is_ok(record):
            self._doing.setdefault(_work(record), {})[str(record["key"])] = record

    def repeated(self, run: Record) -> list[Record]:
        """Others that did the same: on another machine, by other code, or to be looked at."""
        same = self._doing.get(_work(run), {}).values()
        return [r for r in same if r["key"] != run["key"] and _repeats(run, r)]

    def before(self, first: Record, second: Record) -> bool:
        """Whether the first record is older, as far as is known."""
        one, other = self._place(first), self._place(second)
        return one is not None and other is not None and one.before(other)

    def unsure(self, first: Record, second: Record) -> bool:
        """Whether the order of two records rests on a clock that went back, or on none."""
        one, other = self._place(first), self._place(second)
        if one is None or other is None:
            return False
        return one.session != other.session and bool({one.session, other.session} & self._turned)

    def oldest_first(self, records: Iterable[Record]) -> list[Record]:
        """Records in the order in which they were written, as far as is known."""

        def when(record: Record) -> tuple[str, int]:
            place = self._place(record)
            return (place.stamp, place.line) if place is not None else ("", -1)

        return sorted(records, key=when)

    def _place(self, record: Record) -> _Place | None:
        return self._places.get(str(record["key"]))


ASKING = ("design", "family", "sweep")
"""Kinds of records that ask for runs before they are done."""

Plans = Sequence[tuple[Record, set[str]]]
"""Records that ask for runs of a design, the oldest first, and the keys of these runs."""


def verdicts_on(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The verdicts that were shown, by key of the design or family that they are on."""
    found: dict[str, list[Record]] = {}
    for record in records:
        if record["kind"] == "verdict":
            for key in (record.get("design"), *(record.get("designs") or ())):
                found.setdefault(str(key), []).append(record)
    return found


def looked(design: Record, records: Sequence[Record], order: Order) -> list[str]:
    """What was changed after results of the same question had been seen; one line each.

    Parameters
    ----------
    design : mapping
        Its record.
    records : sequence of mapping
        The whole journal.
    """
    mine = run_keys(design)
    runs = [r for r in records if r["kind"] == "run" and r["key"] in mine]
    asking = order.oldest_first(r for r in records if r["kind"] in ASKING)
    plans = [(plan, found) for plan in asking if (found := run_keys(plan) & mine)]
    seen = verdicts_on(records)
    rivals = [
        (other, verdict)
        for other in designs(records)
        if _asks(other) == _asks(design) and other["key"] != design["key"]
        for verdict in seen.get(str(other["key"]), ())
    ]
    earlier = [other for other, verdict in rivals if order.before(verdict, design)]
    out = []
    seeds = sorted({tuple(r["seeds"]) for r in earlier if _goes_on(r, design)})
    if seeds:
        counts = ", ".join(str(len(s)) for s in seeds)
        out.append(
            f"seeds changed after looking: results were seen with {counts}, now there are "
            f"{len(design['seeds'])}; the p-value and the interval don't allow for that"
        )
    elif added := _added(design, runs, plans, order):
        out.append(added)
    if any(r["margin"] != design["margin"] for r in earlier):
        out.append("the margin was changed after results had been seen")
    if any(is_paired(r) != is_paired(design) for r in earlier):
        now, then = ("paired", "unpaired") if is_paired(design) else ("unpaired", "paired")
        out.append(
            f"{now} was declared after the {then} results had been seen; the p-value and the "
            "interval don't allow for that"
        )
    before = _trained_before(design, runs, plans, order)
    if before:
        out.append(
            f"{len(before)} runs were trained, and their test metrics shown, before this design "
            "was declared"
        )
    if known := known_before(design, pairs_of(design, runs), order):
        out.append(
            f"in {known} of {len(design['runs'])} pairs a run, or both, repeats what another "
            "machine, other code or a look had done before this design was declared: such a seed "
            "had been seen; seeds that were never trained would be new"
        )
    if unused := _unused(design, records, order):
        out.append(
            f"{len(unused)} more seeds of both models had been trained before this design was "
            f"declared, and are not in it: {', '.join(map(str, unused))}"
        )
    near = [*(verdict for _, verdict in rivals), *runs]
    if any(order.unsure(r, design) for r in near):
        out.append(
            "whether anything was seen before this design was declared can't be known: a clock "
            "went back, or records have no time"
        )
    return out


def declared_late(
    design: Record, pairs: Sequence[Pair], records: Sequence[Record], order: Order
) -> bool:
    """Whether runs of a design, or what they repeat, were there before it was declared.

    A design file that goes on on another machine is declared there once more; its first
    declaration counts.
    """
    runs = [run for pair in pairs for run in pair if run is not None]
    file, kinds = file_of(design), ("design", "family")
    declared = [r for r in records if r["kind"] in kinds and file_of(r) == file is not None]
    late = _trained_before(design, runs, [(r, run_keys(r)) for r in declared], order)
    return bool(late or known_before(design, pairs, order))


def known_before(design: Record, pairs: Sequence[Pair], order: Order) -> int:
    """In how many pairs a run repeats one of another key that was there before its design.

    Those of its own file are younger than what that declares, wherever they ran.
    """
    file = file_of(design)

    def known(run: Record | None) -> bool:
        return is_ok(run) and any(
            order.before(other, design) and (file is None or other.get("plan") != file)
            for other in order.repeated(run)
        )

    return sum(any(map(known, pair)) for pair in pairs)


def _asks(design: Record) -> str:
    """The question, whether its answer is to be of pairs or not."""
    return str(design.get("paired_question") or design["question"])


def _trained_before(
    design: Record, runs: Sequence[Record], plans: Plans, order: Order
) -> list[Record]:
    """Runs of a design that are older than it, and that nothing had asked for when they began."""
    return [
        r
        for r in runs
        if order.before(r, design)
        and not any(r["key"] in keys and order.before(plan, r) for plan, keys in plans)
    ]


def _added(design: Record, runs: Sequence[Record], plans: Plans, order: Order) -> str:
    """What was added to the plan that asked first for runs of a model, after one was finished."""
    for side, model in enumerate(design["models"]):
        mine = {pair[side] for pair in design["runs"]}
        asking = ((plan, found) for plan, keys in plans if (found := keys & mine))
        earliest, first = next(asking, (design, mine))
        # Another machine's declaration of this file asked for the same runs, by other keys.
        if first == mine or (file_of(earliest) == file_of(design) is not None):
            continue
        later = next((plan for plan, keys in plans if keys & mine - first), design)
        if any(r["key"] in first and order.before(r, later) for r in runs):
            return (
                f"{len(mine - first)} runs of {model} were added to a plan of {len(first)} when "
                "some of these were finished; the p-value and the interval don't allow for that"
            )
    return ""


def _goes_on(earlier: Record, design: Record) -> bool:
    """Whether a design has other seeds than an earlier one, and not all of them are new.

    What new seeds say owes nothing to what others had said; folds are the same for every seed.
    """
    first, second = set(earlier["seeds"]), set(design["seeds"])
    return first != second and bool(first & second or design.get("folds"))


def _unused(design: Record, records: Sequence[Record], order: Order) -> list[int]:
    """Seeds that both models have older runs of, under the design's recipes, and it leaves out."""
    sides: list[set[int]] = []
    runs = [r for r in records if r["kind"] in ("run", "withdrawn")]
    for side, (model, recipe) in enumerate(zip(design["models"], design["recipes"], strict=True)):
        keys = {pair[side] for pair in design["runs"]}
        mine = [r for r in runs if r["key"] in keys]
        # A run says its model as it was typed; other words or other data are another question.
        names = {model, *(r["model"] for r in mine)}
        around = {(r.get("vectors"), r.get("data")) for r in mine}
        sides.append(
            {
                r["seed"]
                for r in runs
                if r["model"] in names
                and r.get("task") == design["task"]
                and (not mine or (r.get("vectors"), r.get("data")) in around)
                and identity(r.get("recipe") or {}) == identity(recipe)
                and r["status"] == "ok"
                and order.before(r, design)
            }
        )
    return sorted(sides[0] & sides[1] - set(design["seeds"]))


def left_out(family: Record, records: Sequence[Record], order: Order) -> list[str]:
    """Comparisons seen together with these before, and not declared any more: Holm misses them."""
    mine = {design["question"] for design in family["designs"]}
    seen = verdicts_on(records)
    before: set[str] = set()
    for record in records:
        if record["kind"] != "family" or record["key"] == family["key"]:
            continue
        questions = {design["question"] for design in record["designs"]}
        shown = any(order.before(verdict, family) for verdict in seen.get(str(record["key"]), ()))
        if shown and questions & mine:
            before |= questions
    if not before - mine:
        return []
    return [
        f"{len(before - mine)} comparisons that were seen together with these are left out now; "
        f"Holm's p-values allow for {len(mine)}, not for {len(before | mine)}"
    ]


def judged_elsewhere(design: Record, records: Sequence[Record]) -> list[str]:
    """Whether a comparison declared by itself was seen as one of several, too."""
    seen = verdicts_on(records)
    sizes = [
        len(family["designs"])
        for family in records
        if family["kind"] == "family"
        and str(family["key"]) in seen
        and any(_asks(d) == _asks(design) for d in family["designs"])
    ]
    if not sizes:
        return []
    return [
        f"this is also one of {max(sizes)} comparisons that were judged together; the p-value here "
        "does not allow for the others"
    ]
