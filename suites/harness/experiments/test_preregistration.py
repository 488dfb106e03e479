"""Was a plan changed after its results had been seen: told from the order of the records."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.experiments.conclusion import Comparison, conclude, conclusions
from suites.support.comparisons import (
    HIGH,
    LOW,
    RECIPE,
    A,
    B,
    design,
    family,
    judged,
    runs,
    warned,
)


def session_of(name: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records of one session file, in the order of its lines."""
    return [{**record, "session": name} for record in records]


def pairs(**more: Any) -> list[dict]:
    return [*runs(A, HIGH, **more), *runs(B, LOW, **more)]


def shown(*sessions: list[dict[str, Any]], key: str = "d") -> Comparison:
    """The comparison of a declared design, from a journal of several sessions."""
    records = [record for session in sessions for record in session]
    return judged(next(r for r in records if r["key"] == key), records)


def declared(seeds: int, at: str, **more: Any) -> dict[str, Any]:
    return design(seeds, at=at, **{"key": "d", "question": "q", **more})


NOW = "2026-01-10T00:00"
SEEDS_CHANGED = "seeds changed after looking: results were seen with 3, now there are 5"


def seen(at: str, looked: str, **more: Any) -> tuple[list[dict], list[dict]]:
    """A design of the same question in one session, and in another that its results were seen."""
    verdict = {"kind": "verdict", "key": f"v{looked}", "design": "old", "at": looked}
    return (
        session_of(f"d{at}", declared(3, at, key="old", **more)),
        session_of(f"v{looked}", verdict),
    )


def test_a_question_that_is_younger_than_its_runs_is_exploratory() -> None:
    now = session_of("now", declared(5, NOW), *pairs(at="2026-01-10T01:00"))
    assert not shown(now).exploratory
    assert shown(now).sentence.startswith(f"{A} is better than {B}")
    before = session_of("before", *pairs(at="2026-01-09T01:00"))
    late = shown(before, session_of("now", declared(5, NOW)))
    assert late.exploratory
    assert late.sentence.startswith(f"exploratory: {A} is better than {B}")
    # In a family its first line says so.
    asked = {**family([A, "disa.plain"], ["trec"], 5), "at": NOW}
    records = [*before, *session_of("now", asked, *runs("disa.plain", LOW, at=NOW))]
    found = conclude(records[len(before)], records)
    assert [c.exploratory for c in found.comparisons] == [True, True]  # the baseline's are older
    first = found.sentences[0].removeprefix(f"{found.title}: ")
    assert first.startswith("exploratory, declared after runs of it: 1 better")


def test_looking_before_declaring_is_told() -> None:
    now = session_of("now", declared(5, NOW), *pairs(at="2026-01-10T01:00"))
    before = seen("2026-01-04T00:00", "2026-01-05T00:00")
    assert warned(SEEDS_CHANGED, shown(*before, now))
    assert shown(before[0], now).warnings == (), "nobody has looked"
    assert shown(now, *seen("2026-01-11T00:00", "2026-01-12T00:00")).warnings == ()
    other = seen("2026-01-04T00:00", "2026-01-05T00:00", question="another")
    assert shown(*other, now).warnings == ()
    later = seen("2026-01-04T00:00", "2026-01-20T00:00")[1]
    assert warned(SEEDS_CHANGED, shown(*before, now, later)), "a second look changes nothing"
    margin = session_of("now", declared(5, NOW, margin=0.01), *pairs(at="2026-01-10T01:00"))
    assert warned("margin was changed", shown(*before, margin))


def test_lines_of_a_session_are_in_order_whatever_the_clock_says() -> None:
    runs = pairs(at="2026-01-10T01:00")
    one = session_of("one", declared(5, NOW), *runs)
    assert shown(one).warnings == ()
    assert warned("10 runs were trained", shown(session_of("one", *runs, declared(5, NOW))))
    # The clock went back by nine days while they were trained: the lines say what happened.
    back = session_of("one", declared(5, NOW), *pairs(at="2026-01-01T00:00"))
    assert shown(back).warnings == ()


def test_an_order_that_rests_on_a_clock_that_went_back_is_unsure() -> None:
    unsure = "can't be known: a clock went back"
    now = session_of("now", declared(5, NOW), *pairs(at="2026-01-10T01:00"))
    old, looked = seen("2026-01-04T00:00", "2026-01-05T00:00")
    assert not warned(unsure, shown(old, looked, now))
    # What was seen was written down after a line of a later day: its own time may be wrong.
    turned = session_of("v", {"kind": "time", "key": "t", "at": "2026-01-30T00:00"}, *looked)
    found = shown(old, session_of("v", *turned), now)
    assert warned(unsure, found)
    assert not warned("seeds changed", found), "after 30 January, for all that is known"
    without = session_of("none", {**looked[0], "at": None})
    assert warned(unsure, shown(old, without, now))


def test_runs_that_were_there_before_the_design_are_told() -> None:
    runs = session_of("runs", *pairs(at="2026-01-05T00:00"))
    now = session_of("now", declared(5, NOW))
    assert warned("10 runs were trained, and their test metrics shown", shown(runs, now))
    asked = session_of(
        "asked",
        {"kind": "sweep", "key": "s", "at": "2026-01-04T00:00", "runs": [r["key"] for r in runs]},
    )
    assert shown(asked, runs, now).warnings == (), "a sweep asked for them, and shows none"
    late = session_of("late", {**asked[0], "at": "2026-01-06T00:00"})
    assert warned("10 runs were trained", shown(runs, late, now)), "asked for afterwards"
    few = session_of("now", declared(3, NOW))
    more = [{**r, "task": "trec", "recipe": dict(RECIPE)} for r in runs]
    assert warned("2 more seeds of both models had been trained", shown(asked, more, few))
    assert warned("not in it: 3, 4", shown(asked, more, few))
    tuned = [{**r, "recipe": {**RECIPE, "tuning_trials": 9}} for r in more]
    assert warned("not in it: 3, 4", shown(asked, tuned, few)), "the same recipe"
    other = [{**r, "recipe": {"width": 9}} if r["seed"] == 4 else r for r in more]
    assert warned("1 more seeds", shown(asked, other, few))
    words = [{**r, "vectors": "none" if r["seed"] > 2 else "glove.txt"} for r in more]
    assert not warned("more seeds", shown(asked, words, few)), "other words"
    typed = [{**r, "model": f"{r['model']}[causal=false]"} for r in more]
    assert warned("not in it: 3, 4", shown(asked, typed, few)), "the same models"


def test_what_was_added_to_a_plan_after_its_first_run_is_told() -> None:
    runs = pairs(at="2026-01-05T00:00")
    plans = {
        count: {
            "kind": "sweep",
            "key": f"s{count}",
            "runs": [r["key"] for r in runs if r["seed"] < count],
        }
        for count in (3, 5)
    }
    three = session_of("3", {**plans[3], "at": "2026-01-04T00:00"})
    begun = session_of("begun", *[r for r in runs if r["seed"] < 3])
    more = [{**r, "at": "2026-01-07T00:00"} for r in runs if r["seed"] >= 3]
    added = session_of("5", {**plans[5], "at": "2026-01-06T00:00"}, *more)
    now = session_of("now", declared(5, NOW))
    text = f"2 runs of {A} were added to a plan of 3 when some of these were finished"
    assert warned(text, shown(three, begun, added, now))
    alone = session_of("now", declared(5, "2026-01-06T00:00"), *more)
    assert warned(text, shown(three, begun, alone)), "a comparison adds as a sweep does"
    early = session_of("5", {**plans[5], "at": "2026-01-04T12:00"}, *more)
    assert shown(three, early, begun, now).warnings == (), "nothing had been trained"
    assert shown(three, begun, session_of("now", declared(3, NOW))).warnings == ()


def test_the_newest_design_of_each_question_counts() -> None:
    newer = session_of("3", declared(5, "2026-04-01", key="newer"), *pairs())
    records = [
        *newer,
        *session_of("1", declared(3, "2026-01-01", key="older")),
        *session_of("2", declared(2, "2026-03-01", key="other", question="r")),
        {"kind": "time", "key": "t", "at": "2026-01-01"},
    ]
    assert [c.key for c in conclusions(records)] == ["other", "newer"]
    assert conclusions(pairs()) == []
    assert conclusions([declared(5, NOW)]) == []  # no run was recorded: a mistake in the command


def test_pairing_after_the_unpaired_results_were_seen_is_told_and_replaces_nothing() -> None:
    free = declared(5, "2026-01-01", key="free", question="u", paired=False, paired_question="q")
    look = {"kind": "verdict", "key": "v", "design": "free", "at": "2026-01-05T00:00"}
    records = [
        *session_of("then", free, *pairs()),
        *session_of("look", look),
        *session_of("now", declared(5, NOW, paired_question="q")),
    ]
    told = "paired was declared after the unpaired results had been seen"
    assert warned(told, shown(records))
    both = [c.comparisons[0] for c in conclusions(records)]
    assert [c.paired for c in both] == [False, True]
    assert both[0].values == both[1].values, "of the same runs"


MODELS = ("disa.plain", "bi_lstm.packed", "none.fused", "mtsa.fused")


def trained() -> list[dict[str, Any]]:
    values = np.random.default_rng(0).normal(0.8, 0.01, (len(MODELS) + 1, 6))
    return [r for model, own in zip((B, *MODELS), values, strict=True) for r in runs(model, own)]


def looked(record: dict[str, Any], session: str, at: str) -> list[dict[str, Any]]:
    """A family in a session of its own, and that its results were seen."""
    verdict = {
        "kind": "verdict",
        "key": f"v{session}",
        "design": record["key"],
        "designs": [d["key"] for d in record["designs"]],
    }
    return [{**r, "session": session, "at": at} for r in (record, verdict)]


def test_comparisons_left_out_after_looking_are_told() -> None:
    before, now = family(MODELS, ["trec"], key="old"), {"session": "now", "at": "2026-02-01"}
    few = {**family(MODELS[:2], ["trec"]), **now}
    records = [*looked(before, "then", "2026-01-01"), *trained(), few]

    def told(record: dict[str, Any], everything: list[dict[str, Any]]) -> str:
        return " ".join(w for w in conclude(record, everything).warnings if "left out" in w)

    assert "2 comparisons that were seen together with these are left out" in told(few, records)
    assert "allow for 2, not for 4" in told(few, records)
    assert not told(few, [few, *trained()])
    assert not told(few, [r for r in records if r["kind"] != "verdict"]), "unseen"
    assert not told(few, [*trained(), few, *looked(before, "later", "2026-03-01")])
    all_of_them = {**before, "key": "again", **now}
    assert not told(all_of_them, [*records[:-1], all_of_them])


def test_one_of_many_judged_alone_is_told() -> None:
    before = looked(family(MODELS, ["trec"]), "then", "2026-01-01")
    alone = {**design(5, MODELS[0]), "key": "alone", "session": "now", "at": "2026-02-01"}
    found = judged(alone, [*before, *trained(), alone])
    assert warned("one of 4 comparisons that were judged together", found)
    assert warned("seeds changed after looking: results were seen with 6", found)
    assert not warned("judged together", judged(alone, [*trained(), alone]))
    together = conclude(before[0], [*before, *trained()]).warnings
    assert not any("judged together" in w for w in together)
