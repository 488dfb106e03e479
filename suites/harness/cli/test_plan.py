"""``attnbench plan``: seeds needed, from numbers given or from recorded runs."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from statsmodels.stats.power import TTestIndPower, TTestPower

from harness.cli import run as cli
from harness.errors import UsageError
from harness.experiments.estimate import recorded_spread
from harness.records import journal
from suites.support.made_up_records import RESULT

A, B = "mtsa.fused", "multi_head.sdpa"


def planned(tmp_path: Path, *arguments: str) -> dict[str, Any]:
    out = tmp_path / "plan.json"
    assert cli(["plan", *arguments, "--json", str(out)]) == 0
    return json.loads(out.read_text())


def test_seeds_needed_are_those_of_the_t_test(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = planned(tmp_path, "--effect", "0.5", "--sd", "0.8")
    assert found["needed"] == 23
    text = capsys.readouterr().out
    assert "23 paired seeds find a difference of 0.5000 with 80% power" in text
    assert "sd must be that of differences between models with the same seed" in text
    for count in range(3, 31):
        power = TTestPower().power(0.5 / 0.8, count, 0.05)
        assert found["power_by_count"][str(count)] == pytest.approx(power, abs=1e-10)
    rows = re.findall(r"^ *(\d+) +([\d.]+)%", text, re.MULTILINE)
    assert [int(n) for n, _ in rows] == [3, 4, 5, 6, 8, 10, 12, 15, 20, 23, 25, 30]
    assert float(dict(rows)["23"]) == pytest.approx(100 * found["power_by_count"]["23"], abs=0.05)
    assert "only described" in text


def test_unpaired_and_other_levels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(tmp_path, "--effect", "0.5", "--sd", "0.8", "--unpaired", "--power", "0.9")
    exact = TTestIndPower().solve_power(effect_size=0.5 / 0.8, alpha=0.05, power=0.9)
    assert found["needed"] == np.ceil(exact)
    assert "seeds for each model" in capsys.readouterr().out
    strict = planned(tmp_path, "--effect", "0.5", "--sd", "0.8", "--alpha", "0.01")
    exact = TTestPower().solve_power(effect_size=0.5 / 0.8, alpha=0.01, power=0.8)
    assert strict["needed"] == np.ceil(exact)


def test_correlation_makes_differences_smaller(tmp_path: Path) -> None:
    # Deviation 1 on either side, correlation .7: differences have sqrt(.6).
    found = planned(tmp_path, "--effect", "0.5", "--sd", "1", "--correlation", "0.7")
    direct = planned(tmp_path, "--effect", "0.5", "--sd", f"{0.6**0.5:.12f}")
    assert found["sd"] == pytest.approx(0.6**0.5)
    assert found["needed"] == direct["needed"]
    none = planned(tmp_path, "--effect", "0.5", "--sd", "1", "--correlation", "0")
    assert none["needed"] > found["needed"]


def test_several_comparisons_need_more(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = planned(tmp_path, "--effect", "0.5", "--sd", "0.8", "--comparisons", "7")
    exact = TTestPower().solve_power(effect_size=0.5 / 0.8, alpha=0.05 / 7, power=0.8)
    assert found["needed"] == np.ceil(exact) > 23
    assert found["needed_alone"] == 23
    assert "Holm needs as few as 23 where all others are found" in capsys.readouterr().out


def test_never_fewer_than_are_judged(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert planned(tmp_path, "--effect", "9", "--sd", "0.8")["needed"] == 5
    assert "with fewer than 5 compare only describes" in capsys.readouterr().out


def write_runs(folder: Path, first: list[float], second: list[float], **more: Any) -> None:
    writer = journal.Writer(folder, {"fingerprint": {}})
    for model, values in ((A, first), (B, second)):
        for seed, value in enumerate(values):
            writer.append(
                {
                    "kind": "run",
                    "key": f"{model}{seed}{more}",
                    "model": model,
                    "seed": seed,
                    "task": "trec",
                    "status": "ok",
                    "vectors": "v",
                    **RESULT,
                    "test": {"accuracy": value},
                    "recipe": {"rate": 0.1, "tuning_trials": len(model)},
                    "fingerprint": "f",
                    "code": model,
                    "fold": None,
                    **more,
                }
            )
    writer.close()


def values(count: int) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(count)
    shared = random.normal(0.9, 0.01, count)
    return list(shared + random.normal(0.005, 0.004, count)), list(shared)


FROM = ("--models", "mtsa", "multi_head", "--task", "trec", "--effect", "0.5%")


def test_a_plan_from_recorded_runs_says_how_uncertain_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = values(6)
    write_runs(tmp_path / "j", first, second)
    found = planned(tmp_path, "--from", str(tmp_path / "j"), *FROM)
    sd = float(np.std(np.subtract(first, second), ddof=1))
    assert found["sd"] == pytest.approx(sd)
    assert found["recorded"]["seeds"] == [0, 1, 2, 3, 4, 5]
    r = found["recorded"]["spread"]["correlation"]
    assert r["value"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert r["low"] < r["value"] < r["high"]
    low, high = found["needed_between"]
    assert 5 <= low <= found["needed"] < high
    direct = planned(tmp_path, "--effect", "0.005", "--sd", str(sd))
    assert direct["needed"] == found["needed"]
    text = capsys.readouterr().out
    assert f"{A} and {B} on trec, 6 paired seeds: sd of accuracy" in text
    assert re.search(r"sd of the differences [\d.]+ points, 95 % interval \[", text)
    assert "correlation over seeds" in text
    assert f"it would be {low} to {high} seeds" in text
    assert "find a difference of 0.50 points" in text
    loose = planned(tmp_path, "--from", str(tmp_path / "j"), *FROM, "--unpaired")
    pooled = np.sqrt((np.var(first, ddof=1) + np.var(second, ddof=1)) / 2)
    assert loose["sd"] == pytest.approx(pooled)
    assert loose["needed"] > found["needed"], "pairs of one seed have much in common"


def test_only_runs_of_one_setting_are_paired(tmp_path: Path) -> None:
    first, second = values(5)
    write_runs(tmp_path, first, second)
    write_runs(tmp_path, [0.1, 0.2, 0.4], [0.9, 0.1, 0.3], recipe={"rate": 9})
    write_runs(tmp_path, [0.1, 0.3, 0.4], [0.8, 0.2, 0.3], data="another corpus of that name")
    write_runs(tmp_path, [0.1] * 9, [0.9] * 9, task="cr")
    records = journal.read(tmp_path).records
    found = recorded_spread(records, (A, B), "trec", "accuracy")
    assert found.seeds == (0, 1, 2, 3, 4)
    assert found.spread.sd.value == pytest.approx(np.std(np.subtract(first, second), ddof=1))
    assert found.others == 3 + 3
    # Newer code is another subject: its seeds are not mixed with the older ones.
    time.sleep(0.002)  # stamps are of milliseconds
    write_runs(tmp_path, [0.5, 0.6, 0.8, 0.1], [0.5, 0.7, 0.6, 0.2], code="new")
    newer = recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")
    assert newer.seeds == (0, 1, 2, 3)


def test_of_recipes_with_as_many_seeds_the_last_one_counts_and_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = values(5)
    noisy = list(np.subtract(first, 10 * np.subtract(first, second)))
    for number, epochs in enumerate((11, 12, 13)):  # by a hash one of these would win somewhere
        folder = tmp_path / str(number)
        old = {"rate": 0.0007, "tuning_trials": 0, "epochs": epochs}
        write_runs(folder, noisy, second, recipe=old, code="c")
        time.sleep(0.002)  # stamps are of milliseconds
        write_runs(folder, first, second, recipe={**old, "epochs": 21}, code="c")
        found = planned(tmp_path, "--from", str(folder), *FROM)
        sd = float(np.std(np.subtract(first, second), ddof=1))
        assert found["sd"] == pytest.approx(sd)
        said = "these are of rate=0.0007, epochs=21; 5 pairs under other recipes"
        assert said in capsys.readouterr().out
        chosen = ("--recipe", "rate=0.0007", "--recipe", f"epochs={epochs}")
        older = planned(tmp_path, "--from", str(folder), *FROM, *chosen)
        assert older["sd"] == pytest.approx(np.std(np.subtract(noisy, second), ddof=1))
        assert f"these are of rate=0.0007, epochs={epochs}; " in capsys.readouterr().out
    none = ["plan", "--from", str(folder), *FROM, "--recipe", "epochs=99"]
    assert cli(none) == 2
    assert "0 seeds were trained" in (told := capsys.readouterr().err)
    assert "under this recipe" in told


def test_failed_runs_tell_no_spread(tmp_path: Path) -> None:
    write_runs(tmp_path, [0.1, 0.2, 0.4], [0.9, 0.1, 0.3], status="diverged")
    with pytest.raises(UsageError, match="0 seeds were trained with both"):
        recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--effect", "0.5"), "give --sd, or --from DIR"),
        (("--effect", "1e-9", "--sd", "1"), "more than 10,000,000 are needed"),
        (("--from", ".", *FROM), "0 seeds were trained with both"),
        (
            ("--from", ".", "--models", "mtsa", "mult", "--task", "trec", "--effect", "1%"),
            "unknown mechanism 'mult'",
        ),
    ],
)
def test_a_users_mistake_is_told_in_one_line(
    arguments: tuple[str, ...],
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(["plan", *arguments]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.strip().splitlines()) == 1


def test_folds_are_no_seeds_to_plan_with(tmp_path: Path) -> None:
    first, second = values(10)
    write_runs(tmp_path, first, second, fold=3)
    with pytest.raises(UsageError, match="trec is cross-validated: its folds are given"):
        recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")


def test_runs_without_spread_tell_nothing(tmp_path: Path) -> None:
    write_runs(tmp_path, [0.75, 0.875, 0.5], [0.5, 0.625, 0.25])
    with pytest.raises(UsageError, match="they tell no spread; give --sd"):
        recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")


def test_an_effect_of_a_whole_accuracy_is_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_runs(tmp_path, *values(6))
    asked = ["plan", "--from", str(tmp_path), *FROM[:-1], "2"]
    assert cli(asked) == 2
    assert "one point of accuracy is 0.01 or 1%" in capsys.readouterr().err


def test_points_of_accuracy_are_not_taken_for_shares(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--effect 0.5 --sd 0.8`` is half a point; from records it would be fifty."""
    write_runs(tmp_path, *values(6))
    asked = ["plan", "--from", str(tmp_path), *FROM[:-1]]
    assert cli([*asked, "0.5"]) == 2
    told = capsys.readouterr().err
    assert "which is 50 points of accuracy; expected 0.5% for 0.5 points, or 50%" in told
    assert told.count("\n") == 1
    assert cli([*asked, "50%"]) == 0
    assert cli([*asked, "0.05"]) == 0
