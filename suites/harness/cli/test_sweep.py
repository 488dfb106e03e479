"""``attnbench sweep``: what is planned, in which order; and real sweeps on made-up corpora."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli import executors
from harness.cli.sweep_text import command
from harness.errors import UsageError
from harness.experiments import sweep as sweeps
from harness.experiments.design import Surroundings, make_design
from harness.experiments.executors.ray import import_ray
from harness.experiments.model import parse_model
from harness.experiments.sweep import Part, Sweep, make_sweep, read_file
from harness.options import SweepOptions
from harness.records import journal
from harness.registry import Registry
from harness.train.objective import encoder
from harness.train.task import Task, task
from suites.support.command_line import ROOT, attnbench, environment, verified_before
from suites.support.made_up_data import write_data_directory

QUICK = tuple(
    shlex.split(
        "--recipe width=12 --recipe heads=2 --recipe hidden=10 --recipe epochs=2 --device cpu"
    )
)
FINGERPRINT = {"device": "cpu", "model": "made up"}
A, B = "mtsa.fused", "multi_head.sdpa"


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task of three folds beside the real ones."""
    found = replace(task("trec"), name="folded", folds=3)
    monkeypatch.setattr(sweeps, "find_task", lambda name: found if name == "folded" else task(name))


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
        ("trec", A, 4),
        ("trec", B, 4),
        ("trec", A, 7),
        ("trec", B, 7),
        ("sick_relatedness", A, 4),
        ("sick_relatedness", B, 4),
        ("sick_relatedness", A, 7),
        ("sick_relatedness", B, 7),
    ]


def test_parts_follow_each_other_and_no_run_is_there_twice() -> None:
    more = Part(models=("disa", "mtsa"), tasks=("trec",), seeds=(7, 8))
    both = declared(TWO, more)
    assert order(both) == [
        *order(declared(TWO)),
        ("trec", "disa.chunked", 7),
        ("trec", "disa.chunked", 8),
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


def test_seeds_where_none_are_given() -> None:
    found = declared(replace(TWO, models=("mtsa",), tasks=("trec",), seeds=None)).entries
    assert [(e.run.seed, e.run.fold) for e in found] == [(i, None) for i in range(5)]


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
    monkeypatch.setattr(executors, "_gpus", lambda: [("0", "H200"), ("1", "H200")])
    for threads, workers in ((32, 8), (6, 6), (1, 2)):
        assert executors.workers_for(0, {"device": "cuda", "threads": threads}) == workers
    two = {"device": "cuda", "threads": 6}
    assert executors.workers_for(3, two) == 3
    assert executors.workers_for(0, two, per_gpu=5) == 10
    assert executors.local_executor(two, 3).workers == 3
    assert executors.local_executor(two, 3, per_gpu=1).workers == 2
    assert executors.workers_for(0, {"device": "cpu", "threads": 6}) == 6


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
    ],
)
def test_a_mistake_in_a_file_is_told(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as error:
        read_file(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("path", sorted((ROOT / "plans").glob("*.toml")), ids=lambda p: p.stem)
def test_every_model_of_the_published_plans_can_be_built(path: Path) -> None:
    parts, given = read_file(path)
    assert given == []
    entries = declared(*parts).entries
    # What recipes are tried by is a seed of its own: no published run has it.
    asked = {100} if path.stem.startswith("tuning") else set(range(5))
    assert {e.run.seed for e in entries} >= asked
    for run in {(str(e.run.model), e.run.task): e.run for e in entries}.values():
        words: Any = SimpleNamespace(width=16 if run.task.startswith("mirrored") else 100)
        model = run.model
        _, width = encoder(model.name, dict(model.options), words, run.recipe, Registry(), 0)
        assert width in (words.width, run.recipe.width)


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


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_directory(tmp_path_factory.mktemp("data"))


SWEEP = ("sweep", "--models", "mtsa,multi_head", "--tasks", "trec,sick_relatedness", *QUICK)


@pytest.fixture(scope="module")
def swept(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A finished sweep with five seeds."""
    folder = tmp_path_factory.mktemp("swept")
    verified_before(folder / "results")
    done = attnbench(*SWEEP, "--data", str(data), "--json", "out.json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def records(folder: Path, kind: str = "run") -> list[dict]:
    return [r for r in journal.read(folder / "results").records if r["kind"] == kind]


def lines(folder: Path) -> list[dict]:
    """Every run in a journal, with those that reading would merge."""
    found = [
        json.loads(line)
        for path in (folder / "results").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [line for line in found if line["kind"] == "run"]


def test_a_real_sweep(swept: tuple) -> None:
    folder, done = swept
    told = [line for line in done.stderr.splitlines() if "is not the file of attnbench" in line]
    assert len(told) == 5, "made up: two files of trec, three of sick_relatedness, once each"
    kinds = [r["kind"] for r in journal.read(folder / "results").records]
    assert kinds.index("sweep") < kinds.index("run")
    assert (kinds.count("sweep"), kinds.count("run")) == (1, 20)
    runs = records(folder)
    assert {r["status"] for r in runs} == {"ok"}
    # Ten of a task, before the first of the next has ended.
    assert {r["task"] for r in runs[:9]} == {"trec"}
    assert {r["key"] for r in runs} == set(records(folder, "sweep")[0]["runs"])
    assert "20 of 20 runs are ok, 0 failed" in done.stdout
    assert re.search(r"ok in [\d.]+ s, \d+ epochs; 11 of 20, [\d.]+ \w+ left\n", done.stdout)
    assert re.search(r"epochs; 20 of 20\n", done.stdout)
    found = json.loads((folder / "out.json").read_text())
    assert (found["runs"], found["trained"], found["failures"]) == (20, 20, [])


def test_a_sweep_shows_no_metric(swept: tuple) -> None:
    folder, done = swept
    assert "accuracy" not in done.stdout
    assert "pearson" not in done.stdout
    for run in records(folder):
        for value in run["test"].values():
            assert f"{value:.3f}" not in done.stdout
            assert f"{100 * value:.2f}" not in done.stdout


def test_compare_finds_the_runs_of_a_sweep(swept: tuple, data: Path) -> None:
    folder, _ = swept
    compared = attnbench(
        "compare", "mtsa", "multi_head", "--task", "trec", *QUICK, "--data", str(data), cwd=folder
    )
    assert compared.returncode == 0, compared.stdout + compared.stderr
    assert "10 runs, 10 of them already there" in compared.stdout
    assert "before this design was declared" not in compared.stdout
    assert "seeds changed after looking" not in compared.stdout
    assert len(records(folder)) == 20


def test_nothing_is_swept_twice(swept: tuple, data: Path) -> None:
    folder, _ = swept
    before = len(list((folder / "results").glob("*.jsonl")))
    again = attnbench(*SWEEP, "--data", str(data), cwd=folder)
    assert again.returncode == 0
    assert "20 runs, 20 of them already there" in again.stdout
    assert len(list((folder / "results").glob("*.jsonl"))) == before


def test_a_torn_line_is_told(swept: tuple, data: Path, tmp_path: Path) -> None:
    shutil.copytree(swept[0] / "results", tmp_path / "results")
    [file] = [p for p in (tmp_path / "results").glob("*.jsonl") if '"kind":"run"' in p.read_text()]
    file.write_text(file.read_text()[:-200])
    dry = attnbench(*SWEEP, "--data", str(data), "--dry-run", cwd=tmp_path)
    assert "1 of 20 runs are missing" in dry.stdout
    assert re.search(rf"journal: .*{file.name}.*skipped", dry.stdout), dry.stdout


def test_a_dry_run_lists_and_predicts(swept: tuple, data: Path) -> None:
    folder, _ = swept
    before = sorted((folder / "results").glob("*"))
    dry = attnbench(
        *SWEEP,
        "--data",
        str(data),
        *shlex.split("--seeds 7 --dry-run --json dry.json --jobs 2"),
        cwd=folder,
    )
    assert dry.returncode == 0, dry.stdout + dry.stderr
    found = json.loads((folder / "dry.json").read_text())
    assert [row["there"] for row in found["runs"]] == ([True] * 10 + [False] * 4) * 2
    assert (found["missing"], found["unknown"], found["workers"]) == (8, {}, 2)
    each = [row["seconds"] for row in found["runs"] if not row["there"]]
    assert found["predicted_seconds"] >= sum(each) / 2
    assert "mtsa.fused trec seed 0: there" in dry.stdout
    assert re.search(r"mtsa\.fused trec seed 6: missing, about [\d.]+ (s|min)", dry.stdout)
    assert re.search(r"8 of 28 runs are missing: about [\d.]+ (s|min), 2 at a time", dry.stdout)
    assert sorted((folder / "results").glob("*")) == before


def test_a_dry_run_says_what_it_does_not_know(swept: tuple, data: Path) -> None:
    folder, _ = swept
    dry = attnbench(
        *shlex.split("sweep --models mtsa,none --tasks trec"),
        *QUICK,
        "--data",
        str(data),
        *shlex.split("--seeds 6 --dry-run --json dry.json"),
        cwd=folder,
    )
    assert dry.returncode == 0, dry.stdout + dry.stderr
    found = json.loads((folder / "dry.json").read_text())
    assert found["predicted_seconds"] is None
    assert found["unknown"] == {"none.fused on trec": 6}
    assert "for want of a first run: none.fused on trec (6); the other 1 take about" in dry.stdout


@pytest.mark.nightly
def test_several_recipes_of_a_model_are_told_apart(data: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        'models = ["none"]\ntasks = ["trec"]\nseeds = 1\n'
        'recipe = ["width=12", "heads=2", "hidden=10", "epochs=1"]\n'
        '[[part]]\n[[part]]\nrecipe = ["rate=5e-3"]\n[[part]]\nrecipe = ["clip=-1"]\n'
    )
    bad = attnbench("sweep", "plan.toml", "--data", str(data), "--device", "cpu", cwd=tmp_path)
    assert "clip=-1.0; expected at least 0" in bad.stderr
    text = (tmp_path / "plan.toml").read_text().replace("clip=-1", "rate=1e9")
    (tmp_path / "plan.toml").write_text(text)
    own = "width=12, heads=2, hidden=10, {}epochs=1"
    names = [
        f"none.fused trec seed 0 ({own.format(more)})"
        for more in ("", "rate=0.005, ", "rate=1e+09, ")
    ]
    ask = ("sweep", "plan.toml", "--data", str(data), "--device", "cpu", "--json", "out.json")
    dry = attnbench(*ask, "--dry-run", cwd=tmp_path)
    assert [line for line in dry.stdout.splitlines() if line.endswith(": missing")] == [
        f"{name}: missing" for name in names
    ]
    done = attnbench(*ask, cwd=tmp_path)
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    for name, status in zip(names, ("ok", "ok", "diverged"), strict=True):
        assert sum(line.startswith(f"{name}: {status}") for line in lines) == 1 + (status != "ok")
        assert sum(name.replace(" trec seed 0", "") in line for line in lines) == 1, done.stdout
    (failed,) = json.loads((tmp_path / "out.json").read_text())["failures"]
    assert failed["run"] == names[2]
    assert "--recipe rate=1e9" in failed["command"]
    assert {r["case"] for r in records(tmp_path)} == {"none.fused trec seed 0"}


@pytest.mark.nightly
def test_killed_and_started_again(data: Path, tmp_path: Path) -> None:
    (tmp_path / "plan.toml").write_text(
        'models = ["mtsa", "multi_head"]\ntasks = ["trec"]\nseeds = 5\n'
        'recipe = ["width=12", "heads=2", "hidden=10", "epochs=2"]\n'
    )
    arguments = ("sweep", "plan.toml", "--data", str(data), "--device", "cpu", "--jobs", "2")
    driver = subprocess.Popen(
        [sys.executable, "-m", "harness", *arguments],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 280
    while not (tmp_path / "results").exists() or len(records(tmp_path)) < 3:
        assert time.monotonic() < deadline, "no three runs ended"
        assert driver.poll() is None, "it ended before it could be killed"
        time.sleep(0.1)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    survived = {r["key"]: r for r in records(tmp_path)}
    # The pairs that there are can be compared: all models of a seed stand together.
    assert {r["seed"] for r in survived.values()} >= {0}
    again = attnbench(*arguments, cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert all(r == survived[r["key"]] for r in records(tmp_path) if r["key"] in survived)
    keys = [r["key"] for r in lines(tmp_path)]
    assert len(keys) == len(set(keys)) == 10, "something was trained twice"
    assert len(records(tmp_path, "sweep")) == 1


def test_failures_come_last_each_with_its_command(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = attnbench(
        *shlex.split("sweep --models mtsa,multi_head --tasks trec --seeds 2"),
        *QUICK,
        *shlex.split("--recipe mtsa:rate=1e30 --recipe mtsa:clip=0 --data"),
        str(data),
        "--json",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout.strip().splitlines()
    assert said[-1].startswith("2 of 4 runs are ok, 2 failed")
    assert re.match(r"mtsa\.fused trec seed 0: diverged: the loss is", said[-5])
    assert said[-4].startswith("  attnbench train mtsa.fused --task trec --seed 0 --recipe")
    failed = json.loads((tmp_path / "out.json").read_text())["failures"]
    assert [f["status"] for f in failed] == ["diverged", "diverged"]
    words = shlex.split(failed[1]["command"])
    assert words[0] == "attnbench"
    repeated = attnbench(*words[1:], cwd=tmp_path)
    assert repeated.returncode == 1
    assert "this run is in the journal; trained again, its record stays" in repeated.stdout
    assert "mtsa.fused trec seed 1: diverged: the loss is" in repeated.stdout
    assert len(lines(tmp_path)) == 4


def test_a_sweep_without_data(tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = attnbench(
        *shlex.split("sweep --models none,multi_head --tasks mirrored_summation --seeds 1"),
        *QUICK,
        "--recipe",
        "epochs=1",
        "--recipe",
        "batch=1000",
        cwd=tmp_path,
        ATTNBENCH_DATA="",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert {r["model"] for r in records(tmp_path)} == {"none.fused", B}


def test_a_model_that_cannot_be_built_stops_the_sweep_before_it_begins(
    data: Path, tmp_path: Path
) -> None:
    done = attnbench(
        *shlex.split(
            "sweep --models multi_head,multi_cnn,bi_lstm --tasks trec --recipe width=64 "
            "--recipe heads=2 --data"
        ),
        str(data),
        "--device",
        "cpu",
        cwd=tmp_path,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert "multi_cnn.conv on trec can't be built: " in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists()


def test_ray_that_is_not_installed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"--executor ray: can't import ray .*'\.\[cluster\]'"):
        import_ray()
