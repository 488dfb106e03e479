"""``attnbench sweep``: what is planned, in which order, from options or a file; how it is told."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.cli.running import Told
from harness.cli.sweep import command, failures, print_table
from harness.errors import UsageError
from harness.experiments import sweep as sweeps
from harness.experiments.declare import planned
from harness.experiments.design import Surroundings, make_design
from harness.experiments.executors import local
from harness.experiments.executors.ray import import_ray
from harness.experiments.model import parse_model
from harness.experiments.sweep import Part, Sweep, make_sweep, read_file, sweep_of
from harness.options.train import CompareOptions, SweepOptions
from harness.records import schema
from harness.registry import Registry
from harness.train.encoder import encoder
from harness.train.task import Task, task, tasks_named
from suites.support import comparisons
from suites.support.command_line import ROOT, printed
from suites.support.fake_training import RESULT

FINGERPRINT = {"device": "cpu", "model": "made up"}
A, B = "mtsa.fused", "multi_head.sdpa"


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of three folds beside the real ones."""
    found = replace(task("trec"), name="folded", folds=3)
    known = {"folded": (found,)}
    monkeypatch.setattr(sweeps, "tasks_named", lambda name: known.get(name) or tasks_named(name))


def declared(*parts: Part) -> Sweep:
    registry = Registry()

    def around(of: Task, vectors: str | None) -> Surroundings:
        return Surroundings(registry, FINGERPRINT, "data", vectors or of.vectors, "digest")

    return make_sweep(parts, registry, around)


def order(sweep: Sweep) -> list[tuple[str, str, int]]:
    return [(e.run.task, str(e.run.model), e.run.seed) for e in sweep.entries]


TWO = Part(models=("mtsa", "multi_head"), tasks=("trec", "sick_relatedness"), seeds=(4, 7))


def test_how_a_recipe_was_found_makes_no_other_run_and_no_other_question() -> None:
    def of(*recipe: str) -> list[tuple[str, str]]:
        made = declared(replace(TWO, recipe=recipe)).entries
        return [(e.run.key, str(e.run.recipe.tuning_trials)) for e in made]

    usual, tuned_more = of(), of("tuning_trials=99")
    assert [key for key, _ in usual] == [key for key, _ in tuned_more]
    assert {trials for _, trials in tuned_more} == {"99"}
    assert not {key for key, _ in usual} & {key for key, _ in of("rate=0.5")}
    around = Surroundings(Registry(), FINGERPRINT, "data", "none", "digest")
    models = [parse_model(name, around.registry) for name in (A, B)]

    def design(**changed: Any) -> dict[str, Any]:
        recipes = [replace(task("trec").recipe, **changed), task("trec").recipe]
        return make_design(models, task("trec"), recipes, (4, 7), around).record

    assert design(tuning_trials=99)["question"] == design()["question"]
    assert design(tuning_trials=99)["key"] == design()["key"]
    assert design(rate=0.5)["question"] != design()["question"]


def test_task_by_task_and_for_each_seed_all_models() -> None:
    assert order(declared(TWO)) == [
        (name, model, seed)
        for name in ("trec", "sick_relatedness")
        for seed in (4, 7)
        for model in (A, B)
    ]


def test_one_name_of_sixteen_tasks_is_all_of_them() -> None:
    found = declared(replace(TWO, tasks=("mtl16",))).entries
    assert len(found) == 16 * 2 * 2
    assert sum(e.run.task == "mtl16[domain=toys_games]" for e in found) == 4


def test_parts_follow_each_other_and_no_run_is_there_twice() -> None:
    more = Part(models=("disa", "mtsa"), tasks=("trec",), seeds=(7, 8))
    both = declared(TWO, more)
    assert order(both) == [
        *order(declared(TWO)),
        ("trec", "disa.fused", 7),
        ("trec", "disa.fused", 8),
        ("trec", A, 8),
    ]
    keys = [entry.run.key for entry in both.entries]
    assert len(set(keys)) == len(keys)


def test_the_record_of_a_sweep() -> None:
    record = declared(TWO).record(FINGERPRINT)
    assert (record["kind"], record["models"]) == ("sweep", [A, B])
    assert record["tasks"] == ["trec", "sick_relatedness"]
    assert record["runs"] == [entry.run.key for entry in declared(TWO).entries]
    assert record["key"] == declared(TWO).record(FINGERPRINT)["key"]
    assert record["key"] != declared(replace(TWO, seeds=(4, 8))).record(FINGERPRINT)["key"]
    assert "plan" not in record


def test_the_record_of_a_sweep_tells_the_file_that_asked(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('models = ["none"]\ntasks = ["mirrored_summation"]\nseeds = 1\n')
    options = SweepOptions(plan=path)
    record = sweep_of(options)[0].record(FINGERPRINT)
    hashed = hashlib.sha256(path.read_bytes()).hexdigest()
    assert record["plan"] == {"file": "mine.toml", "sha256": hashed, "committed": ""}
    assert schema.fault(record) == ""
    assert schema.fault({**record, "plan": {"file": 3}}) != ""


@pytest.mark.parametrize(
    ("seeds", "folds", "found"),
    [
        (None, False, [(0, 0), (0, 1), (0, 2)]),
        ((4, 7), True, [(0, 0), (0, 1), (0, 2)]),
        ((4, 7), False, [(4, 0), (4, 1), (4, 2), (7, 0), (7, 1), (7, 2)]),
    ],
)
@pytest.mark.usefixtures("folded")
def test_folds_and_seeds(seeds: tuple | None, folds: bool, found: list) -> None:
    part = Part(("mtsa", "multi_head"), ("folded", "trec"), seeds, folds)
    entries = declared(part).entries
    mine = [(e.run.seed, e.run.fold) for e in entries if e.run.task == "folded"]
    assert mine == [unit for unit in found for _ in range(2)]
    others = [e.run.seed for e in entries if e.run.task == "trec"]
    assert others == [s for s in (seeds or range(5)) for _ in range(2)]
    assert len({e.run.key for e in entries}) == len(entries)


@pytest.mark.usefixtures("folded")
def test_a_fold_stands_in_the_case_and_in_the_command() -> None:
    entry = declared(Part(("mtsa",), ("folded",))).entries[2]
    assert entry.run.case == "mtsa.fused folded seed 0 fold 2"
    assert "--seed 0 --fold 2" in command(entry, SWEPT, again=False)


SWEPT = SweepOptions(models=("mtsa",), tasks=("trec",))


def test_the_command_of_a_run_has_what_is_for_its_model_and_no_more() -> None:
    part = Part(
        ("mtsa[scale_t=identity]", "multi_head"),
        ("trec", "mirrored_summation"),
        (3,),
        recipe=("epochs=2", "mtsa:rate=0.1", "multi_head.sdpa:rate=0.2"),
        vectors="none",
    )
    first, second, third, _ = declared(part).entries
    chosen = replace(SWEPT, data="a b", device="cpu", journal=Path("j"))
    assert command(first, chosen, again=False) == (
        "attnbench train 'mtsa.fused[scale_t=identity]' --task trec --seed 3 "
        "--recipe epochs=2 --recipe mtsa:rate=0.1 --vectors none --data 'a b' --device cpu "
        "--journal j"
    )
    assert command(second, SWEPT, again=False) == (
        "attnbench train multi_head.sdpa --task trec --seed 3 --recipe epochs=2 --recipe "
        "multi_head.sdpa:rate=0.2 --vectors none"
    )
    assert "--vectors" not in command(third, chosen, again=False)
    assert "--data" not in command(third, chosen, again=False)
    assert (first.run.recipe.rate, second.run.recipe.rate) == (0.1, 0.2)


def test_as_many_runs_at_a_time_as_gpus_and_cores_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_gpus", lambda: [("0", "H200"), ("1", "H200")])
    for threads, workers in ((32, 8), (6, 6), (1, 2)):
        assert local.workers_for(0, {"device": "cuda", "threads": threads}) == workers
    two = {"device": "cuda", "threads": 6}
    assert local.workers_for(3, two) == 3
    assert local.workers_for(0, two, per_gpu=5) == 10
    assert local.local_executor(two, 3).workers == 3
    assert local.local_executor(two, 3, per_gpu=1).workers == 2
    assert local.workers_for(0, {"device": "cpu", "threads": 6}) == 6


PLAN = """
models = ["mtsa", "multi_head"]
seeds = 2
recipe = ["epochs=10"]
with = ["own:Mean"]

[[part]]
tasks = ["trec"]

[[part]]
tasks = ["mirrored_summation"]
models = ["none"]
seeds = [3, 7]
recipe = ["rate=0.1"]
choose = "best-on-test"
"""


def test_a_file_of_parts(tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    parts, given = read_file(tmp_path / "plan.toml")
    assert given == ["own:Mean"]
    assert parts == [
        Part(("mtsa", "multi_head"), ("trec",), (0, 1), recipe=("epochs=10",)),
        Part(
            ("none",),
            ("mirrored_summation",),
            (3, 7),
            recipe=("epochs=10", "rate=0.1", "choose=best-on-test"),
        ),
    ]


def test_a_file_of_one_part(tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text('models = ["mtsa"]\ntasks = ["cr"]\nfolds = true\nvectors = "none"\n')
    assert read_file(path) == ([Part(("mtsa",), ("cr",), folds=True, vectors="none")], [])


ONE = 'models = ["mtsa"]\ntasks = ["trec"]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("models = [", "is no TOML: "),
        ('models = ["mtsa"]', "no tasks; give tasks = [...]"),
        ('models = "mtsa"\ntasks = ["trec"]', "models = 'mtsa'; expected a list of texts"),
        (ONE + "seed = 3", "unknown key 'seed'; a sweep has models, tasks, seeds"),
        (ONE + "seeds = 0", "seeds = 0; expected how many"),
        (ONE + "seeds = true", "seeds = True; expected how many"),
        (ONE + "seeds = [-1]", "seeds = [-1]; expected how many"),
        (ONE + "seeds = 1.5", "seeds = 1.5; expected how many"),
        (ONE + "folds = 10", "folds = 10; expected e.g. true"),
        (
            ONE + "recipe = { epochs = 5 }",
            "recipe = {'epochs': 5}; expected a list of texts, e.g. [\"epochs=10\"]",
        ),
        (ONE + "part = 3", "write [[part]]"),
        (ONE + "[part]\nseeds = 3", "write [[part]]"),
        (ONE + "[[part]]\ntask = 3", "unknown key 'task'"),
        (ONE + 'question = "Is it?"', "declares a comparison; give attnbench compare --plan"),
    ],
)
def test_a_mistake_in_a_file_is_told(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_file(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


def crossed(path: Path) -> tuple[list[Part], set[int]]:
    """What a sweep, or the design of a comparison, trains; and seeds that are among its own."""
    if "\nquestion = " in path.read_text():
        options, _ = planned(CompareOptions(plan=path))
        assert options.seeds is not None
        models = (*options.names, str(options.baseline))
        part = Part(models, options.tasks, options.seeds, recipe=options.changes)
        return [part], set(options.seeds)
    parts, given = read_file(path)
    assert given == []
    # What recipes are tried by is a seed of its own: no published run has it.
    return parts, {100} if path.stem.startswith("tuning") else set(range(5))


@pytest.mark.parametrize("path", sorted((ROOT / "plans").glob("*.toml")), ids=lambda p: p.stem)
def test_every_model_of_the_published_plans_can_be_built(path: Path) -> None:
    parts, asked = crossed(path)
    entries = declared(*parts).entries
    assert {e.run.seed for e in entries} >= asked
    for run in {(str(e.run.model), e.run.task): e.run for e in entries}.values():
        words, model = 16 if run.task.startswith("mirrored") else 100, run.model
        _, width = encoder(model.name, dict(model.options), words, run.recipe, Registry(), 0)
        assert width in (words, run.recipe.width)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (replace(TWO, models=("mtsa", "mtsa.fused")), "models: given mtsa.fused, mtsa"),
        (replace(TWO, tasks=("trec", "trec")), "tasks: given trec, trec; expected"),
        (replace(TWO, seeds=(1, 1)), "seeds: given 1, 1; expected at least one, each of them once"),
        (replace(TWO, seeds=()), "seeds: given none"),
        (replace(TWO, folds=True), "folds: none of trec, sick_relatedness is a task with folds"),
        (replace(TWO, recipe=("disa:rate=1",)), "names 'disa'; the models are mtsa"),
    ],
)
def test_a_sweep_that_cannot_be_is_refused(part: Part, says: str) -> None:
    with pytest.raises(UsageError) as error:
        declared(part)
    assert says in str(error.value)


def test_several_recipes_of_a_model_are_told_apart() -> None:
    parts = [
        Part(("none",), ("trec",), (0,), recipe=("epochs=1", *more))
        for more in ((), ("rate=5e-3",), ("rate=1e9",))
    ]
    sweep = declared(*parts)
    names = [f"none.fused trec seed 0 ({more}epochs=1)" for more in ("", *RATES)]
    assert list(sweep.names.values()) == names
    ok, diverged = {"status": "ok", "seconds": 1.0}, {"status": "diverged", "detail": "too fast"}
    records = {key: {**RESULT, **ok} for key in sweep.names}
    records[sweep.entries[2].run.key] = diverged
    (failed,) = failures(sweep, records, SWEPT)
    assert (failed["run"], failed["detail"]) == (names[2], "too fast")
    assert "--recipe epochs=1 --recipe rate=1e9 --again" in failed["command"]
    table = printed(lambda out: print_table(out, sweep, records))
    for more in ("", *RATES):
        assert f"none.fused ({more}epochs=1)" in table


RATES = ("rate=0.005, ", "rate=1e+09, ")
RESUMED = comparisons.run(
    "mtsa",
    0,
    0.5,
    case="mtsa trec seed 0",
    task_seconds=40.0,
    seconds=3640.0,
    resumed=1,
    epochs=RESULT["epochs"],
)


def _said(record: dict[str, Any]) -> str:
    return printed(lambda out: Told(out, {}, lambda **_: None).finished(record))


def test_a_resumed_run_took_the_time_of_all_its_pieces() -> None:
    assert "mtsa trec seed 0: ok in 60.7 min, 1 epochs" in _said(RESUMED)
    sweep = declared(Part(("mtsa",), ("trec",), (0,)))
    known = {sweep.entries[0].run.key: RESUMED}
    assert "3640.0" in printed(lambda out: print_table(out, sweep, known))


def test_a_run_of_which_no_time_is_known_is_shown_without_one() -> None:
    record = {k: v for k, v in RESUMED.items() if k not in ("task_seconds", "seconds", "case")}
    assert _said({**record, "status": "crash"}) == "mtsa seed 0: crash\n"


def test_ray_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"--executor ray: can't import ray .*'\.\[cluster\]'"):
        import_ray()
