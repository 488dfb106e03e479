"""What pages read of records: devices, trained tasks, sweeps, frontiers, printed values."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from harness.experiments.conclusion import conclusions
from harness.records import journal, schema
from harness.train.task import task
from reports.claims.ledger import devices_of, ledger
from reports.claims.record import load_claims
from reports.core import frontiers
from reports.core.against import against, tied
from reports.core.costs import Costs
from reports.core.recipes import trained_alike
from reports.core.sentences import closing
from reports.core.source import DeviceRecords, _gone_on, facts, find
from reports.core.sweeps import sweeps
from reports.core.trained import TaskRuns, trained_tasks
from suites.support import comparisons
from suites.support.report_records import BASE, MINE, attention, fingerprint, frontier, write


def on_task(name: str, records: Iterable[Mapping[str, Any]]) -> TaskRuns:
    """What was trained on a task."""
    (found,) = (t for t in trained_tasks(records) if t.name == name)
    return found


def on_corpora(records: Iterable[Mapping[str, Any]]) -> list[TaskRuns]:
    """On CR and TREC, without the synthetic task."""
    return [t for t in trained_tasks(records) if "mirrored" not in t.name]


def test_runs_are_of_the_machine_that_made_them_wherever_they_are_shown() -> None:
    """One that a design file was gone on with has those of the others, and says whose they are."""
    own, other = ({**fingerprint(name), "cpu": 1} for name in ("Own", "Other"))
    sessions = tuple({"session": s, "fingerprint": f} for s, f in (("s1", own), ("s2", other)))
    records = tuple(
        {"kind": "run", "task": task, "session": s}
        for task, s in (("cr", "s1"), ("cr", "s2"), ("cr", "s2"), ("sick", "s1"))
    )
    device = DeviceRecords(schema.digest(own), own, records, sessions)
    assert device.made_on(records[:1]) == device.title
    titles = [f"{name} (cpu), torch 2.13.0, 2 CPU threads" for name in ("Other", "Own")]
    said = f"{titles[0]} (2); {titles[1]} (1)"
    assert device.made_on(records[:3]) == said
    assert (
        device.of_others("run")
        == f"Begun elsewhere, and gone on with here (runs, those trained again too): cr: {said}."
    )
    assert device.footer("run").startswith(f"{titles[1]} and {titles[0]}; commit")
    alone = replace(device, records=records[:1])
    assert (alone.of_others("run"), alone.footer("run")[:20]) == ("", titles[1][:20])
    assert titles[0] not in alone.footer("run")
    assert list(device.machines) == titles[::-1]


def test_what_was_looked_at_on_another_machine_was_seen(tmp_path: Path) -> None:
    write(tmp_path, "One", [comparisons.run(MINE, 0, 0.8)])
    write(tmp_path, "Two", [attention()])
    devices = find(str(tmp_path), kinds=("run", "attention")).devices
    assert sorted(r["kind"] for d in devices for r in d.elsewhere) == ["attention", "run"]


def test_what_goes_on_elsewhere_takes_no_runs_from_what_was_declared_beside_it() -> None:
    """Two files share the baseline's runs; of one of them another machine did the rest."""
    base = comparisons.B

    def planned(file: str, model: str, count: int, key: str, at: str) -> dict[str, Any]:
        plan = {"file": file, "sha256": file, "void": [], "hours": 9.0}
        told: dict[str, Any] = {"question": file, "plan": plan, "at": at, "session": key}
        return comparisons.design(count, model, key=key, **told)

    low = [0.80, 0.81, 0.79, 0.80, 0.82]
    near = [v + 0.01 * (i % 2) for i, v in enumerate(low)]
    shared = [*comparisons.runs(base, low), *comparisons.runs(MINE, near)]
    first: list[Mapping[str, Any]] = [
        planned("a", MINE, 5, "a", "2026-01-01"),
        planned("b", "disa.plain", 5, "b", "2026-01-03"),
        *shared,
        *comparisons.runs("disa.plain", near),
    ]
    rest = [comparisons.run(m, s, 0.8) for m in (base, MINE) for s in (5, 6, 7)]
    second: list[Mapping[str, Any]] = [planned("a", MINE, 8, "a8", "2026-01-05"), *rest]
    records = {"m1": first, "m2": second}
    assert _gone_on(records) == [("m1", "m2")]
    assert _gone_on(records) == [], "what stays and was brought is brought once"
    told = {m: [c.comparisons[0] for c in conclusions(some)] for m, some in records.items()}
    assert [(c.second, c.finished, c.verdict) for c in told["m1"]] == [(base, 5, "undecided")]
    assert told["m1"][0].first == "disa.plain"
    assert [(c.first, c.finished) for c in told["m2"]] == [(MINE, 8)]
    assert not any(r.get("model") == MINE for r in first), "nor is anything shown twice"


def test_tasks_hold_the_newest_run_of_each_replicate(device: DeviceRecords) -> None:
    tasks = {t.name: t for t in trained_tasks(device.records)}
    assert set(tasks) == {"trec", "cr", "mirrored_summation[k=5]", "mirrored_summation[k=20]"}
    trec = tasks["trec"].find("mtsa")
    assert trec.model == MINE
    assert trec.counted == "6 seeds"
    assert tasks["cr"].models[0].counted == "10 folds"
    again = {**trec.runs[0], "test": {"accuracy": 0.123}, "at": "2999-01-01", "key": "again"}
    other = {**trec.runs[0], "recipe": {"width": 7}, "key": "other"}
    both = {t.name: t for t in trained_tasks([*device.records, again, other])}
    newer = both["trec"].find("mtsa")
    assert len(newer.values) == 6
    assert min(newer.values) == 0.123
    assert both["trec"].others == 1


def test_of_recipes_with_as_many_mechanisms_the_common_one_is_shown(device: DeviceRecords) -> None:
    """Not the one with more runs or variants; but the one with more mechanisms before either."""
    usual = task("trec").recipe.as_dict()
    others = [
        {**r, "recipe": {**usual, "dropout": 0.77}} for r in device.records if r["kind"] == "run"
    ]
    before = on_task("trec", others)
    own = list({m.mechanism: m for m in before.models}.values())
    again = [{**m.runs[0], "recipe": usual, "key": f"usual {m.model}"} for m in own]
    variant = {**own[0].runs[0], "model": f"{own[0].model}[scale_t=identity]", "key": "variant"}
    both = on_task("trec", [*others, variant, *again])
    assert {m.model: len(m.runs) for m in both.models} == dict.fromkeys([m.model for m in own], 1)
    fewer = on_task("trec", [*others, *again[1:]])
    assert fewer.models == before.models
    nothing = [{**r, "recipe": None, "key": f"{r['key']} nothing"} for r in others]
    unknown = on_task("trec", [*nothing, *again])
    assert unknown.models == both.models
    alone = [r for r in again if r["model"] == own[0].model]
    variants = [
        {
            **alone[0],
            "recipe": {**usual, "dropout": 0.5},
            "key": f"v{i}",
            "model": f"{own[0].model}[scale_t={i}]",
        }
        for i in range(2)
    ]
    (two,) = trained_tasks([*alone, *variants])
    assert len(two.models) == 2


def test_folds_that_are_missing_do_not_change_how_far_training_sets_overlap(
    device: DeviceRecords,
) -> None:
    half = [r for r in device.records if r.get("task") == "cr" and (r.get("fold") or 0) < 5]
    (cr,) = trained_tasks(half)
    base, mine = (next(m for m in cr.models if m.model == name) for name in (BASE, MINE))
    found = against(mine, base)
    gains = found.difference.differences
    assert len(gains) == 5
    spread = statistics.stdev(gains) * math.sqrt(1 / 5 + 1 / 9)  # test over training: 1 : 9
    assert found.difference.high - found.difference.low == pytest.approx(
        2 * stats.t.ppf(0.975, 4) * spread
    )


def test_models_without_common_replicates_are_not_compared(device: DeviceRecords) -> None:
    trec, cr = (on_task(name, device.records) for name in ("trec", "cr"))
    assert against(trec.models[0], cr.models[0]) is None


@pytest.mark.parametrize(
    ("more", "end"),
    [({"driver": "560"}, "]"), ({"variables": {"OMP_NUM_THREADS": "1"}}, ", OMP_NUM_THREADS=1")],
    ids=["by its key", "by a variable"],
)
def test_devices_that_differ_have_names_of_their_own(
    tmp_path: Path, more: dict[str, Any], end: str
) -> None:
    for number, other in enumerate(({"driver": "550", "variables": {}}, more)):
        given = {**fingerprint("Twin"), "driver": "550", **other}
        writer = journal.Writer(tmp_path, {"fingerprint": given})
        writer.append({**next(iter(frontier())), "key": str(number)})
        writer.close()
    plain, other_title = sorted((d.title for d in find(str(tmp_path)).devices), key=len)
    assert plain != other_title
    assert "Twin" in plain
    assert other_title.endswith(end)
    assert plain.endswith("]") == (end == "]")


def test_a_device_knows_what_others_had_trained_before_it_declared(tmp_path: Path) -> None:
    """Runs of another machine are not its own, and it has seen them: so says the ledger, too."""
    both = ("mtsa.fused", comparisons.HIGH), (comparisons.B, comparisons.LOW)
    done = [run for model, values in both for run in comparisons.runs(model, values)]
    write(tmp_path, "There", [{**r, "key": f"there {r['key']}"} for r in done])
    time.sleep(0.01)  # stamps are of milliseconds
    write(tmp_path, "Here", [comparisons.design(5, "mtsa.fused"), *done])
    source = devices_of(str(tmp_path))
    ((one,),) = (d.conclusions for d in source.devices if d.fingerprint["model"] == "Here")
    assert one.comparisons[0].exploratory
    claims = [c for c in load_claims() if c.parameters.get("task") == "trec"]
    said = ledger(source.devices, claims=claims)
    assert any(v.reason.startswith("exploratory: mtsa.fused is better") for v in said)


def test_times_of_a_slower_session_are_drawn_beside_the_baseline(measured: Costs) -> None:
    rows = measured.rows
    swept = sweeps(rows)[0].rows
    one = next(r for r in swept if r.columns["name"] == MINE and r.time is not None)
    base = next(r for r in rows if r.case == one.baseline)
    slow = [replace(r, seconds=3 * r.seconds) if r.case == one.case else r for r in rows]
    drawn = {r.case: r for sweep in sweeps(slow) for r in sweep.rows}
    assert drawn[one.case].seconds == pytest.approx(base.seconds * one.time.ratio)
    others = [r for r in rows if r.case != one.case and r.case in drawn]
    as_measured = [drawn[r.case].seconds == r.seconds for r in others]
    assert sum(as_measured) > len(others) / 2, "what agrees with its ratio is left alone"


def test_facts_of_a_machine_are_words() -> None:
    shown = facts(
        {"allocator": {"M_TOP_PAD": 1, "M_MMAP_MAX": 0}, "variables": {}, "cuda": None}, []
    )
    assert shown == {"allocator": "M_TOP_PAD = 1, M_MMAP_MAX = 0"}


def test_the_sentence_on_memory_has_its_interval_or_says_that_there_was_one_reading(
    device: DeviceRecords, measured: Costs
) -> None:
    size_of = {**measured.profile.reference, "settings": measured.profile.setting}

    def said(found: Costs) -> str:
        return closing(found.rows, MINE, BASE, size_of, found.memory_ratio)[2]

    assert "is 1.20x [1.20, 1.20] in forward" in said(measured)
    once = [r for r in device.records if r["kind"] != "memory" or r["block"] == 0]
    assert "is 1.20x (one reading) in forward" in said(Costs(replace(device, records=tuple(once))))


def test_older_code_of_a_frontier_is_left_out(device: DeviceRecords) -> None:
    old = [
        {**r, "code": "old", "at": "2000-01-01", "status": "ok", "peak_bytes": 1}
        for r in device.records
        if r["kind"] == "frontier"
    ]
    found = {r.name: r for r in frontiers.reaches([*old, *device.records])}
    assert found[MINE].longest == 2048


def test_models_are_ranked_over_the_corpora_that_have_them_trained_alike(
    device: DeviceRecords,
) -> None:
    corpora = on_corpora(device.records)
    names, found = tied(corpora, "multi_head")
    assert names == ["cr", "trec"]
    ranks = []
    for one in corpora:
        own = [m for m in one.models if not m.variant]
        ordered = sorted(own, key=lambda m: -statistics.fmean(m.values))
        ranks.append({m.model: place for place, m in enumerate(ordered, 1)})
    models = ranks[0].keys() & ranks[1].keys()
    assert found.omnibus.ranks == {m: statistics.fmean(r[m] for r in ranks) for m in models}
    # A seed that one model lacks counts for none; without a corpus in common nobody is ranked.
    lost = [r for r in device.records if r.get("key") != f"{MINE} trec 5"]
    fewer = on_corpora(lost)
    assert tied(fewer, "multi_head")[0] == names
    assert tied(corpora[:1], "multi_head") == ([], None)
    assert tied(corpora, "nobody") == ([], None)


def test_a_model_that_was_trained_more_is_not_ranked_there(device: DeviceRecords) -> None:
    recipe = {"batch": 32, "epochs": 20, "patience": 3}

    def told(r: dict[str, Any]) -> dict[str, Any]:
        count = 6 if r["model"] == MINE else 4
        epochs = [{"epoch": n, "seconds": 1.0} for n in range(1, count + 1)]
        return {**r, "recipe": recipe, "examples": {"train": 64}, "epochs": epochs}

    runs = [dict(r) for r in device.records if r["kind"] == "run"]
    unlike = [told(r) if r["task"] == "cr" else r for r in runs]
    before, after = (tied(on_corpora(some), "multi_head")[1] for some in (runs, unlike))
    assert before.omnibus.ranks.keys() - after.omnibus.ranks.keys() == {MINE}


def test_models_that_one_design_gives_recipes_of_their_own_stand_beside_each_other() -> None:
    def run(model: str, rate: float, plan: str | None) -> dict[str, Any]:
        return {"task": "trec", "model": f"{model}.fused", "recipe": {"rate": rate}, "plan": plan}

    design = [run("mtsa", 1e-3, "d"), run("disa", 2e-3, "d")]
    alike = [run("mtsa", 1e-3, "e"), run("resa", 1e-3, "e")]
    others = [run("none", 1e-3, None), run("msmsa", 2e-3, None)]
    groups = trained_alike([*design, *alike, *others])
    assert groups == [design, [*alike, others[0]], [others[1]]]
