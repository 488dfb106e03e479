"""What the page of trained models lists: experiments, families, designs without a run, goals."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.conclusion import Comparison
from harness.experiments.examples import ByExamples
from harness.train.task import tasks_named
from reports.core.source import Source
from reports.docs import declared, reached, training
from reports.docs.plain import text_of
from suites.reports.conftest import on
from suites.support.comparisons import HIGH, LOW, A, B, family, run
from suites.support.declared import COMMON, compared, planned
from suites.support.domains import reviewed

LSTM, NONE = "bi_lstm.packed", "none.fused"


def test_exploratory_experiments_have_a_list_of_their_own(source: Source) -> None:
    early = compared("x", plan=planned("early.toml"))
    late = compared("y", models=[LSTM, B], late=True, steps=14)
    (title, first), (other, second) = declared.lists(on(source, early, late))
    assert title == "What was declared before it was run"
    assert (
        other == "What was declared after runs of it, or after runs that these repeat: exploratory"
    )
    assert "early.toml" in first
    assert "| 10 of 20 |" in first, "hours"
    assert LSTM not in first
    assert "| exploratory: better (not counted)<br>14 and 10 steps<br>" in second
    assert "early.toml" not in second
    (only,) = declared.lists(on(source, early))
    assert only[0] == title
    gone = [{"kind": "withdrawn", "key": "g", "model": A, "seed": 9, "status": "ok", "task": "cr"}]
    lists = declared.lists(on(source, early, [*late, *gone, {**gone[0], "key": "h"}]))
    told = "2 runs of .+ \\(cr 2\\) were withdrawn after their results were known"
    assert all(re.search(told, said) for _, said in lists)
    assert "withdrawn" not in second


def test_what_decides_between_mtsa_and_multi_head_has_a_row_per_corpus_and_form(
    source: Source,
) -> None:
    """The released form before the text's, what was declared before the rest; variants aside."""
    mine, other, relu = "mtsa_released.fused", "multi_head.sdpa", "multi_head_relu.sdpa"
    of_k = {
        k: json.dumps(compared(f"k{k}", models=[mine, other], plan=planned("k.toml")))
        for k in (12, 3)
    }
    found = [
        compared("early", models=["mtsa.fused", other], plan=planned("early.toml")),
        *(json.loads(s.replace("trec", f"mirrored_summation[k={k}]")) for k, s in of_k.items()),
        compared("cut", models=[mine, other], plan=planned("cut.toml"), vectors="a&b"),
        compared("late", models=[mine, other], late=True, plan=planned("late.toml")),
        compared("form", models=[mine, f"{other}[positions=none]"], plan=planned("form.toml")),
        compared("text", models=["mtsa.fused", relu], plan=planned("text.toml")),
        compared("relu", models=[mine, relu], plan=planned("relu.toml")),
        compared("variant", models=["mtsa.fused[masks=none]", other], plan=planned("no.toml")),
        compared("peer", models=[LSTM, other], plan=planned("peer.toml")),
    ]
    answer, why = declared.central(on(source, *found))
    variant, gain = "mirrored_summation[k=3]", "+10.00 [+8.48, +11.52] points"
    head, _, *answers = answer.splitlines()
    assert head == (
        "Of what decides, declared before its runs and counted: mtsa_released is better on "
        f"{variant}, better on {variant.replace('3', '12')}; mtsa is better on trec."
    )
    assert answers == [
        "| task | mtsa_released | mtsa | mtsa_nmt |",
        "| --- | --- | --- | --- |",
        f"| {variant} (accuracy) | better, {gain} |  |  |",
        f"| {variant.replace('3', '12')} (accuracy) | better, {gain} |  |  |",
        f"| trec (accuracy) | exploratory: better, {gain}<br>asked in 1 more design file | better, "
        f"{gain} |  |",  # by cut word vectors, which decide nothing
    ]
    _, _, first, _, *rows, _, how = why.splitlines()
    assert first.startswith(f"| {variant} (accuracy) | mtsa_released | multi_head | ")
    assert [row.split(" | ")[:3] for row in rows] == [
        ["| trec (accuracy)", "mtsa_released", "multi_head"],
        ["| trec (accuracy)", "mtsa_released", "multi_head[positions=none]"],
        ["| trec (accuracy)", "mtsa_released", "multi_head_relu"],
        ["| trec (accuracy)", "mtsa", "multi_head"],
        ["| trec (accuracy)", "mtsa", "multi_head_relu"],
    ]
    assert "exploratory: better" in rows[0]
    assert "early.toml" in rows[3]
    untold = "without seen test examples not told: no predictions"
    assert [untold in row for row in (first, *rows)] == [False, *[True] * 5], (
        "made-up data has none"
    )
    assert "exploratory" not in rows[3]
    assert not any("declared in" in row for row in rows), "what is shown was, or nothing was before"
    assert "compare.md#" in how


def _answers(text: str) -> list[str]:
    """The rows of the table."""
    return text.splitlines()[4:]


def test_a_result_that_was_declared_and_is_not_counted_stands_beside_one_that_is(
    source: Source,
) -> None:
    """As does that the baseline is a weak one."""
    mine, other, relu = "mtsa_released.fused", "multi_head.sdpa", "multi_head_relu.sdpa"
    found = [
        compared("early", models=[mine, other], plan=planned("early.toml"), steps=14),
        compared("late", models=[mine, other], late=True),
        compared("form", models=[relu, other], plan=planned("form.toml")),
    ]
    answer, why = declared.central(on(source, *found))
    gain = "+10.00 [+8.48, +11.52] points"
    cell = (
        f"| trec (accuracy) | exploratory: better, {gain}<br>a weak baseline: {{}} multi_head_relu"
        f"<br>early.toml: better (not counted), {gain}{{}}<br>asked in {{}} |  |  |"
    )
    assert _answers(answer) == [cell.format("not compared with", "", "1 more design file")]
    assert answer.startswith("Of what decides, declared before its runs and counted: nothing.")
    found.append(compared("relu", models=[mine, relu], first=LOW, second=HIGH))
    wide = {**COMMON, "width": 600}
    design: dict[str, Any] = {"models": [mine, other], "plan": planned("again.toml")}
    found.append(compared("again", wide, steps=14, **design))
    few: dict[str, Any] = {**design, "first": HIGH[:4], "second": LOW[:4]}
    found.append(compared("few", {**COMMON, "width": 900}, **few))
    more, why = declared.central(on(source, *found))
    again = f"<br>again.toml: better (not counted), {gain}"
    assert _answers(more) == [
        cell.format("exploratory: worse against", again, "2 more design files")
    ]
    (row,) = (line for line in why.splitlines() if "mtsa_released | multi_head |" in line)
    weak, *both = row.split("<br>")[1:4]
    assert weak == "a weak baseline here: ahead of it multi_head_relu (exploratory: better)"
    for file, one in zip(("early", "again"), both, strict=True):
        assert one.startswith(f"declared in {file}.toml (common")
        assert "better (not counted); 14 and 10 steps" in one


def test_what_is_better_than_a_weak_baseline_says_what_it_is_against_its_better_forms(
    source: Source,
) -> None:
    mine, other, relu = "mtsa_released.fused", "multi_head.sdpa", "multi_head_relu.sdpa"
    found = [
        compared("own", models=[mine, other], plan=planned("own.toml")),
        compared("form", models=[relu, other], plan=planned("form.toml")),
    ]
    head = "Of what decides, declared before its runs and counted: mtsa_released is better on trec"
    answer, _ = declared.central(on(source, *found))
    assert answer.startswith(f"{head} (a weak baseline).")
    worse: dict[str, Any] = {"models": [mine, relu], "first": LOW, "second": HIGH}
    wide = {**COMMON, "width": 600}
    found.append(compared("relu", wide, plan=planned("relu.toml"), **worse))
    answer, _ = declared.central(on(source, *found))
    assert answer.startswith(f"{head} (a weak baseline; worse against multi_head_relu).")


def test_the_answer_says_where_attending_to_nothing_is_better_too(source: Source) -> None:
    mine, other, nothing = "mtsa_released.fused", "multi_head.sdpa", "none.fused"
    head = "Of what decides, declared before its runs and counted: mtsa_released is"
    own = compared("own", models=[mine, other], plan=planned("own.toml"))
    less: dict[str, Any] = {"models": [nothing, other], "first": HIGH, "second": LOW}
    too = compared("none", plan=planned("none.toml"), **less)
    answer, _ = declared.central(on(source, own, too))
    said = "none, which attends to nothing"
    assert answer.startswith(f"{head} better on trec ({said}, is better too).")
    (row,) = _answers(answer)
    gain = "+10.00 [+8.48, +11.52] points"
    cell = f"better, {gain}<br>{said}: exploratory: better, {gain}"  # the baseline's are older
    assert row == f"| trec (accuracy) | {cell} |  |  |"
    turned: dict[str, Any] = {"models": [other, nothing], "first": LOW, "second": HIGH}
    (row,) = _answers(declared.central(on(source, own, compared("t", **turned)))[0])
    assert f"<br>{said}: exploratory: better, {gain}" in row, "whichever stands first"
    behind = compared("none", models=[nothing, other], first=LOW, second=HIGH)
    assert said not in declared.central(on(source, own, behind))[0]
    worse = compared("own", models=[mine, other], first=LOW, second=HIGH)
    assert said not in declared.central(on(source, worse, too))[0], "no merit is claimed"


def test_the_answer_says_where_the_test_set_chose_the_epoch(source: Source) -> None:
    models = ["mtsa_released.fused", "multi_head.sdpa"]
    said = "best over time on the test set"
    for choose, by_test in (("best-on-test", True), ("dev", False)):
        recipe = {**COMMON, "choose": choose}
        records = compared("p", recipe, models=models, plan=planned("p.toml"))
        answer, _ = declared.central(on(source, records))
        assert (f"better on trec ({said})." in answer) == by_test
        assert (f" points<br>{said} |" in answer) == by_test


def test_the_answer_says_how_often_the_same_folds_were_asked(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = ["mtsa_released.fused", "multi_head.sdpa"]
    wide = {**COMMON, "width": 600}
    here = on(
        source,
        compared("a", models=models, plan=planned("a.toml")),
        compared("b", wide, models=models, plan=planned("b.toml")),
    )
    seeds, _ = declared.central(here)
    assert "better on trec." in seeds
    assert "<br>asked in 1 more design file |" in seeds
    folds = [
        replace(one, comparisons=tuple(replace(c, units="folds") for c in one.comparisons))
        for one in here.conclusions
    ]
    monkeypatch.setattr(Source, "conclusions", folds)
    said = "asked in 1 more design file, of the same folds"
    answer, _ = declared.central(here)
    assert f"better on trec ({said})." in answer
    assert f"<br>{said} |" in answer


def test_the_answer_says_on_which_texts_masks_leave_no_key(source: Source) -> None:
    models = ["mtsa.fused", "multi_head.sdpa"]
    records = compared("m", models=models, plan=planned("m.toml"), first=LOW, second=HIGH)
    for record in records:
        record["task"] = "mpqa"
    cause = "31.9 % of the texts are one word: no key under strict masks"
    answer, why = declared.central(on(source, records))
    assert f"mtsa is worse on mpqa ({cause})." in answer
    assert f" points<br>{cause} |" in answer
    assert f"| worse<br>{cause}" in why


def test_a_counted_result_that_says_otherwise_stands_beside_the_one_that_decides(
    source: Source,
) -> None:
    """By another recipe, and declared by a design file before its runs, as that is."""
    models = ["mtsa_released.fused", "multi_head.sdpa"]
    wide: dict[str, Any] = {"recipe": {**COMMON, "width": 600}, "first": LOW, "second": HIGH}
    here = on(
        source,
        compared("common", models=models, plan=planned("common.toml")),
        compared("wide", models=models, plan=planned("wide.toml"), **wide),
        compared("more", {**COMMON, "width": 900}, models=models, plan=planned("more.toml")),
    )
    answer, why = declared.central(here)
    assert _answers(answer) == [
        "| trec (accuracy) | better, +10.00 [+8.48, +11.52] points<br>wide.toml: worse, -10.00 "
        "[-11.52, -8.48] points<br>asked in 2 more design files |  |  |"
    ]
    assert "| better<br>declared in wide.toml (common, width=600, top10k_100d_int8): -10.00" in why
    assert "more.toml" not in why, "it says the same"


@pytest.mark.parametrize(
    ("counted", "left", "difference", "hangs"),
    [
        (True, "undecided", 0.1, False),
        (True, "better", 0.1, False),
        (True, "better", 0.02, True),
        (False, "undecided", 0.1, True),
    ],
)
def test_the_answer_tells_what_is_left_of_it_without_seen_examples_and_on_another_test_set(
    source: Source,
    counted: bool,
    left: str,
    difference: float,
    hangs: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the comparison that decides, and of one that was declared and is not counted.

    The difference is told where the verdict changes, or where it leaves the interval.
    """
    mine, other = "mtsa_released.fused", "multi_head.sdpa"
    steps = 10 if counted else 14
    early = compared("early", models=[mine, other], plan=planned("early.toml"), steps=steps)
    here = on(source, early, compared("late", models=[mine, other], late=True))

    def examples(c: Comparison) -> ByExamples:
        assert c.difference is not None
        own = replace(c.difference, difference=difference, low=0.01, high=0.2)
        return ByExamples((), (), 1, 9, left, own, (), (), None, hangs)

    told_of = [
        replace(
            one,
            comparisons=tuple(
                replace(c, examples=None if c.exploratory else examples(c)) for c in one.comparisons
            ),
        )
        for one in here.conclusions
    ]
    monkeypatch.setattr(Source, "conclusions", told_of)
    (figure, _) = training.figures(here)["declared"]
    assert figure.axes[0].get_yticklabels()[0].get_text() == (
        "mtsa_released, early*" if counted and hangs else "mtsa_released, early"
    )
    answer, why = declared.central(here)
    (row,) = _answers(answer)
    gain, seen = "+10.00 [+8.48, +11.52] points", "without seen test examples"
    changed = [f"{seen} {left}, +{100 * difference:.2f} [+1.00, +20.00] points"]
    changed = changed * (left != "better" or difference < 0.08) + ["hangs on this test set"] * hangs
    if counted:
        behind = "".join(f"<br>{one}" for one in changed)
        assert row == f"| trec (accuracy) | better, {gain}{behind} |  |  |"
        caveats = ["hangs on this test set"] * hangs + [f"{seen} {left}"] * (left != "better")
        said = f" ({'; '.join(caveats)})" if caveats else ""
        assert f"counted: mtsa_released is better on trec{said}." in answer
        assert "not told" not in why
        assert (seen in why) == (seen in behind)
    else:
        beside = f"early.toml: better (not counted), {gain}; {'; '.join(changed)}"
        asked = "<br>asked in 1 more design file"
        assert row == f"| trec (accuracy) | exploratory: better, {gain}<br>{beside}{asked} |  |  |"
        assert f"better (not counted); 14 and 10 steps; {'; '.join(changed)}<br>" in why


def test_the_answer_tells_what_an_undecided_comparison_could_have_found(source: Source) -> None:
    models = ["mtsa.fused", "multi_head.sdpa"]
    alike = compared("a", models=models, first=LOW, second=[*LOW[1:], LOW[0]])
    answer, why = declared.central(on(source, alike))
    (row,) = _answers(answer)
    missing = row.partition("<br>")[2].partition(" | ")[0]
    assert row.startswith("| trec (accuracy) |  | undecided, ")
    assert missing.startswith("detectable ")
    assert f"undecided ({missing})" in why


def test_why_a_verdict_is_not_counted_stands_in_the_answer(source: Source) -> None:
    models = ["mtsa.fused", "multi_head.sdpa"]
    answer, _ = declared.central(on(source, compared("a", models=models, steps=14)))
    (row,) = _answers(answer)
    assert ("better (not counted), +10.00 [+8.48, +11.52] points<br>14 and 10 steps |") in row


def test_every_warning_can_be_read(source: Source) -> None:
    ((_, body),) = declared.lists(on(source, compared("x", steps=14, one_test_set=True)))
    table, _, folded = body.partition("<details>")
    lines = [line for line in folded.splitlines() if line.startswith("- ")]
    warnings = [line for line in lines if line.startswith("- warning: ")]
    assert f"| {len(warnings)} |" in table
    beside = lines[: -len(warnings)]
    assert (
        sum(line.startswith(("- P(better) / P(worse) ", "- p (paired t")) for line in beside) == 2
    )
    (steps,) = (line for line in beside if "medians over the runs" in line)
    took = "3600.0 s, memory 0 MiB"
    assert f"{A} 14 steps, 448 examples, {took}; {B} 10 steps, 320 examples, {took}" in steps
    assert any("unequal training: 14 and 10 steps" in line for line in warnings)
    assert any("one and the same test set" in line for line in warnings)
    assert folded.rstrip().endswith("</details>")


def test_a_family_that_stands_in_no_other_table_has_one(source: Source) -> None:
    pairs = [compared(f"f{m}", models=[m, NONE], steps=s) for m, s in ((LSTM, 10), (B, 14))]
    designs = [one for some in pairs for one in some if one["kind"] == "design"]
    whole = family([], []) | {"designs": designs, "plan": planned("tags.toml")}
    runs = [one for some in pairs for one in some if one["kind"] == "run"]
    for one in runs:
        one["plan"] = "tags.toml"
    device = on(source, [whole, *runs]).devices[0]
    found = text_of(declared.families(device.conclusions, []))
    assert f"2 models against {NONE} on trec (tags.toml, " in found
    assert f"| {NONE} | 80.40 (1.14) % |" in found
    assert f"| {LSTM} | 90.40 (1.14) % | +10.00 | [" in found
    assert " | p Holm | " in found
    assert " | better (not counted)<br>14 and 10 steps |" in found
    (conclusion,) = device.conclusions
    every = conclusion.comparisons
    assert declared.families(device.conclusions, every).plain == ""
    assert declared.families(device.conclusions, every[:1]).plain != ""
    # Another of the same question has another verdict: it will do where both are exploratory.
    others = [replace(c) for c in every]
    assert declared.families(device.conclusions, others).plain != ""
    late = replace(conclusion, comparisons=tuple(replace(c, exploratory=True) for c in every))
    assert declared.families([late], others).plain == ""


def test_a_family_over_many_tasks_is_one_table_and_its_tests_over_them(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = on(source, reviewed()).devices[0]
    found = text_of(declared.families(device.conclusions, []))
    assert found.count("| task | model |") == 1
    assert found.count("mtl16[domain=books] |") == 3
    assert "). mtl16: test accuracy" in found
    assert found.count("| model | mean rank |") == 1
    (row,) = (line for line in reached.table(on(source, reviewed())).splitlines() if "MTL" in line)
    assert "| multi_scale_transformer.windowed 85.92 [" in row
    assert row.endswith("(5 seeds, common, best of 3 arms) | reached |")
    monkeypatch.setattr(reached, "unseen", lambda *_: 0.8)
    (row,) = (line for line in reached.table(on(source, reviewed())).splitlines() if "MTL" in line)
    assert "] %, 80.00 % without seen test examples (5 seeds, " in row


def test_designs_without_a_run_are_listed_and_sweeps_are_none(
    source: Source, tmp_path: Path
) -> None:
    for name in ("run", "waiting"):
        (tmp_path / f"{name}.toml").write_text(
            f'question = "Is it {name}?"\nmodels = ["mtsa"]\nbaseline = "none"\ntasks = ["cr"]\n'
        )
    (tmp_path / "sweep.toml").write_text('models = ["mtsa"]\n')
    here = on(source, compared("x", plan=planned("run.toml")))
    text = declared.not_run(here, tmp_path)
    rows = [line for line in text.splitlines() if line.endswith("not run yet |")]
    assert rows == [
        "| waiting.toml | Is it waiting?<br>mtsa against none on cr | not run yet |",
    ]
    begun = on(source, [r for r in compared("x", plan=planned("run.toml")) if r["kind"] != "run"])
    assert "run.toml" in declared.not_run(begun, tmp_path), "declared is not run"
    assert declared.not_run(here, tmp_path / "nowhere") == ""


@pytest.mark.parametrize(("mean", "result"), [(0.94, "reached"), (0.92, "missed")])
def test_a_goal_is_reached_or_missed_by_the_best_arms_mean(
    source: Source, mean: float, result: str
) -> None:
    def trained(model: str, level: float, count: int, choose: str = "dev") -> list[dict[str, Any]]:
        test, recipe = "tag_accuracy", {"choose": choose}
        return [
            run(model, s, 0, "ud_ewt", test={test: level + 0.001 * s}, recipe=recipe)
            for s in range(count)
        ]

    lines = reached.table(
        on(
            source,
            trained(LSTM, mean - 0.002, 5),
            trained(B, mean - 0.05, 5),
            trained(NONE, 0.99, 4),
            trained("mtsa.fused", 0.99, 5, "best-on-test"),
        )
    ).splitlines()
    (row,) = (line for line in lines if line.startswith("| UD EWT"))
    assert f"| {LSTM} {100 * mean:.2f} [" in row
    assert row.endswith(f", best of 2 arms) | {result} |"), (
        "of those with enough seeds, by a dev split"
    )
    assert [line.endswith("|  | not run yet |") for line in lines if "WNUT" in line] == [True]


def test_the_goals_name_tasks_and_metrics_that_there_are() -> None:
    for goal in reached.GOALS:
        assert {one.metric for one in tasks_named(goal.task)} == {goal.metric}
    assert len(reached.GOALS) == 4
