"""Accuracies against the baseline's: trained alike in one column, declared before exploratory."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.experiments.conclusion import Conclusion, conclusions
from harness.experiments.examples import HANGS, ByExamples
from harness.experiments.replicates import counts_of
from harness.experiments.tables import NEEDED
from harness.profile import load_profile
from harness.stats import compare_means
from reports.core import sizes
from reports.core.against import against, as_declared, asked_again, beyond_none, outdone
from reports.core.page import Output
from reports.core.source import DeviceRecords, Source
from reports.core.tables import Cell
from reports.core.trained import trained_tasks
from reports.pages.corpora import printed
from reports.pages.corpora.page import Corpora
from reports.pages.corpora.tables import apart, head, mean_cell
from reports.pages.corpora.tables import differences as judged_together
from reports.pages.experiments import FEW, UNSEEN, Experiments, _row
from reports.pages.size.accuracy import accuracy_table, difference_text, differences, verdict_cell
from suites.reports.conftest import on
from suites.support.comparisons import HIGH, LOW, A, B, family, runs
from suites.support.declared import COMMON, PAPER, TABLE, compared, planned

SIZE = sizes.of_profile(load_profile("quick", "cpu"))
LSTM = "bi_lstm.packed"
NEAR = [0.801, 0.809, 0.791, 0.799, 0.821]
SPREAD = [0.80, 0.83, 0.77, 0.82, 0.82]


def row(*records: list[dict[str, Any]]) -> dict[str, str]:
    """MTSA's row of the table, without its name."""
    found = conclusions([r for some in records for r in some])
    (only,) = accuracy_table(differences(found, SIZE), SIZE, "model")
    assert only.pop("model") == "mtsa"
    return only


def over_corpora(source: Source, *records: list[dict[str, Any]]) -> Corpora:
    """The page of corpora of a device with these records."""
    return Corpora(source, on(source, *records).devices[0], Output(None, "p"))


def test_only_what_was_trained_alike_stands_in_one_column() -> None:
    """The paper's recipe chooses its epoch on the test set; other vectors are another model."""
    wide = {**COMMON, "width": 600}
    found = row(
        compared("common", first=NEAR),
        compared("paper", PAPER, HIGH[:4], LOW[:4]),
        compared("wide", wide),
        compared("none", vectors="none"),
        compared("glove", vectors="glove", first=[v + 0.1 for v in LOW]),
    )
    assert list(found) == [
        "trec (accuracy, points; 5 seeds)",
        "trec, common, width=600 (accuracy, points; 5 seeds)",
        "trec, glove (accuracy, points; 5 seeds)",
        "trec, no vectors (accuracy, points; 5 seeds)",
        "trec, paper, best over time on the test set (accuracy, points; 4 seeds)",
    ]
    assert [text.split()[0] for text in found.values()] == [
        "+0.02",
        "+10.00",
        "+10.00",
        "+10.00",
        "+10.50",
    ]
    (paper,) = differences(conclusions(compared("paper", PAPER)), SIZE)
    assert difference_text(paper).startswith("trec, paper, best over time on the test set +10.00 [")


def test_models_with_a_recipe_each_are_told_by_their_design_file() -> None:
    records = compared("x", plan=planned("tuned.toml"))
    records[1]["recipe"] = {**records[1]["recipe"], "dropout": 0.4}
    assert list(row(records)) == ["trec, several recipes (tuned.toml) (accuracy, points; 5 seeds)"]


def test_what_was_declared_before_its_runs_stands_before_what_is_exploratory() -> None:
    alone = compared("first", first=NEAR)
    # Of its own data: runs that are repeated would make the other one exploratory, too.
    late = compared("late", first=[*HIGH, 0.9], second=[*LOW, 0.8], late=True)
    late, alone = (
        [{**r, "data": name} for r in some] for name, some in (("l", late), ("a", alone))
    )
    for order in ((alone, late), (late, alone)):
        (cell,) = row(*order).values()
        assert cell.startswith("+0.02 ")
        assert "exploratory" not in cell
    (cell,) = row(late).values()
    assert cell.endswith("], exploratory: better")


def test_of_two_that_with_more_seeds_is_told_and_before_both_one_of_several() -> None:
    long = compared("long", first=[*NEAR, 0.8], second=[*LOW, 0.8])
    # Of their own results: runs that are repeated make the later one exploratory.
    lower, low = ([v - apart for v in LOW] for apart in (0.006, 0.003))
    short = compared("short", models=["mtsa.fused", B], second=low)
    variant = compared("variant", models=["mtsa.fused[scale_t=identity]", B], second=lower)
    for order in ((long, short, variant), (variant, short, long)):
        (cell,) = row(*order).values()
        assert cell.startswith("+0.02 "), "whatever computes the mechanism; a variant is none"
        # Those declared together share the baseline's runs: one row is not to stand out of them.
        several = [family(["mtsa.fused", LSTM], ["trec"], 5), *runs("mtsa.fused", HIGH)]
        several += [*runs(LSTM, LOW), *runs(B, NEAR)]
        every = conclusions([r for some in (several, *order) for r in some])
        (joint,) = (c for c in differences(every, SIZE) if c.first == "mtsa.fused")
        assert joint.together == 2


def test_a_cell_says_why_its_verdict_is_not_counted(source: Source) -> None:
    records = compared("x", steps=14)
    (cell,) = row(records).values()
    assert cell.endswith("], better (not counted)")
    assert isinstance(cell, Cell)
    assert cell.notes == ("14 and 10 steps",)
    page = Experiments(on(source, records), Output(None, "p"))
    assert "| better (not counted)<br>14 and 10 steps<br>+10.00 [" in page.table().plain
    assert "1 better (not counted)." in page.about().plain
    (again,) = over_corpora(source, records).differences
    _, (text,) = judged_together([again], {})
    assert isinstance(text["verdict"], Cell)
    cell_of_both = text["verdict"]
    assert (cell_of_both, cell_of_both.notes) == (
        f"as declared: {cell.split('], ')[1]}",
        cell.notes,
    )
    assert again.declared is not None
    told = ByExamples((), (), 0, 400, "", None, (), (), None, hangs=True)
    hanging = replace(again, declared=replace(again.declared, examples=told))
    _, (text,) = judged_together([hanging], {})
    assert isinstance(text["verdict"], Cell)
    assert text["verdict"].notes == (f"{cell.notes[0]}; {HANGS}",)


def test_what_was_declared_has_one_verdict(source: Source) -> None:
    """Not a second one by the family that the page makes, and neither has what is exploratory."""
    for late, said in ((False, "as declared: better"), (True, "as declared, exploratory: better")):
        page = over_corpora(source, compared("x", late=late))
        shown = page.differences_to_baseline().plain
        (line,) = [one for one in shown.splitlines() if " − " in one and one[0] == "|"]
        assert line.split("|")[-2].strip() == said
    near = [v + 0.01 * (i % 2) for i, v in enumerate(LOW)]  # by the page, without margin, undecided
    page = over_corpora(source, compared("x", first=near, second=LOW, margin=0.1, steps=14))
    shown = page.differences_to_baseline().plain
    assert "as declared: practically equal (not counted)<br>14 and 10 steps |" in shown


def test_of_two_families_of_the_same_runs_one_is_told(source: Source) -> None:
    """Alone it is better; of four, as all of them were declared, it is undecided."""
    near = [v + 0.01 * (i % 2) + 0.004 for i, v in enumerate(LOW)]
    models = ["mtsa.fused", LSTM, "none.fused", "disa.chunked"]
    trained = [*runs("mtsa.fused", near), *runs(B, LOW)]
    trained += [one for m in models[1:] for one in runs(m, [*reversed(LOW)])]
    late = {"at": "2026-01-03"}
    alone, both = (family(some, ["trec"], 5, str(some), **late) for some in (models[:1], models))
    every: list[Any] = [*trained, {**alone, **late}, {**both, **late}]
    (mtsa,) = (m for m in trained_tasks(every)[0].models if m.model == "mtsa.fused")
    (base,) = (m for m in trained_tasks(every)[0].models if m.model == B)
    found = conclusions(every)
    (told,) = (c for c in differences(found, SIZE) if c.first == "mtsa.fused")
    assert {c.verdict for f in found for c in f.comparisons if c.first == "mtsa.fused"} == {
        "better",
        "undecided",
    }
    (one,) = as_declared([against(mtsa, base)], found)
    assert (one.declared, one.verdict, one.adjusted_p) == (told, told.said, told.adjusted_p)
    assert one.together == 4
    _, (text,) = judged_together([one], {})
    assert text["verdict"] == f"as declared, exploratory: {told.said}"
    page = Experiments(on(source, every), Output(None, "p"))
    rows = {row["question"]: row["instead"] for row in page.rows()}
    small, large = (f.title for f in found)
    assert rows == {small: f"told elsewhere as judged in: {large}", large: ""}
    some = replace(mtsa, runs=mtsa.runs[:4])
    (fewer,) = as_declared([against(some, base)], found)
    assert fewer.declared is None, "of other runs nothing was declared"


def test_a_baseline_of_which_another_form_is_better_is_told_as_a_weak_one(source: Source) -> None:
    asked = compared("x", first=NEAR, second=LOW)
    form = compared("f", models=["multi_head_released.sdpa", B], plan=planned("heads.toml"))
    other, worse = (
        compared(m, models=[m, B], first=first, second=LOW)
        for m, first in (("multi_cnn.conv", HIGH), (f"{B}[positions=none]", LOW))
    )
    found = conclusions([r for some in (asked, form, other, worse) for r in some])
    (one,) = (f for f in found if f.models == (A,))
    (said,) = outdone(one, found)
    head = f"trec: a weak baseline? Other forms of {B} ended better by the same recipe: "
    assert said.startswith(f"{head}multi_head_released.sdpa +10.00 [")
    assert said.endswith(" points, exploratory: better (heads.toml)")
    wide = conclusions(compared("w", {**COMMON, "width": 600}, first=NEAR, second=LOW))
    (said_too,) = outdone(wide[0], found)
    assert "ended better by another recipe or other vectors than here: " in said_too
    assert said_too.endswith(f"exploratory: better (heads.toml, common, {TABLE})")
    (itself,) = (f for f in found if f.models == ("multi_head_released.sdpa",))
    assert outdone(itself, found) == [], "it is what shows it"
    behind = planned("forms.toml")
    turned = compared("t", models=[B, "multi_head_relu.sdpa"], plan=behind, first=LOW, second=HIGH)
    for run in turned:  # another recipe of the form's is not one of the baseline's
        if run.get("model") == "multi_head_relu.sdpa":
            run["recipe"] = {**run["recipe"], "width": 600}
    found = conclusions([r for some in (asked, turned) for r in some])
    (one,) = (f for f in found if f.models == (A,))
    (said_turned,) = outdone(one, found)
    assert said_turned.startswith(f"{head}multi_head_relu.sdpa +10.00 [")
    assert said_turned.endswith(" points, exploratory: better (forms.toml)")
    page = Experiments(on(source, asked, form), Output(None, "p"))
    warned = {row["arms"].partition(".")[0]: said in row["warnings"] for row in page.rows()}
    assert warned == {"mtsa": True, "multi_head_released": False}


def test_of_a_pair_that_several_design_files_ask_about_each_names_the_others() -> None:
    files = [compared(name, plan=planned(f"{name}.toml")) for name in ("a", "b")]
    every = conclusions([r for some in (*files, compared("c")) for r in some])
    said = {str(f.record["key"]): asked_again(f, every) for f in every}
    asked = f"{A} on trec: asked in"
    assert [line.partition(" too")[0] for line in said["a"]] == [f"{asked} b.toml"]
    assert [line.partition(" too")[0] for line in said["b"]] == [f"{asked} a.toml"]
    assert [line.partition(" too")[0] for line in said["c"]] == [f"{asked} a.toml, b.toml"]
    (other,) = conclusions(compared("d", models=["disa.chunked", B]))
    assert asked_again(other, every) == []


def test_a_model_is_told_beside_a_better_form_of_its_baseline_in_its_own_family() -> None:
    near, margin = "multi_head_relu.sdpa", 0.05
    records = [family([A, near], ["trec"], 5, margin=margin), *runs(A, HIGH), *runs(B, LOW)]
    higher = [value + 0.02 for value in NEAR]
    (one,) = conclusions([*records, *runs(near, higher)])
    assert [c.said for c in one.comparisons] == ["better", "practically equal"]
    (said,) = outdone(one, [one])
    assert said.startswith(f"trec: a weak baseline? Other forms of {B} ended better by the same")
    d = compare_means(HIGH, higher, paired=True)
    assert f"; {A} less that {one.comparisons[0].unit.interval(d)} points, p = {d.p:.2g}" in said
    assert said.endswith("exploratory")
    below = [*records, *runs(near, [value - 0.02 for value in NEAR])]
    (worse,) = conclusions(below)
    assert [c.said for c in worse.comparisons] == ["better", "practically equal"]
    assert outdone(worse, [worse]) == [], "that is behind"
    loose = {**records[0], "designs": [{**d, "paired": False} for d in records[0]["designs"]]}
    above = runs(near, [value + 0.02 for value in higher])
    (other,) = conclusions([loose, *records[1:], *above])
    (said,) = outdone(other, [other])
    assert "less that" not in said, "of pairs alone"


def test_a_mean_is_told_without_seen_test_examples_where_predictions_are_kept() -> None:
    records = compared("x", first=HIGH, second=LOW)
    (known,) = conclusions(records)
    (c,) = known.comparisons
    left = {r["key"]: 0.7 + 0.01 * r["seed"] if r["model"] == c.first else 0.6 for r in c.runs}

    def told(by_run: Mapping[str, float], seen: int = 3) -> Conclusion:
        examples = ByExamples((), (), seen, 400, "better", None, (), (), None, by_run=by_run)
        return replace(known, comparisons=(replace(c, examples=examples),))

    again = told(left)
    models = {m.model: m for m in trained_tasks(records)[0].models}
    mine, base = models[c.first], models[c.second]
    assert mean_cell(mine, [known]) == mine.text
    assert mean_cell(mine, [again]) == f"{mine.text}, 72.00 unseen"
    assert mean_cell(base, [known, again]) == f"{base.text}, 60.00 unseen"
    kept = {b.model.model: b for b in printed.beside([trained_tasks(records)], [again])}
    assert (kept[c.first].unseen, kept[c.second].unseen) == (pytest.approx(0.72), 0.6)
    flat, rows_shown = printed.table(list(kept.values()))
    assert [row["unseen"] for row in rows_shown] == ["72.00", "60.00"]
    assert [row["unseen"] for row in flat] == pytest.approx([72, 60])
    fewer = replace(mine, runs=mine.runs[:4])
    assert mean_cell(fewer, [again]) == f"{fewer.text}, 71.50 unseen", "some of a family's runs"
    few = {r["key"] for r in mine.runs[:2]}
    some, rest = ({k: v for k, v in left.items() if (k in few) == put} for put in (True, False))
    assert mean_cell(mine, [told(some)]) == mine.text, "of the other runs it is not known"
    whole = f"{mine.text}, 72.00 unseen"
    assert mean_cell(mine, [told(some), told(rest)]) == whole, "of two families"
    kept_of = {k: {"examples": 9, "seen": 1, "test": {mine.metric: v}} for k, v in left.items()}
    noted = tuple({**r, "unseen": kept_of[r["key"]]} for r in mine.runs)
    assert mean_cell(replace(mine, runs=noted), []) == whole, "of records that have numbers"
    noted = tuple({**r, "unseen": kept_of[r["key"]] if r["key"] in few else None} for r in noted)
    numbered = replace(mine, runs=noted)
    assert mean_cell(numbered, [told(rest)]) == whole
    assert mean_cell(numbered, []) == mine.text
    again_there = [{**r, "key": f"{r['key']} there", "task": "cr"} for r in mine.runs]
    family_of_two = replace(mine, task="mtl16", runs=(*mine.runs, *again_there))
    domains = [told(left, seen=0), told({r["key"]: 0.8 for r in again_there})]
    shown = f"{family_of_two.text}, 76.00 unseen"
    assert mean_cell(family_of_two, domains) == shown, "the mean of two domains"
    assert mean_cell(family_of_two, [*domains, domains[0]]) == shown, "each run once"
    assert mean_cell(family_of_two, [domains[0], told(left)]) == family_of_two.text
    assert mean_cell(mine, [told(left, seen=0)]) == mine.text
    assert mean_cell(mine, [told({**left, mine.runs[0]["key"]: math.nan})]) == mine.text
    assert mean_cell(mine, [told(some, seen=0), told(rest)]) == whole


def test_what_was_not_trained_alike_is_told_of_what_is_undecided_too(source: Source) -> None:
    (cell,) = row(compared("x", steps=14, first=[0.8, 0.9] * 2 + [0.8], second=[0.85] * 5)).values()
    assert isinstance(cell, Cell)
    assert "undecided" in cell
    assert cell.notes == ("14 and 10 steps",)


def test_no_win_that_is_not_counted_is_bold(source: Source) -> None:
    for steps, bold in ((10, True), (14, False)):
        page = over_corpora(source, compared("x", steps=steps))
        assert ("**" in page.table().plain) == bold
        assert bool(page._best()) == bold


def test_no_mean_over_more_seeds_is_bold_where_the_pairs_say_the_opposite(source: Source) -> None:
    first = [*(0.80 + 0.002 * (i % 3) for i in range(5)), *[0.9] * 10]
    second = [0.82 + 0.0021 * (i % 3) for i in range(5)]
    page = over_corpora(source, compared("x", first=first, second=second))
    (task,) = page.corpora
    assert max(task.models, key=lambda m: m.mean).model == "mtsa.algorithm1"
    assert page._best() == {}


def test_one_seed_has_no_interval_that_could_exclude_zero(source: Source) -> None:
    for count, told in ((1, "one seed or fold has no interval"), (2, "1 of 1 intervals")):
        page = over_corpora(source, compared("x", first=HIGH[:count], second=LOW[:count]))
        assert told in apart(page.differences)


def test_means_by_another_recipe_say_so_above_them(source: Source) -> None:
    page = over_corpora(source, compared("x", PAPER))
    (task,) = page.corpora
    assert head(task, task.trained) == "trec, paper, best over time on the test set (%)"
    assert f"| {head(task, task.trained)} |" in page.table().plain
    assert "trec, paper, best over time on the test set: " in page.differences_to_baseline().plain
    assert "| paper, best over time on the test set |" in page.beside().plain


def test_the_seeds_that_a_comparison_needs_are_one_number(source: Source) -> None:
    """The declared margin is what they are to find, on every page; else what was seen."""
    for margin in (0.01, None):
        page = over_corpora(source, compared("x", first=SPREAD, margin=margin))
        ((one,),) = (c.comparisons for c in page.device.conclusions)
        _, (text,) = judged_together(page.differences, page.margins)
        assert text[NEEDED] == one.sought.count
        assert one.sought.is_margin == (margin is not None)


def test_seeds_and_folds_are_not_one_number() -> None:
    assert counts_of([("fold", 10), ("seed", 5), ("fold", 10)]) == "5 seeds and 10 folds"
    assert counts_of([("seed", 18), ("seed", 5)]) == "5 or 18 seeds"
    assert counts_of([("seed", 1)]) == "1 seed"


def test_a_cell_says_over_how_many_where_its_column_has_several() -> None:
    long = compared("long", first=[*NEAR, 0.8], second=[*LOW, 0.8])
    other = compared("other", models=[LSTM, B])
    rows = accuracy_table(differences(conclusions([*long, *other]), SIZE), SIZE, "model")
    column = "trec (accuracy, points; 5 or 6 seeds)"
    told = {one["model"]: one[column] for one in rows}
    assert "] over 6 seeds, " in told["mtsa"]
    assert "] over 5 seeds, " in told["bi_lstm"]


def test_a_verdict_that_hangs_on_its_test_set_says_so_in_its_cell_and_in_its_familys(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstm = [0.85, *LOW[1:]]
    records = [family([A, LSTM], ["trec", "cr"], 5), *runs(A, HIGH), *runs(B, LOW)]
    records += [
        *runs(LSTM, lstm),
        *runs(A, HIGH, "cr"),
        *runs(B, LOW, "cr"),
        *runs(LSTM, lstm, "cr"),
    ]
    (known,) = conclusions(records)
    told = ByExamples((), (), 0, 400, "", None, (), (), None, hangs=True)
    first, *others = known.comparisons
    hanging = replace(first, examples=told)
    assert (verdict_cell(first).notes, verdict_cell(hanging).notes) == ((), (HANGS,))
    page = Experiments(on(source, records), Output(None, "p"))
    assert page.rows()[0]["known at once"] == ""
    again = replace(known, comparisons=(hanging, *others))
    monkeypatch.setattr(DeviceRecords, "conclusions", property(lambda _: [again]))
    (row,) = Experiments(on(source, records), Output(None, "p")).rows()
    assert row["known at once"] == f"{HANGS}: {A} on trec (better)"
    assert [line.partition(":")[0] for line in row["beside"]] == ["trec", "trec", "cr", "cr"]
    believed, trained = row["beside"][:2]
    assert believed.startswith(f"trec: P(better) / P(worse): {A} >0.99 / <0.01, {LSTM} ")
    assert trained.startswith("trec: trained for, medians over the runs: ")


def test_what_a_model_has_over_one_that_attends_to_nothing_says_where_training_was_unlike() -> None:
    records = [
        *compared("n", models=["none.fused", B], first=NEAR, second=[v - 0.1 for v in LOW]),
        *compared("a", first=HIGH, second=[v - 0.1 for v in LOW], steps=14),
        *compared("l", models=[LSTM, B], first=HIGH, second=[v - 0.1 for v in LOW]),
    ]
    models = {m.model: m for m in trained_tasks(records)[0].models}
    found = [against(m, models[B]) for name, m in models.items() if name != B]
    (said,) = beyond_none([one for one in found if one is not None])
    over, *rest = said.split(" (not trained alike)")
    assert len(rest) == 1
    assert f", exploratory, each by itself: {LSTM} +9.98 [" in over
    assert over.rpartition("], ")[2].startswith(f"{A} +9.98 [")


def test_what_becomes_of_a_verdict_without_seen_examples_is_told_as_it_is_counted(
    source: Source,
) -> None:
    (known,) = conclusions(compared("x", first=[0.8, 0.9] * 2 + [0.8], second=LOW, steps=14))
    (c,) = known.comparisons
    told = ByExamples(("a line",), (), 3, 400, "better", c.difference, (), (), None)
    again = replace(known, comparisons=(replace(c, examples=told),))
    assert c.said == "undecided"
    size = f"({c.unit.interval(c.difference)} points)"
    row = _row(again, [])
    assert row[UNSEEN] == f"1 of 1 changed: undecided {size} to better (not counted) {size}"
    name = "mtl16[domain={}]"
    domains = [
        replace(c, task=name.format(of), examples=replace(told, verdict=verdict))
        for of, verdict in (("books", "undecided"), ("dvd", "better"))
    ]
    record = {**known.record, "kind": "family"}
    several = replace(known, record=record, comparisons=tuple(domains))
    size = c.unit.told(c.difference)
    assert c.sought is not None
    why = f"undecided{c.sought.short(c.unit)} (14 and 10 steps)"
    each = [f"{A} on {name.format(of)} {size}: {why}" for of in ("books", "dvd")]
    assert _row(several, [])["difference"] == "; ".join(each)
    decided = replace(domains[0], verdict="better")
    many = replace(several, comparisons=(decided, *domains[1:] * FEW))
    line = f"{A} on {name.format('books')} {size}: better (not counted: 14 and 10 steps)"
    assert _row(many, [])["difference"] == line, (
        "of many what is decided, and why it is not counted"
    )
    line, *medians = _row(several, [])["beside"]
    assert line == f"{name.format('dvd')}, {A}: a line"
    assert len(medians) == 1
    assert medians[0].startswith("trained for, medians over the runs: ")
