"""Was a plan changed after its results had been seen, and is it what a design file declares."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import UsageError
from harness.experiments import tables
from harness.experiments.conclusion import Comparison, conclude, conclusions
from harness.experiments.declare import planned
from harness.experiments.warnings import VOIDS
from harness.options.train import CompareOptions
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


def swept(runs: list[dict], at: str) -> dict[str, Any]:
    """A sweep that asks for these runs."""
    return {"kind": "sweep", "key": f"s{len(runs)}", "at": at, "runs": [r["key"] for r in runs]}


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
    older = session_of("older", declared(5, "2026-01-08T00:00", key="old"))
    again = shown(older, before, session_of("now", declared(5, NOW)))
    assert again.exploratory, "only a design file is declared once more"
    # In a family its first line says so.
    asked = {**family([A, "disa.plain"], ["trec"], 5), "at": NOW}
    records = [*before, *session_of("now", asked, *runs("disa.plain", LOW, at=NOW))]
    found = conclude(records[len(before)], records)
    assert [c.exploratory for c in found.comparisons] == [True, True]  # the baseline's are older
    first = found.sentences[0].removeprefix(f"{found.title}: ")
    assert first.startswith(
        "exploratory, declared after runs of it, or after runs that these repeat: 1 better"
    )


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
    new = {**declared(5, NOW), "seeds": [10, 11, 12, 13, 14]}
    assert not warned("seeds changed", shown(*before, session_of("now", new)))
    assert warned("seeds changed", shown(*before, session_of("now", {**new, "seeds": [2, 10]})))
    folds = session_of("now", {**new, "folds": 10})
    assert warned("seeds changed", shown(*before, folds)), "of the same folds"
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
    asked = session_of("asked", swept(runs, "2026-01-04T00:00"))
    assert shown(asked, runs, now).warnings == (), "a sweep asked for them, and shows none"
    late = session_of("late", swept(runs, "2026-01-06T00:00"))
    assert warned("10 runs were trained", shown(runs, late, now)), "asked for afterwards"
    few = session_of("now", declared(3, NOW))
    more = [{**r, "task": "trec", "recipe": dict(RECIPE)} for r in runs]
    assert warned("2 more seeds of both models had been trained", shown(asked, more, few))
    assert warned("not in it: 3, 4", shown(asked, more, few))
    tuned = [{**r, "recipe": {**RECIPE, "tuning_trials": 9}} for r in more]
    assert warned("not in it: 3, 4", shown(asked, tuned, few)), "the same recipe"
    gone = [{**r, "kind": "withdrawn"} if r["seed"] > 2 else r for r in more]
    assert warned("not in it: 3, 4", shown(asked, gone, few)), "though nothing more is told of them"
    other = [{**r, "recipe": {"width": 9}} if r["seed"] == 4 else r for r in more]
    assert warned("1 more seeds", shown(asked, other, few))
    words = [{**r, "vectors": "none" if r["seed"] > 2 else "glove.txt"} for r in more]
    assert not warned("more seeds", shown(asked, words, few)), "other words"
    typed = [{**r, "model": f"{r['model']}[causal=false]"} for r in more]
    assert warned("not in it: 3, 4", shown(asked, typed, few)), "the same models"


KNOWN = "pairs a run, or both, repeats what another machine, other code or a look had done before"


def elsewhere(changed: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    """What another machine trained of these pairs the day before, two seeds of each."""
    done = pairs(at="2026-01-09T01:00", **more)
    again = [{**r, "key": f"there {r['key']}", "fingerprint": "t", **changed} for r in done]
    return session_of("there", *(r for r in again if r["seed"] < 2))


def test_runs_that_another_machine_has_done_before_are_no_new_ones() -> None:
    told: dict[str, Any] = {"data": "d", "code": "c", "recipe": {**RECIPE, "epochs": 100}}
    now = session_of("now", declared(5, NOW), *pairs(at="2026-01-10T01:00", **told))
    assert not shown(now).exploratory
    found = shown(elsewhere({}, **told), now)
    assert found.exploratory
    assert warned(f"2 of 5 {KNOWN} this design was declared", found)
    # Older records name no data, a run that patience ended had no use for its ceiling, a longer
    # patience goes on from there, and other code or another machine gives other digits: a seed that
    # was seen is none that is new.
    unlikes: list[dict[str, Any]] = [{"data": None}, {"code": "e"}, {"test": {"accuracy": 0.5}}]
    unlikes += [{"recipe": {**RECIPE, name: 25}} for name in ("epochs", "patience")]
    for unlike in unlikes:
        assert shown(elsewhere({**told, **unlike}), now).exploratory, unlike
    rate = {**RECIPE, "rate": 1}
    for new in ({"model": "none.fused"}, {"vectors": "none"}, {"data": "e"}, {"recipe": rate}):
        assert not shown(elsewhere({**told, **new}), now).exploratory, new
    bare = [
        {k: v for k, v in one.items() if k not in ("test", "epochs")} | {"kind": "withdrawn"}
        for one in elsewhere({}, **told)
    ]
    assert warned(f"2 of 5 {KNOWN}", shown(bare, now)), "whatever is no more told of it"
    late = elsewhere({**told, "at": "2026-01-11T00:00"})
    assert not shown(late, now).exploratory, "repeats these, not they it"
    (one,) = conclusions(now, elsewhere=elsewhere({}, **told))
    assert one.comparisons[0].exploratory, "as a report gives them, by machine"


def test_what_a_look_at_attention_showed_before_is_known() -> None:
    now = session_of("now", declared(5, NOW), *pairs(at="2026-01-10T01:00", data="d"))
    (seen,) = (r for r in now if r.get("model") == A and r.get("seed") == 3)
    told = ("model", "task", "seed", "fold", "recipe", "status", "test", "chosen_epoch")
    look = {name: seen[name] for name in told if name in seen}
    look |= {"kind": "attention", "key": "look", "run": "r", "at": "2026-01-09T00:00"}
    found = shown(session_of("looks", look), now)
    assert found.exploratory
    assert warned(f"1 of 5 {KNOWN}", found)
    for other in ({"seed": 9}, {"at": "2026-01-11T00:00"}):
        assert not shown(session_of("looks", {**look, **other}), now).exploratory, other
    (one,) = conclusions(now, elsewhere=[look])
    assert one.comparisons[0].exploratory, "a look on another machine, as a report gives it"


def test_runs_of_one_design_file_on_another_machine_are_as_declared() -> None:
    asked, of_it = {"plan": PLAN}, {"plan": PLAN["sha256"]}
    now = session_of("now", declared(5, NOW, **asked), *pairs(at="2026-01-10T01:00", **of_it))
    assert not shown(elsewhere(of_it), now).exploratory
    assert shown(elsewhere({"plan": "c" * 64}), now).exploratory


def test_what_was_added_to_a_plan_after_its_first_run_is_told() -> None:
    runs = pairs(at="2026-01-05T00:00")
    first = [r for r in runs if r["seed"] < 3]
    three = session_of("3", swept(first, "2026-01-04T00:00"))
    begun = session_of("begun", *first)
    more = [{**r, "at": "2026-01-07T00:00"} for r in runs if r["seed"] >= 3]
    added = session_of("5", swept(runs, "2026-01-06T00:00"), *more)
    now = session_of("now", declared(5, NOW))
    text = f"2 runs of {A} were added to a plan of 3 when some of these were finished"
    assert warned(text, shown(three, begun, added, now))
    alone = session_of("now", declared(5, "2026-01-06T00:00"), *more)
    assert warned(text, shown(three, begun, alone)), "a comparison adds as a sweep does"
    early = session_of("5", swept(runs, "2026-01-04T12:00"), *more)
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


# Design files: what they ask for, what records tell of them, and what they let void a verdict.


TEXT = """\
question = "Is it?"
models = ["mtsa", "disa"]
baseline = "multi_head"
tasks = ["trec"]
seeds = [3, 7]
margin = "1%"
recipe = ["epochs=3"]
family = "two"
stopping = "two pairs"
void = ["failed runs"]
hours = 0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(TEXT)
    return path


def test_a_file_says_what_the_options_say(file: Path) -> None:
    options, plan = planned(CompareOptions(plan=file, jobs=3))
    assert (options.names, options.baseline) == (("mtsa", "disa"), "multi_head")
    assert options.tasks == ("trec",)
    assert (options.seeds, options.changes, options.jobs) == ((3, 7), ("epochs=3",), 3)
    ((whose, margin),) = options.margin
    assert (whose, margin.value, margin.percent) == ("", 0.01, True)
    assert plan["sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert plan["committed"] == ""
    assert (plan["file"], plan["hours"], plan["void"]) == ("plan.toml", 0.5, ["failed runs"])


def test_a_commit_is_told_only_of_the_file_as_it_is(file: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *who, *arguments], cwd=file.parent, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    assert planned(CompareOptions(plan=file))[1]["committed"] == ""
    git("add", "plan.toml")
    git("commit", "-qm", "a design")
    assert planned(CompareOptions(plan=file))[1]["committed"] == git("rev-parse", "HEAD")
    file.write_text(TEXT.replace("[3, 7]", "[3, 7, 9]"))
    assert planned(CompareOptions(plan=file))[1]["committed"] == ""


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ('question = "Is it?"', "", "no question; a design has question, family"),
        ('question = "Is it?"', "question = 3", "question = 3; expected a text"),
        ("hours = 0.5", "", "no hours"),
        ("hours = 0.5", "hours = -1", "hours = -1; expected how many the runs may take"),
        ("seeds = [3, 7]", 'seeds = "many"', "seeds = 'many'; expected how many"),
        ('margin = "1%"', "margin = true", "margin = True; expected a positive number"),
        ('margin = "1%"', 'margin = "wide"', "margin = 'wide'; expected a positive number"),
        ('void = ["failed runs"]', 'void = ["bad luck"]', "expected some of failed runs"),
        ('tasks = ["trec"]', 'tasks = ["trec"]\nepochs = 3', "unknown key 'epochs'"),
        ('tasks = ["trec"]', 'tasks = ["trec"]\npart = [{}]', "is a sweep, which declares nothing"),
        ('baseline = "multi_head"', 'baseline = ["a", "b"]', "expected one"),
        ("hours = 0.5", "hours = ", "is no TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_in_one_line(
    file: Path, line: str, instead: str, said: str
) -> None:
    assert line in TEXT
    file.write_text(TEXT.replace(line, instead))
    with pytest.raises(UsageError) as error:
        planned(CompareOptions(plan=file))
    assert said in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value).strip() or "TOML" in said


def test_the_command_says_nothing_beside_a_file(file: Path) -> None:
    besides: list[dict[str, Any]] = [{"seeds": (1, 2)}, {"task": ("cr",)}, {"choose": "dev"}]
    for beside in (*besides, {"unpaired": True}):
        with pytest.raises(UsageError, match="only the file may say it"):
            planned(CompareOptions(plan=file, **beside))


PLAN: dict[str, Any] = {
    "file": "plan.toml",
    "sha256": "a" * 64,
    "committed": "b" * 40,
    "question": "Is it?",
    "family": "one",
    "stopping": "six seeds",
    "hours": 1.0,
    "void": [],
}
GOOD = [0.80, 0.81, 0.82, 0.80, 0.81, 0.82]
BETTER = [v + 0.05 + 0.001 * i for i, v in enumerate(GOOD)]


def concluded(design: dict[str, Any], **told: Any) -> Any:
    record = {**family(["disa.plain", "none.fused"], ["trec"]), "plan": design}
    told = {"plan": design["sha256"], **told}
    records = [record, *runs(B, GOOD, **told), *runs("disa.plain", BETTER, **told)]
    return conclude(record, [*records, *runs("none.fused", BETTER, **told)])


def test_what_is_not_of_the_design_is_exploratory() -> None:
    found = concluded(PLAN)
    assert not any(c.exploratory for c in found.comparisons)
    assert not any("plan.toml" in line for line in found.warnings)
    other = concluded(PLAN, plan="c" * 64)
    assert all(c.exploratory for c in other.comparisons)
    assert all(c.sentence.startswith("exploratory") for c in other.comparisons)
    assert any("were not trained under plan.toml" in line for line in other.warnings)
    uncommitted = concluded({**PLAN, "committed": ""})
    assert any("was not committed" in line for line in uncommitted.warnings)


def test_a_design_says_what_voids_its_verdict_and_how_long_it_may_take() -> None:
    record = {**family(["disa.plain"], ["trec"]), "plan": PLAN}
    told: dict[str, Any] = {"plan": PLAN["sha256"]}

    def judged(plan: dict[str, Any]) -> Any:
        mine = {**record, "plan": plan}
        some = [
            *runs(B, GOOD, **told, parameters=1000),
            *runs("disa.plain", BETTER, **told, parameters=9),
        ]
        return conclude(mine, [mine, *some]).comparisons[0]

    assert judged(PLAN).said == "better"
    void = judged({**PLAN, "void": ["unequal parameters"]})
    assert void.said == "better (not counted)"
    assert "not counted: unequal parameters" in void.sentence
    assert set(VOIDS) >= {"failed runs", "unequal parameters", "another corpus"}

    long = concluded({**PLAN, "hours": 1e-3}, task_seconds=36.0)
    assert "all runs together took 0.18 h; plan.toml allows 0.001 h" in long.warnings
    lines = tables.asked(long)
    assert "Is it?" in lines[0]
    assert "commit bbbbbbbbbb" in lines[0]
    assert "stopping rule: six seeds" in lines[1]
    assert tables.asked(conclude(family(["a.x"], ["trec"]), [])) == []
