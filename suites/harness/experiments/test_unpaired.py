"""``attnbench compare --unpaired``: declared beforehand, judged by Welch's t, told as such."""

from __future__ import annotations

import json
import math
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.cli import run as cli
from harness.experiments.comparison import compare
from harness.experiments.conclusion import conclusions
from harness.experiments.design import Surroundings, make_design
from harness.experiments.model import parse_model
from harness.records import journal
from harness.registry import Registry
from harness.train.task import task
from reports.pages.comparison import figures
from reports.pages.comparison.page import begin
from reports.pages.size.answers import difference_text
from suites.harness.experiments.test_comparison import HIGH, LOW, A, B, compared, design, run
from suites.support.command_line import here, verified_before

TASK = "mirrored_summation[length=4,width=4,k=2,train=200,test=100]"
COMPARE = (
    "compare",
    "mtsa",
    "multi_head",
    "--task",
    TASK,
    "--recipe",
    "epochs=2",
    "--recipe",
    "width=12",
    "--device",
    "cpu",
)
Done = tuple[Path, "subprocess.CompletedProcess[str]", dict[str, Any]]


@pytest.fixture(scope="module")
def unpaired(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """Five seeds of each model, judged as independent groups."""
    folder = tmp_path_factory.mktemp("unpaired")
    verified_before(folder / "results")
    done = here(*COMPARE, "--unpaired", "--json", "out.json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done, json.loads((folder / "out.json").read_text())


def sides(folder: Path) -> tuple[list[float], list[float]]:
    runs = [r for r in journal.read(folder / "results").records if r["kind"] == "run"]
    models = dict.fromkeys(r["model"] for r in sorted(runs, key=lambda r: r["model"]))
    first, second = ([r["test"]["mse"] for r in runs if r["model"] == m] for m in models)
    return first, second


def test_welch_and_its_interval_are_those_of_scipy(unpaired: Done) -> None:
    folder, done, value = unpaired
    first, second = sides(folder)
    assert (len(first), len(second)) == (5, 5)
    expected = stats.ttest_ind(first, second, equal_var=False)
    found = value["difference"]
    assert found["p"] == pytest.approx(expected.pvalue, rel=1e-9)
    interval = expected.confidence_interval(0.95)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high), rel=1e-9)
    exact = stats.permutation_test(  # all 252 splits
        (first, second), lambda a, b: np.mean(a) - np.mean(b), n_resamples=10_000
    )
    assert found["sign_flip_p"] == pytest.approx(exact.pvalue)
    assert (found["test"], found["paired"]) == ("Welch", False)
    assert found["differences"] == []
    for words in (
        "5 and 5 unpaired seeds",
        "(Welch, p = ",
        "p (Welch, two-sided)",
        "p (exact permutation, sensitivity)",
        "at these 5 and 5 seeds",
    ):
        assert words in done.stdout
    ours = done.stdout.replace(task(TASK).summary, "").replace("unpaired", "")
    assert "pair" not in ours


def test_the_design_declares_it_before_the_first_run(unpaired: Done) -> None:
    kinds = [r for r in journal.read(unpaired[0] / "results").records if r["kind"] != "verify"]
    declared = next(r for r in kinds if r["kind"] == "design")
    assert declared["paired"] is False
    first_run = next(i for i, r in enumerate(kinds) if r["kind"] == "run")
    assert kinds.index(declared) < first_run
    assert unpaired[2]["design"]["paired"] is False


def test_pairing_them_afterwards_is_another_question_and_told(
    unpaired: Done, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(unpaired[0])
    assert cli([*COMPARE]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "10 of them already there" in told
    assert "paired was declared after the unpaired results had been seen" in told
    both = [c.comparisons[0] for c in conclusions(journal.read(Path("results")).records)]
    assert [c.paired for c in both] == [False, True], "neither replaces the other"
    first, second = (c.values for c in both)
    assert first == second, "of the same runs"


def made(folder: Path, **more: Any) -> Path:
    """A journal of an unpaired comparison on records alone."""
    writer = journal.Writer(folder, {"fingerprint": {"model": "x"}, "environment": {}})
    declared = design(5, paired=False, paired_question="p", **more)
    records = [declared]
    for model, some in ((A, HIGH), (B, LOW)):
        records += [run(model, seed, value) for seed, value in enumerate(some)]
    for record in records:
        writer.append({k: v for k, v in record.items() if k not in ("session", "at")})
    writer.close()
    return folder


def test_the_page_says_unpaired_and_joins_no_seeds(tmp_path: Path) -> None:
    page = begin(journal=str(made(tmp_path / "j")), device="", out="", page="comparison")
    assert page.conclusion is not None
    (one,) = page.conclusion.comparisons
    shown = " ".join(
        piece.html
        for piece in (
            page.about(),
            page.verdicts(),
            page.seeds(),
            page.differences(),
            page.statistics(),
            page.power(),
        )
    )
    words = [
        "declared unpaired: two independent groups",
        "5 and 5 unpaired seeds (Welch, p",
        "Every run of",
        "difference of the means, unpaired",
        "p (Welch, two-sided)",
        "p (exact permutation, sensitivity)",
        "plan --unpaired",
    ]
    places = [shown.index(word) for word in words]
    assert places == sorted(places)
    assert "did better than" not in shown
    assert "pairs" not in shown
    (axes,) = figures.groups(one).axes
    assert {line.get_linestyle() for line in axes.get_lines()} == {"None"}
    points = [v for line in axes.get_lines() for v in np.asarray(line.get_ydata()).tolist()]
    assert {100 * v for v in (*HIGH, *LOW)} <= set(points), "every run is seen"
    (axes,) = figures.differences(one).axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["mean"]
    written = [t.get_text() for t in axes.texts]
    assert any("difference of accuracy (of means, unpaired)" in text for text in written)
    (axes,) = figures.forest([one]).axes
    assert [t.get_text() for t in axes.get_yticklabels()] == [f"{A} (unpaired)"]
    assert not any("every replicate" in str(line.get_label()) for line in axes.get_lines())
    assert difference_text(one).endswith("better (unpaired)")


def test_runs_without_a_partner_count_too() -> None:
    failed = [run(A, i, v) for i, v in enumerate(HIGH)]
    failed[1] |= {"status": "diverged", "test": {}}
    records = [*failed, *(run(B, i, v) for i, v in enumerate(LOW))]
    found = compare(design(5, paired=False), records)
    kept = [v for i, v in enumerate(HIGH) if i != 1]
    expected = stats.ttest_ind(kept, LOW, equal_var=False)
    assert found.difference is not None
    assert (found.difference.count_first, found.difference.count_second) == (4, 5)
    assert found.difference.p == pytest.approx(expected.pvalue, rel=1e-9)
    assert "4 and 5 unpaired seeds" in found.sentence
    assert (found.finished, found.pairs) == (4, 5)
    assert math.isnan(found.values[1][1])
    assert found.values[1][2] == LOW[1]
    assert any("diverged" in w for w in found.warnings)
    assert not any("pairs" in w for w in found.warnings)
    nothing = compare(design(5, paired=False), [run(A, 0, 0.5)])
    assert nothing.sentence.endswith("unpaired, and not a run of each is finished")


def test_equality_is_unpaired_too() -> None:
    found = compared(HIGH, [v + 0.001 for v in HIGH], paired=False, margin=0.05)
    far = stats.ttest_ind(
        HIGH, [v + 0.001 - 0.05 for v in HIGH], equal_var=False, alternative="greater"
    )
    near = stats.ttest_ind(
        HIGH, [v + 0.001 + 0.05 for v in HIGH], equal_var=False, alternative="less"
    )
    assert found.equivalence_p == pytest.approx(max(far.pvalue, near.pvalue), rel=1e-9)
    assert found.verdict == "practically equal"


def test_designs_that_were_declared_before_keep_their_keys() -> None:
    registry, toy = Registry(), task(TASK)
    models = [parse_model(name, registry) for name in ("mtsa", "multi_head")]
    around = Surroundings(registry, {"device": "cpu"})
    one, other = (
        make_design(models, toy, [toy.recipe] * 2, [0, 1], around, paired=paired).record({})
        for paired in (True, False)
    )
    assert one["paired"] is True
    assert one["question"] == one["paired_question"] == other["paired_question"]
    assert one["question"] != other["question"]
    assert one["key"] != other["key"]
    assert one["runs"] == other["runs"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mtsa", "--task", "cr"), "--unpaired: cr is judged by 10 folds, which both models share"),
        (("--all", "multi_head"), "--unpaired is for two models on one task"),
        (("mtsa", "--task", "trec", "--task", "mr"), "--unpaired is for two models on one task"),
    ],
)
def test_what_cannot_be_unpaired_is_refused_in_one_line(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--data", str(tmp_path), "--journal", str(tmp_path / "j"))
    assert cli(["compare", *arguments, "--unpaired", *where]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "j").exists()
