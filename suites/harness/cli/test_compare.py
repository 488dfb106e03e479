"""``train``, ``sweep`` and ``compare`` for real, on made-up corpora; a journal that grows.

Five seeds of a pair are compared; a sweep adds another task to a copy of that journal; a family of
models over both tasks adds another model to a copy of that.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.cli import compare
from harness.experiments.conclusion import conclude, conclusions
from harness.experiments.declare import read_margins
from harness.experiments.model import parse_model, recipes_of
from harness.options.readers import MARGIN
from harness.records import journal
from harness.registry import Registry, code_hash
from harness.stats import PRIOR
from harness.train.run import count_parameters
from harness.train.task import task
from suites.support import comparisons
from suites.support.command_line import OWN, TOY, here, printed, verified_before
from suites.support.fake_training import at_once
from suites.support.made_up_data import write_data_directory

QUICK = (
    "--recipe width=12 --recipe heads=2 --recipe hidden=10 --recipe epochs=2 --device cpu "
    "--json out.json"
)
PAIR = f"compare mtsa multi_head --task trec {QUICK}"
SWEEP = f"sweep --models mtsa,multi_head --tasks trec,sick_relatedness {QUICK}"
BASE = "multi_head.sdpa"


@pytest.fixture(scope="module", autouse=True)
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The data directory of all commands."""
    folder = write_data_directory(tmp_path_factory.mktemp("data"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNBENCH_DATA", str(folder))
        yield folder


def told(line: str, cwd: Path, code: int = 0) -> str:
    """What a command says that ends with such a code."""
    return here(line, cwd=cwd, code=code).stdout


def result(folder: Path) -> Any:
    return json.loads((folder / "out.json").read_text())


def records(folder: Path, *kinds: str) -> list[dict[str, Any]]:
    return [r for r in journal.read(folder / "results").records if r["kind"] in (kinds or ["run"])]


def copied(folder: Path, place: Path) -> Path:
    shutil.copytree(folder / "results", place / "results")
    return place


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A finished comparison with five seeds."""
    folder = tmp_path_factory.mktemp("compared")
    verified_before(folder / "results")
    return folder, told(PAIR, folder)


@pytest.fixture(scope="module")
def swept(
    compared: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str, str]:
    """A sweep of two seeds of which one task is there already."""
    folder = copied(compared[0], tmp_path_factory.mktemp("swept"))
    done = here(f"{SWEEP} --seeds 2", cwd=folder, code=0)
    return folder, done.stdout, done.stderr


MANY = f"compare mtsa bi_lstm --baseline multi_head --task trec --task sick_relatedness {QUICK}"


@pytest.fixture(scope="module")
def family(
    swept: tuple[Path, str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, str]:
    """Two models against one on two tasks, with two seeds; nobody has seen a result before."""
    folder = copied(swept[0], tmp_path_factory.mktemp("family"))
    for path in (folder / "results").glob("*.jsonl"):
        if '"kind":"verdict"' in path.read_text():
            path.unlink()
    return folder, told(f"{MANY} --seeds 2", folder)


def in_order(text: str, *words: str) -> bool:
    places = [text.index(word) for word in words]
    return places == sorted(places)


def test_the_interval_comes_first_then_the_tests(compared: tuple[Path, str]) -> None:
    text = compared[1]
    assert in_order(
        text,
        "against multi_head.sdpa on trec",
        "5 paired seeds, width",
        "points [",
        "over 5 paired seeds",
        "split: official test set",
        "seed  mtsa.fused",
        "mean  ",
        "95 % t-interval [",
        "P(better) / P(worse)",
        "noninformative Normal-Gamma prior; no verdict goes by it",
        "p (paired t, two-sided)",
        "Hedges g",
        "minimum detectable effect",
        "sign-flip",
        "parameters",
        "cover",
        "warning:",
    )
    assert re.search(r"unequal parameters: mtsa.fused has [\d,]+, multi_head.sdpa", text)
    assert "one and the same test set" in text


def test_the_json_says_the_same(compared: tuple[Path, str]) -> None:
    folder, text = compared
    found = result(folder)
    assert found["sentence"] in text
    assert [v[0] for v in found["values"]] == [0, 1, 2, 3, 4]
    differences = [first - second for _, first, second in found["values"]]
    assert found["difference"]["difference"] == pytest.approx(np.mean(differences))
    assert found["chances"]["equal"] is None, "no margin was declared"
    by_run = {(r["model"], r["seed"]): r["test"]["accuracy"] for r in records(folder)}
    for seed, first, second in found["values"]:
        assert (first, second) == (by_run["mtsa.fused", seed], by_run[BASE, seed])


def test_a_run_records_everything(compared: tuple[Path, str]) -> None:
    runs = records(compared[0])
    for run in runs:
        assert run["status"] == "ok"
        assert run["data"] == runs[0]["data"] != ""
        assert run["recipe"]["epochs"] == 2
        assert [e["epoch"] for e in run["epochs"]] == [1, 2]
        assert run["parameters_with_words"] > run["parameters"] > 0
        assert run["seconds"] > 0
        assert run["peak_bytes"] > 0
        assert run["coverage"]["vocabulary"] > 0


def test_nothing_is_trained_twice(compared: tuple[Path, str], tmp_path: Path) -> None:
    folder = copied(compared[0], tmp_path)
    files = sorted((folder / "results").iterdir())
    again = told(PAIR, folder)
    assert "10 runs, 10 of them already there" in again
    assert result(compared[0])["sentence"] in again
    assert "seeds changed after looking" not in again
    line = f"train multi_head --seed 4 --task trec {QUICK}"
    shown = told(line, folder)
    assert "in the journal results already" in shown
    assert f"looked at once: accuracy {100 * result(folder)['test']['accuracy']:.2f} %" in shown
    assert sorted((folder / "results").iterdir()) == files


def test_a_changed_design_is_told(compared: tuple[Path, str], tmp_path: Path) -> None:
    folder = copied(compared[0], tmp_path)
    fewer = told(f"{PAIR} --seeds 4", folder)
    assert "8 runs, 8 of them already there" in fewer
    assert "seeds changed after looking: results were seen with 5, now there are 4" in fewer
    margin = told(f"{PAIR} --margin 50%", folder)
    assert "margin was changed after results had been seen" in margin
    assert "practically equal on trec" in margin
    assert "p (equal within 50.00 points, TOST)" in margin
    assert "P(better) / P(equal) / P(worse)" in margin
    assert "<0.01 / >0.99 / <0.01 (correlated Bayesian t-test" in margin


def test_a_real_sweep(swept: tuple[Path, str, str]) -> None:
    folder, text, error = swept
    unlike = [line for line in error.splitlines() if "is not the file of attnbench" in line]
    assert len(unlike) == 3, "made up: the files of sick_relatedness, once each"
    kinds = [r["kind"] for r in records(folder, "sweep", "run")]
    assert kinds == [*["run"] * 10, "sweep", *["run"] * 4]
    assert {r["status"] for r in records(folder)} == {"ok"}
    keys = [r["key"] for r in records(folder) if r["seed"] < 2]
    assert set(records(folder, "sweep")[0]["runs"]) == set(keys)
    assert "8 runs, 4 of them already there" in text
    assert "8 of 8 runs are ok, 0 failed" in text
    assert re.search(r"ok in [\d.]+ s, \d+ epochs; 3 of 4, [\d.]+ \w+ left\n", text)
    assert re.search(r"epochs; 4 of 4\n", text)
    found = result(folder)
    assert (found["runs"], found["trained"], found["failures"]) == (8, 4, [])


def test_a_sweep_shows_no_metric(swept: tuple[Path, str, str]) -> None:
    folder, text, _ = swept
    for run in records(folder):
        for name, value in run["test"].items():
            assert name not in text
            assert f"{value:.3f}" not in text
            assert f"{100 * value:.2f}" not in text


def test_compare_finds_the_runs_of_a_sweep_and_concludes_nothing_of_few(
    swept: tuple[Path, str, str], tmp_path: Path
) -> None:
    folder = copied(swept[0], tmp_path)
    text = told(f"compare mtsa multi_head --task sick_relatedness --seeds 2 {QUICK}", folder)
    assert "4 runs, 4 of them already there" in text
    assert "before this design was declared" not in text
    assert "difference of pearson (higher is better)" in text
    assert set(records(folder)[-1]["test"]) == {"pearson", "spearman", "mse"}
    assert "too few seeds to conclude" in text
    assert "95 % t-interval [" in text
    for test in ("p (", "Hedges", "minimum detectable"):
        assert test not in text, "described, not tested"


def test_a_dry_run_lists_and_predicts_and_tells_a_torn_line(
    swept: tuple[Path, str, str], tmp_path: Path
) -> None:
    folder = copied(swept[0], tmp_path)
    (file,) = [p for p in (folder / "results").glob("*.jsonl") if '"kind":"sweep"' in p.read_text()]
    file.write_text(file.read_text()[:-200])
    files = sorted((folder / "results").iterdir())
    text = told(f"{SWEEP} --seeds 3 --dry-run --jobs 2", folder)
    assert re.search(rf"journal: .*{file.name}.*skipped", text), text
    found = result(folder)
    there = [row["there"] for row in found["runs"]]
    assert (there[:6], sorted(there[6:])) == ([True] * 6, [False] * 3 + [True] * 3)
    assert (found["missing"], found["unknown"], found["workers"]) == (3, {}, 2)
    each = [row["seconds"] for row in found["runs"] if not row["there"]]
    assert found["predicted_seconds"] >= sum(each) / 2
    assert "mtsa.fused trec seed 0: there" in text
    assert re.search(r"mtsa\.fused sick\w+ seed 2: missing, about [\d.]+ (s|min)", text)
    assert re.search(r"3 of 12 runs are missing: about [\d.]+ (s|min), 2 at a time", text)
    assert sorted((folder / "results").iterdir()) == files


def test_a_dry_run_says_what_it_does_not_know(swept: tuple[Path, str, str], tmp_path: Path) -> None:
    folder = copied(swept[0], tmp_path)
    line = f"sweep --models mtsa,none --tasks trec,{TOY} --seeds 6 --dry-run {QUICK}"
    text = told(line, folder)
    found = result(folder)
    assert found["predicted_seconds"] is None
    none = [f"{model} on {TOY}" for model in ("mtsa.fused", "none.fused")]
    assert found["unknown"] == {"none.fused on trec": 6, **dict.fromkeys(none, 6)}
    assert "for want of a first run: none.fused on trec (6), " in text
    assert "; the other 1 take about" in text


def test_a_failure_is_a_result_and_comes_last_with_its_command(
    compared: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    folder = copied(compared[0], tmp_path)
    wrong = "--recipe mtsa:rate=1e18 --recipe mtsa:clip=0"
    two = "sweep --models mtsa,multi_head --tasks trec --seeds 2"
    said = told(f"{two} {QUICK} {wrong} --data {data}", folder, 1).strip().splitlines()
    assert said[-1].startswith("2 of 4 runs are ok, 2 failed")
    assert re.match(r"mtsa\.fused trec seed 0: diverged: the loss is", said[-5])
    assert said[-4].startswith("  attnbench train mtsa.fused --task trec --seed 0 --recipe")
    failed = result(folder)["failures"]
    assert [f["status"] for f in failed] == ["diverged", "diverged"]
    program, *words = shlex.split(failed[1]["command"])
    assert program == "attnbench"
    repeated = told(shlex.join(words), folder, 1)
    assert "this run is in the journal; trained again, its record stays" in repeated
    assert "mtsa.fused trec seed 1: diverged: the loss is" in repeated
    written = [path.read_text() for path in (folder / "results").glob("*.jsonl")]
    assert "".join(written).count('"kind":"run"') == 10 + 2
    text = told(f"{PAIR} --seeds 2 {wrong} --recipe mtsa:tuning_trials=4", folder, 1)
    assert "4 runs, 4 of them already there" in text
    assert "2 of 2 runs of mtsa.fused diverged" in text
    assert "the loss is" in text
    assert "unequal tuning budgets: 4 recipes were tried for mtsa.fused" in text
    assert "the recipes differ: rate 1e+18 and 0.001" in text


def test_a_family_is_declared_before_its_first_run_and_trained_once(
    family: tuple[Path, str],
) -> None:
    folder, text = family
    found = records(folder, "family", "run", "verdict")
    ours = found[[r["kind"] for r in found].index("family") :]
    assert [r["kind"] for r in ours] == ["family", *["run"] * 4, "verdict"]
    assert {r["model"] for r in ours if r["kind"] == "run"} == {"bi_lstm.packed"}
    assert ours[-1]["design"] == ours[0]["key"]
    assert sorted(ours[-1]["designs"]) == sorted(d["key"] for d in ours[0]["designs"])
    assert "4 comparisons: mtsa.fused, bi_lstm.packed against multi_head.sdpa" in text
    assert "12 runs, 8 of them already there" in text
    assert "changed after looking" not in text
    (one,) = [c for c in conclusions(records(folder, "family", "run")) if len(c.comparisons) == 4]
    by = {(r["model"], r["task"], r["seed"]): r["test"] for r in records(folder)}
    for c in one.comparisons:
        for seed, first, second in c.values:
            assert first == by[c.first, c.task, seed][c.metric]
            assert second == by[BASE, c.task, seed][c.metric]


def test_tables_tasks_and_warnings_are_printed_and_the_json_holds_all_but_records(
    family: tuple[Path, str],
) -> None:
    folder, text = family
    assert in_order(
        text,
        "2 models against multi_head.sdpa on trec, sick_relatedness: exploratory, declared after "
        "runs of it, or after runs that these repeat: 4 descriptive only",
        "trec: test accuracy (higher is better), 2 paired seeds",
        "mean (sd)",
        "95 % interval",
        "p Holm",
        "baseline",
        "sick_relatedness: test pearson",
        "over tasks: trec, sick",
        "signs only",
        "p Holm and the verdict allow for 4 comparisons",
        "warning:",
        "such tasks have no part in the ranks",
    )
    found = result(folder)
    assert found["sentences"][0] in text
    assert len(found["comparisons"]) == 4
    assert "runs" not in found["comparisons"][0]
    assert text.count("no ranks of fewer than three models; left out, as") == 2, "on either task"
    assert found["ties"] == {}


@pytest.mark.parametrize("count", [6, 7])
def test_groups_of_models_that_cant_be_told_apart_are_printed(count: int) -> None:
    models, tasks = ["a.x", "b.x"], ["trec", "cr"]
    record = comparisons.family(models, tasks, count=count, margin=0.01)
    records: list[dict[str, Any]] = [record]
    wave = 0.002 * np.sin(np.arange(count))
    for name, (model, mean) in product(tasks, ((BASE, 0.8), ("a.x", 0.9), ("b.x", 0.801))):
        own = mean + (wave if model == BASE else wave**2 * len(model))
        records += comparisons.runs(model, own.tolist(), name)
    conclusion = conclude(record, records)
    text = printed(lambda out: compare.print_conclusion(out, conclusion))
    order = "by mean rank: a.x, b.x, multi_head.sdpa"
    few = f"{order}; no two can be told apart by their ranks with fewer"
    assert f"{few} than 7 tasks (Wilcoxon" in text, "whatever the seeds"
    if count == 7:
        how = "Wilcoxon's signed ranks over 7 seeds, Holm over 3 pairs; the smallest p"
        groups = "not told apart: a.x | b.x, multi_head.sdpa"
        assert text.count(f"{groups} ({how} that is possible is 0.047)\n") == 2, "on both tasks"
    else:
        assert text.count(f"{few} than 7 seeds") == 2
        assert text.count("is possible is 0.094)\n") == 2
    assert "P better / equal / worse" in text
    assert ">0.99 / <0.01 / <0.01" in text
    assert f"P: correlated Bayesian t-test, {PRIOR}; no verdict goes by it." in text
    ranked = compare.as_json(conclusion)["ties"]["trec"]
    assert len(json.loads(json.dumps(ranked))["pairs"]) == 3


def test_a_margin_may_be_of_one_task() -> None:
    each = [MARGIN.read("trec:50%"), MARGIN.read("sick_relatedness:1.5")]
    found = read_margins(each, [task("trec"), task("sick_relatedness"), task("mr")])
    assert found == {"trec": 0.5, "sick_relatedness": 1.5, "mr": None}


class Few(Registry):
    """Some mechanisms, one of which needs a width of threes, and what pools every model."""

    def __init__(self, extra: Any = ()) -> None:
        super().__init__(extra)
        kept = ("bi_lstm", "multi_cnn", "multi_head", "source2token")
        self.mechanisms = {name: self.mechanisms[name] for name in kept}


def test_all_against_one_leaves_out_what_cannot_be_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "Registry", Few)
    verified_before(tmp_path / "results")
    line = f"compare --all multi_head --task trec --seeds 1 {QUICK} --recipe width=14"
    with at_once():
        text = told(line, tmp_path)
    assert "left out: multi_cnn.conv: " in text
    assert "2 comparisons: bi_lstm.packed, source2token.direct against multi_head" in text
    assert len(records(tmp_path)) == 3
    done = here(f"{line} --recipe multi_cnn:epochs=2", cwd=tmp_path, code=2)
    assert "--recipe multi_cnn:epochs=2: multi_cnn.conv is left out: " in done.stderr


def test_models_are_narrowed_to_the_smallest(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    line = "compare mtsa bi_lstm --baseline multi_head --task trec --seeds 1 --match parameters"
    text = told(f"{line} {QUICK} --recipe width=60 --recipe epochs=1", tmp_path)
    (found,) = conclusions(records(tmp_path, "family", "run"))
    sizes = {m: cost.parameters for c in found.comparisons for m, cost in c.costs.items()}
    recipes = {
        model: recipe
        for c in found.comparisons
        for model, recipe in zip(c.design["models"], c.design["recipes"], strict=True)
    }
    assert len(sizes) == len(recipes) == 3
    (smallest,) = [model for model, recipe in recipes.items() if recipe["width"] == 60]
    for model in sizes.keys() - {smallest}:
        width = recipes[model]["width"]
        assert width < 60
        assert width % 2 == 0
        counts = count_parameters(
            model,
            "trec",
            recipes[model],
            directory=str(data),
            vectors=task("trec").vectors,
            widths=[width - 2, width, width + 2],
        )
        gaps = [abs(count - sizes[smallest]) for count in counts]
        assert (counts[1], gaps[1]) == (sizes[model], min(gaps))
    assert "as near as a width divisible by the heads allows" in text


def test_a_mechanism_of_ones_own(compared: tuple[Path, str], tmp_path: Path) -> None:
    folder = copied(compared[0], tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    quick = f"--with own:Mean --task trec --seeds 1 {QUICK}"
    assert "Mean.module against multi_head.sdpa" in told(f"compare Mean {quick}", folder)
    assert {r["model"] for r in records(folder)} == {"Mean.module", "mtsa.fused", BASE}
    for line in (
        "compare --task trec",
        "train Leaky --task trec",
        "sweep --models Leaky --tasks trec",
    ):
        leaky = here(f"{line} --with own:Leaky --journal leaky {QUICK}", cwd=tmp_path, code=1)
        assert "Leaky.module is wrong, so it is not trained" in leaky.stderr
        assert "pad" in leaky.stderr
    assert {r["kind"] for r in journal.read(tmp_path / "leaky").records} == {"verify"}


@pytest.mark.parametrize(
    ("given", "edited"),
    [("package_of_one.layers:Mean", "package_of_one/layers.py"), ("single:Mean", "neighbour.py")],
)
def test_own_code_that_changed_is_trained_again(
    given: str, edited: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package without an __init__, and a module that uses its neighbour."""
    (tmp_path / "package_of_one").mkdir()
    (tmp_path / "package_of_one" / "layers.py").write_text(OWN)
    (tmp_path / "single.py").write_text(OWN + "from neighbour import SIZE\n")
    (tmp_path / "neighbour.py").write_text("SIZE = 1\n")
    monkeypatch.syspath_prepend(tmp_path)

    def code() -> str:
        return code_hash(Registry([given]).mechanism("Mean"), "train")

    before = code()
    assert code() == before
    path = tmp_path / edited
    path.write_text(path.read_text() + "# edited\n")
    assert code() != before


def test_word_vectors_and_the_epoch_are_the_users_choice(tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    (tmp_path / "mine.txt").write_text("what 1 0 0\nthe 0 1 0\nis 0 0.5 1\n")
    mine = told(f"train mtsa --task trec {QUICK} --vectors mine.txt", tmp_path)
    assert re.search(r"vectors mine cover \d+\.\d % of \d+ words", mine)
    assert records(tmp_path)[0]["coverage"]["covered"] <= 3
    none = told(f"train mtsa --task trec {QUICK} --vectors none --choose best-on-test", tmp_path)
    assert "cover" not in none
    record = result(tmp_path)
    shown = f"best over time on the test set: accuracy {100 * record['test']['accuracy']:.2f} %"
    assert shown in none
    assert len(records(tmp_path)) == 2


def test_attention_scores_of_given_sentences(compared: tuple[Path, str], tmp_path: Path) -> None:
    folder = copied(compared[0], tmp_path)
    (tmp_path / "more.txt").write_text("Where is the river ?\n\n")
    train = f"train mtsa --task trec {QUICK} --save-attention scores --sentences more.txt"
    text = told(f"{train} --sentence 'What is it ?'", folder)
    assert "trained again for its scores" in text
    assert "attention scores: " in text
    assert len(records(folder)) == 10
    (known,) = [r for r in records(folder) if (r["model"], r["seed"]) == ("mtsa.fused", 0)]
    assert result(folder)["test"] == known["test"], "the same run gave another model"
    with np.load(folder / "results" / "scores.npz", allow_pickle=False) as found:
        assert found["tokens/0"].tolist() == ["What", "is", "it", "?"]
        assert found["tokens/1"].tolist() == ["Where", "is", "the", "river", "?"]
        for k, n in ((0, 4), (1, 5)):
            weights = found[f"token2token_weights/{k}"]
            assert weights.shape == (2, n, n)
            forward, backward = weights.sum(-1)
            assert forward == pytest.approx([0] + [1] * (n - 1), abs=1e-5)
            assert backward == pytest.approx([1] * (n - 1) + [0], abs=1e-5)
            assert (np.triu(weights[0]) == 0).all()
            assert (np.tril(weights[1]) == 0).all()
            pooling = found[f"pooling_weights/{k}"]
            assert pooling.shape == (n, 12)
            assert pooling.sum(0) == pytest.approx(np.ones(12), abs=1e-5)
            assert found[f"source2token_scores/{k}"].shape == (2, n, 6)


def test_a_list_with_an_entry_per_head_is_trained(tmp_path: Path) -> None:
    line = f"train mtsa[masks=forward;none] --task {TOY} {QUICK}"
    model = "mtsa.fused[masks=forward;none]"
    with at_once():
        assert f"{model} {TOY} seed 0: ok" in told(line, tmp_path)
    (checked,) = records(tmp_path, "verify")
    assert (checked["verdict"], "heads=2" in checked["case"]) == ("ok", True)


def test_two_forms_of_one_mechanism_have_recipes_of_their_own() -> None:
    registry, trec = Registry(), task("trec")
    names = ["mtsa", "mtsa[scale_t=identity]"]
    models = [parse_model(name, registry) for name in names]
    changes = ["width=12", "mtsa.fused[scale_t=identity]:width=8"]
    recipes = recipes_of(trec, models, changes)
    assert [recipe.width for recipe in recipes] == [12, 8]
    assert [recipe.tuning_trials for recipe in recipes] == [10, 0], "a form of its own"
