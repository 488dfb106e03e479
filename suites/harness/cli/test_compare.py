"""``attnbench compare`` and ``train`` on made-up corpora."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from harness.experiments.queue import finished
from harness.records import journal
from harness.train.run import count_parameters
from harness.train.task import task
from suites.support.command_line import attnbench, environment, here, verified_before
from suites.support.made_up_data import write_data_directory
from suites.support.made_up_records import RESULT

QUICK = (
    "--recipe",
    "width=12",
    "--recipe",
    "heads=2",
    "--recipe",
    "hidden=10",
    "--recipe",
    "epochs=2",
    "--device",
    "cpu",
)
COMPARE = ("compare", "mtsa", "multi_head", "--task", "trec", *QUICK)

OWN = """
import torch


class Mean(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)

    def forward(self, x, mask):
        x = x.masked_fill(~mask[..., None], 0)
        mean = x.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
        return self.map(x + mean).masked_fill(~mask[..., None], 0)


class Leaky(Mean):
    def forward(self, x, mask):
        return self.map(x + x.mean(1, keepdim=True)).masked_fill(~mask[..., None], 0)


class Explosive(Mean):
    def forward(self, x, mask):
        out = super().forward(x, mask)
        return out * float("inf") if self.training and x.shape[0] > 3 else out
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_directory(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def compared(
    data: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, subprocess.CompletedProcess]:
    """A finished comparison with five seeds."""
    folder = tmp_path_factory.mktemp("compared")
    verified_before(folder / "results")
    done = here(*COMPARE, "--data", str(data), "--json", "out.json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def runs(folder: Path) -> list[dict]:
    return [r for r in journal.read(folder / "results").records if r["kind"] == "run"]


def test_the_interval_comes_first_then_the_tests(compared: tuple) -> None:
    _, done = compared
    text = done.stdout
    words = [
        "against multi_head.sdpa on trec",
        "5 paired seeds, width",
        "points [",
        "over 5 paired seeds",
        "split: official test set",
        "seed  mtsa.fused",
        "mean  ",
        "95 % t-interval [",
        "p (paired t, two-sided)",
        "Hedges g",
        "minimum detectable effect",
        "sign-flip",
        "parameters",
        "cover",
        "warning:",
    ]
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert re.search(r"unequal parameters: mtsa.fused has [\d,]+, multi_head.sdpa", text)
    assert "one and the same test set" in text


def test_the_json_says_the_same(compared: tuple) -> None:
    folder, done = compared
    found = json.loads((folder / "out.json").read_text())
    assert found["sentence"] in done.stdout
    assert [v[0] for v in found["values"]] == [0, 1, 2, 3, 4]
    differences = [first - second for _, first, second in found["values"]]
    assert found["difference"]["difference"] == pytest.approx(np.mean(differences))
    half = 2.7764451052 * np.std(differences, ddof=1) / 5**0.5  # t, 4 degrees of freedom
    assert found["difference"]["high"] - found["difference"]["difference"] == pytest.approx(half)
    by_run = {(r["model"], r["seed"]): r["test"]["accuracy"] for r in runs(folder)}
    for seed, first, second in found["values"]:
        assert first == by_run["mtsa.fused", seed]
        assert second == by_run["multi_head.sdpa", seed]


def test_the_design_is_written_before_the_first_run(compared: tuple) -> None:
    folder, _ = compared
    kinds = [r["kind"] for r in journal.read(folder / "results").records]
    assert kinds.index("design") < kinds.index("run")
    assert kinds.index("verdict") > max(i for i, kind in enumerate(kinds) if kind == "run")
    assert kinds.count("run") == 10
    assert kinds.count("design") == kinds.count("verdict") == 1


def test_a_run_records_everything(compared: tuple) -> None:
    folder, _ = compared
    for run in runs(folder):
        assert run["status"] == "ok"
        assert run["data"] == runs(folder)[0]["data"] != ""
        assert run["recipe"]["epochs"] == 2
        assert [e["epoch"] for e in run["epochs"]] == [1, 2]
        assert run["parameters_with_words"] > run["parameters"] > 0
        assert run["seconds"] > 0
        assert run["peak_bytes"] > 0
        assert run["coverage"]["vocabulary"] > 0


def test_nothing_is_trained_twice(compared: tuple, data: Path) -> None:
    folder, _ = compared
    before = len(list((folder / "results").glob("*.jsonl")))
    again = here(*COMPARE, "--data", str(data), cwd=folder)
    assert again.returncode == 0
    assert "10 runs, 10 of them already there" in again.stdout
    assert len(runs(folder)) == 10
    assert len(list((folder / "results").glob("*.jsonl"))) == before
    sentence = json.loads((folder / "out.json").read_text())["sentence"]
    assert sentence in again.stdout
    assert "seeds changed after looking" not in again.stdout


def test_seeds_added_after_looking_are_told(compared: tuple, data: Path, tmp_path: Path) -> None:
    folder, _ = compared
    copy = tmp_path / "results"
    copy.mkdir()
    for path in (folder / "results").glob("*.jsonl"):
        (copy / path.name).write_bytes(path.read_bytes())
    more = here(*COMPARE, "--data", str(data), "--seeds", "6", cwd=tmp_path)
    assert more.returncode == 0, more.stdout + more.stderr
    assert "12 runs, 10 of them already there" in more.stdout
    assert "seeds changed after looking: results were seen with 5, now there are 6" in more.stdout
    margin = here(*COMPARE, "--data", str(data), "--margin", "50%", cwd=tmp_path)
    assert "margin was changed after results had been seen" in margin.stdout
    assert "practically equal on trec" in margin.stdout
    assert "p (equal within 50.00 points, TOST)" in margin.stdout


@pytest.mark.nightly
def test_too_few_seeds_conclude_nothing(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = here(*COMPARE, "--data", str(data), "--seeds", "3,8", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "too few seeds to conclude" in done.stdout
    assert "95 % t-interval [" in done.stdout
    for test in ("p (", "Hedges", "minimum detectable"):
        assert test not in done.stdout, "described, not tested"
    assert {r["seed"] for r in runs(tmp_path)} == {3, 8}


@pytest.mark.nightly
def test_killed_and_started_again(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    command = [sys.executable, "-m", "harness", *COMPARE, "--data", str(data), "--jobs", "2"]
    driver = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and driver.poll() is None:
        if (tmp_path / "results").exists() and len(runs(tmp_path)) >= 3:
            break
        time.sleep(0.01)
    assert driver.poll() is None, "it ended before it could be killed"
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    survived = {r["key"]: r for r in runs(tmp_path)}
    again = attnbench(*COMPARE, "--data", str(data), cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    after = runs(tmp_path)
    assert len(after) == 10
    assert all(r == survived[r["key"]] for r in after if r["key"] in survived)
    lines = [
        json.loads(line)
        for path in (tmp_path / "results").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    keys = [r["key"] for r in lines if r["kind"] == "run"]
    assert len(keys) == len(set(keys)) == 10, "something was trained twice"


@pytest.mark.parametrize(
    ("status", "again"),
    [("ok", False), ("diverged", False), ("unsupported", False), ("oom", True), ("crash", True)],
)
def test_what_depends_on_the_moment_is_tried_again(
    tmp_path: Path, status: str, again: bool
) -> None:
    writer = journal.Writer(tmp_path, {"fingerprint": {}})
    writer.append(
        {"kind": "run", "key": "k", "model": "mtsa", "seed": 0, "status": status, **RESULT}
    )
    writer.close()
    assert ("k" not in finished(tmp_path)) is again


def test_equal_parameters(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = here(
        *COMPARE[:5],
        *QUICK,
        "--recipe",
        "width=60",
        "--data",
        str(data),
        "--seeds",
        "2",
        "--match",
        "parameters",
        "--json",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "out.json").read_text())
    sizes = [cost["parameters"] for cost in found["costs"].values()]
    recipes = found["design"]["recipes"]
    assert recipes[0]["width"] < recipes[1]["width"] == 60
    assert recipes[0]["width"] % 2 == 0
    near = [recipes[0]["width"] + step for step in (-2, 0, 2)]
    counts = count_parameters(
        "mtsa", "trec", recipes[0], directory=str(data), vectors=task("trec").vectors, widths=near
    )
    assert counts[1] == sizes[0]
    assert abs(counts[1] - sizes[1]) < min(abs(counts[i] - sizes[1]) for i in (0, 2))
    assert "as near as a width divisible by the heads allows" in done.stdout


def test_a_mechanism_of_ones_own(data: Path, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    verified_before(tmp_path / "results")
    done = attnbench(
        "compare",
        "Mean",
        "multi_head",
        "--with",
        "own:Mean",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--seeds",
        "2",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Mean.module against multi_head.sdpa" in done.stdout
    assert {r["model"] for r in runs(tmp_path)} == {"Mean.module", "multi_head.sdpa"}
    leaky = attnbench(
        "compare",
        "--with",
        "own:Leaky",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--journal",
        "leaky",
        cwd=tmp_path,
    )
    assert leaky.returncode == 2
    assert "Leaky.module is wrong, so it is not trained" in leaky.stderr
    assert "pad" in leaky.stderr


def test_divergence_is_a_result_and_told(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = here(
        *COMPARE,
        "--data",
        str(data),
        "--seeds",
        "2",
        "--recipe",
        "mtsa:rate=1e30",
        "--recipe",
        "mtsa:clip=0",
        "--recipe",
        "mtsa:tuning_trials=4",
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert "2 of 2 runs of mtsa.fused diverged" in done.stdout
    assert "the loss is" in done.stdout
    assert "unequal tuning budgets: 4 recipes were tried for mtsa.fused" in done.stdout
    assert "the recipes differ: rate 1e+30 and 0.001" in done.stdout
    assert {r["status"] for r in runs(tmp_path) if r["model"].startswith("mtsa")} == {"diverged"}


@pytest.mark.nightly
def test_best_over_time_has_its_own_name(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = here(
        *COMPARE, "--data", str(data), "--seeds", "1", "--choose", "best-on-test", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "best over time on the test set accuracy" in done.stdout
    assert "the papers' way" in done.stdout


def test_relatedness(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    done = here(
        "compare",
        "mtsa",
        "multi_head",
        "--task",
        "sick_relatedness",
        *QUICK,
        "--data",
        str(data),
        "--seeds",
        "2",
        "--json",
        "out.json",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "difference of pearson (higher is better)" in done.stdout
    assert set(runs(tmp_path)[0]["test"]) == {"pearson", "spearman", "mse"}


def test_own_word_vectors(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    (tmp_path / "mine.txt").write_text("what 1 0 0\nthe 0 1 0\nis 0 0.5 1\n")
    done = here(
        "train",
        "mtsa",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--vectors",
        "mine.txt",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"vectors mine cover \d+\.\d % of \d+ words", done.stdout)
    assert runs(tmp_path)[0]["coverage"]["covered"] <= 3
    none = here(
        "train",
        "mtsa",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--vectors",
        "none",
        cwd=tmp_path,
    )
    assert none.returncode == 0
    assert "cover" not in none.stdout
    assert len(runs(tmp_path)) == 2


def test_attention_scores_of_given_sentences(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    (tmp_path / "more.txt").write_text("Where is the river ?\n\n")
    done = here(
        "train",
        "mtsa",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--save-attention",
        "scores",
        "--sentence",
        "What is it ?",
        "--sentences",
        "more.txt",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with np.load(tmp_path / "results" / "scores.npz", allow_pickle=False) as found:
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
    again = here(
        "train",
        "mtsa",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--save-attention",
        str(tmp_path / "again.npz"),
        "--sentence",
        "What is it ?",
        cwd=tmp_path,
    )
    assert "trained again for its scores" in again.stdout
    assert len(runs(tmp_path)) == 1
    with (
        np.load(tmp_path / "again.npz", allow_pickle=False) as repeated,
        np.load(tmp_path / "results" / "scores.npz", allow_pickle=False) as found,
    ):
        name = "token2token_scores/0"
        assert (repeated[name] == found[name]).all(), "the same run gave another model"


def test_train_prints_and_keeps_one_run(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    arguments = ("train", "multi_head", "--task", "trec", "--seed", "4", *QUICK)
    done = here(*arguments, "--data", str(data), "--json", "run.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = json.loads((tmp_path / "run.json").read_text())
    assert f"accuracy {100 * record['test']['accuracy']:.2f} %" in done.stdout
    assert "looked at once" in done.stdout
    again = here(*arguments, "--data", str(data), cwd=tmp_path)
    assert "in the journal results already" in again.stdout
    assert len(runs(tmp_path)) == 1


def test_a_list_with_an_entry_per_head_is_trained(tmp_path: Path) -> None:
    recipe = [text for name in ("heads=2", "width=12", "epochs=1") for text in ("--recipe", name)]
    done = here("train", "mtsa[masks=forward;none]", *recipe, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mtsa.fused[masks=forward;none] mirrored_summation seed 0: ok" in done.stdout
    [checked] = [r for r in journal.read(tmp_path / "results").records if r["kind"] == "verify"]
    assert (checked["verdict"], "heads=2" in checked["case"]) == ("ok", True)


@pytest.mark.nightly
def test_own_code_that_changed_is_trained_again(data: Path, tmp_path: Path) -> None:
    """A package without an __init__, and a module that uses its neighbour."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "attention.py").write_text(OWN)
    (tmp_path / "alone.py").write_text(OWN + "from neighbour import SIZE\n")
    (tmp_path / "neighbour.py").write_text("SIZE = 1\n")
    for count, given, edited, expected in (
        (1, "mine.attention:Mean", "mine/attention.py", (1, 1, 2)),
        (2, "alone:Mean", "neighbour.py", (1, 2)),
    ):
        command = (
            "train",
            "Mean",
            "--with",
            given,
            "--task",
            "trec",
            *QUICK,
            "--data",
            str(data),
            "--journal",
            str(count),
        )
        for trained in expected:
            if trained == 2:
                path = tmp_path / edited
                path.write_text(path.read_text() + "# edited\n")
            done = attnbench(*command, cwd=tmp_path)
            assert done.returncode == 0, done.stdout + done.stderr
            found = [r for r in journal.read(tmp_path / str(count)).records if r["kind"] == "run"]
            assert len(found) == trained


def test_a_design_that_cannot_be_is_not_written_down(data: Path, tmp_path: Path) -> None:
    done = here(*COMPARE, "--data", str(data), "--recipe", "heads=5", cwd=tmp_path)
    assert done.returncode == 2
    assert "is not divisible by 5 heads" in done.stderr
    assert "design" not in {r["kind"] for r in journal.read(tmp_path / "results").records}


def test_two_forms_of_one_mechanism_have_recipes_of_their_own(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    other = "mtsa.fused[scale_t=identity]"
    done = here(
        "compare",
        "mtsa",
        "mtsa[scale_t=identity]",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--seeds",
        "1",
        "--recipe",
        f"{other}:width=8",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    widths = {r["model"]: r["recipe"]["width"] for r in runs(tmp_path)}
    assert widths == {"mtsa.fused": 12, other: 8}
    assert {r["recipe"]["tuning_trials"] for r in runs(tmp_path)} == {9}


@pytest.mark.nightly
def test_looking_at_single_runs_first_is_told(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path / "results")
    single = here("train", "bi_lstm", "--task", "trec", *QUICK, "--data", str(data), cwd=tmp_path)
    assert single.returncode == 0
    done = here(
        "compare",
        "bi_lstm",
        "multi_head",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--seeds",
        "2",
        cwd=tmp_path,
    )
    assert "1 runs were trained, and their test metrics shown, before this design" in done.stdout
    assert "tuning budgets" not in done.stdout  # as many recipes were tried with both
    swapped = here(
        "compare",
        "multi_head",
        "bi_lstm",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--seeds",
        "3",
        cwd=tmp_path,
    )
    assert (
        "seeds changed after looking: results were seen with 2, now there are 3" in swapped.stdout
    )
