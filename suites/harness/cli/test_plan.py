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

from harness.errors import UsageError
from harness.experiments.estimate import recorded_spread
from harness.records import journal
from suites.support.command_line import here
from suites.support.comparisons import runs

A, B = "mtsa.fused", "multi_head.sdpa"


def planned(line: str, folder: Path) -> tuple[dict[str, Any], str]:
    """The JSON and the text of a plan."""
    done = here(f"plan {line} --json plan.json", cwd=folder, code=0)
    return json.loads((folder / "plan.json").read_text()), done.stdout


HALF = "--effect 0.5 --sd 0.8"


@pytest.mark.parametrize(
    ("more", "test", "alpha", "power", "says"),
    [
        ("", TTestPower, 0.05, 0.8, "sd must be that of differences between models with the same"),
        ("--unpaired --power 0.9", TTestIndPower, 0.05, 0.9, "seeds for each model"),
        ("--alpha 0.01", TTestPower, 0.01, 0.8, "two-sided alpha 0.01)"),
        ("--comparisons 7", TTestPower, 0.05 / 7, 0.8, "Holm needs as few as 23 where all others"),
    ],
)
def test_seeds_needed_are_those_of_the_t_test(
    more: str, test: Any, alpha: float, power: float, says: str, tmp_path: Path
) -> None:
    found, text = planned(f"{HALF} {more}", tmp_path)
    exact = test().solve_power(effect_size=0.5 / 0.8, alpha=alpha, power=power)
    assert found["needed"] == np.ceil(exact)
    assert says in text
    for count, shown in found["power_by_count"].items():
        expected = test().power(0.5 / 0.8, int(count), alpha)
        assert shown == pytest.approx(expected, abs=1e-10)


def test_the_table_shows_the_power_of_few_and_of_many_seeds(tmp_path: Path) -> None:
    found, text = planned(HALF, tmp_path)
    assert "23 paired seeds find a difference of 0.5000 with 80% power" in text
    rows = re.findall(r"^ *(\d+) +([\d.]+)%", text, re.MULTILINE)
    assert [int(n) for n, _ in rows] == [3, 4, 5, 6, 8, 10, 12, 15, 20, 23, 25, 30]
    assert float(dict(rows)["23"]) == pytest.approx(100 * found["power_by_count"]["23"], abs=0.05)
    assert "only described" in text
    # That of the answer too where it is more than are usual, and a power that is not quite whole.
    many, text = planned("--effect 0.2 --sd 0.8 --power 0.9995", tmp_path)
    assert "99.95% power" in text
    rows = re.findall(r"^ *(\d+) +[\d.]+%", text, re.MULTILINE)
    assert int(rows[-1]) == many["needed"] > 100


def test_correlation_makes_differences_smaller(tmp_path: Path) -> None:
    # Deviation 1 on either side, correlation .7: differences have sqrt(.6).
    found, _ = planned("--effect 0.5 --sd 1 --correlation 0.7", tmp_path)
    direct, _ = planned(f"--effect 0.5 --sd {0.6**0.5:.12f}", tmp_path)
    assert found["sd"] == pytest.approx(0.6**0.5)
    assert found["needed"] == direct["needed"]
    none, _ = planned("--effect 0.5 --sd 1 --correlation 0", tmp_path)
    assert none["needed"] > found["needed"]


def test_never_fewer_than_are_judged(tmp_path: Path) -> None:
    found, text = planned("--effect 9 --sd 0.8", tmp_path)
    assert found["needed"] == 5
    assert "with fewer than 5 compare only describes" in text


def write_runs(folder: Path, first: list[float], second: list[float], **more: Any) -> None:
    with journal.Writer(folder, {"fingerprint": {}}) as writer:
        for model, found in ((A, first), (B, second)):
            own = {
                "recipe": {"rate": 0.1, "tuning_trials": (A, B).index(model)},
                "code": model,
                **more,
            }
            for run in runs(model, found, **{"vectors": "v", "fingerprint": "f", **own}):
                writer.append({**run, "key": f"{run['key']}{more}"})


def values(count: int) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(count)
    shared = random.normal(0.9, 0.01, count)
    return list(shared + random.normal(0.005, 0.004, count)), list(shared)


FROM = "--from j --models mtsa multi_head --task trec --effect 0.5%"


def test_a_plan_from_recorded_runs_says_how_uncertain_it_is(tmp_path: Path) -> None:
    first, second = values(6)
    write_runs(tmp_path / "j", first, second)
    found, text = planned(FROM, tmp_path)
    sd = float(np.std(np.subtract(first, second), ddof=1))
    assert found["sd"] == pytest.approx(sd)
    assert found["recorded"]["seeds"] == [0, 1, 2, 3, 4, 5]
    r = found["recorded"]["spread"]["correlation"]
    assert r["value"] == pytest.approx(np.corrcoef(first, second)[0, 1])
    assert r["low"] < r["value"] < r["high"]
    low, high = found["needed_between"]
    assert 5 <= low <= found["needed"] < high
    assert planned(f"--effect 0.005 --sd {sd}", tmp_path)[0]["needed"] == found["needed"]
    assert f"{A} and {B} on trec, 6 paired seeds: sd of accuracy" in text
    assert re.search(r"sd of the differences [\d.]+ points, 95 % interval \[", text)
    assert "correlation over seeds" in text
    assert f"it would be {low} to {high} seeds" in text
    assert "find a difference of 0.50 points" in text
    loose, _ = planned(f"{FROM} --unpaired", tmp_path)
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
    mine, its = ({"rate": 0.1, "tuning_trials": trials} for trials in (0, 1))
    assert found.recipes == (mine, its), "each model's own"
    # Nor are widths, which differ between two models only.
    time.sleep(0.002)  # stamps are of milliseconds
    write_runs(tmp_path, [0.1, 0.9], [0.9, 0.1], recipe={"rate": 0.1, "width": 9})
    wider = recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")
    assert (wider.seeds, wider.spread) == (found.seeds, found.spread)
    # Newer code is another subject: its seeds are not mixed with the older ones, and it is it that
    # counts as soon as there are enough of it.
    for count, seeds in ((2, found.seeds), (4, (0, 1, 2, 3))):
        time.sleep(0.002)  # stamps are of milliseconds
        new = [0.5, 0.6, 0.8, 0.1], [0.5, 0.7, 0.6, 0.2]
        write_runs(tmp_path, *(values[:count] for values in new), code=f"new {count}")
        newer = recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")
        assert newer.seeds == seeds


def test_of_recipes_with_as_many_seeds_the_last_one_counts_and_is_named(tmp_path: Path) -> None:
    first, second = values(5)
    noisy = list(np.subtract(first, 10 * np.subtract(first, second)))
    for hidden in (11, 12, 13):  # by a hash one of these would win somewhere
        folder = tmp_path / str(hidden)
        old = {"rate": 0.0007, "tuning_trials": 0, "hidden": hidden}
        write_runs(folder / "j", noisy, second, recipe=old, code="c")
        time.sleep(0.002)  # stamps are of milliseconds
        write_runs(folder / "j", first, second, recipe={**old, "hidden": 21}, code="c")
        found, text = planned(FROM, folder)
        assert found["sd"] == pytest.approx(np.std(np.subtract(first, second), ddof=1))
        assert "these are of rate=0.0007, hidden=21; 5 pairs under other recipes" in text
        chosen = f"--recipe rate=0.0007 --recipe hidden={hidden}"
        older, text = planned(f"{FROM} {chosen}", folder)
        assert older["sd"] == pytest.approx(np.std(np.subtract(noisy, second), ddof=1))
        assert f"these are of rate=0.0007, hidden={hidden}; " in text
    none = here(f"plan {FROM} --recipe hidden=99", cwd=folder)
    assert none.returncode == 2
    assert "0 seeds were trained" in none.stderr
    assert "under this recipe" in none.stderr


FEW = [0.1, 0.2, 0.4], [0.9, 0.1, 0.3]


@pytest.mark.parametrize(
    ("first", "second", "more", "says"),
    [
        (*FEW, {"status": "diverged"}, "0 seeds were trained with both"),
        (*values(10), {"fold": 3}, "trec is cross-validated: its folds are given"),
        ([0.75, 0.875, 0.5], [0.5, 0.625, 0.25], {}, "they tell no spread; give --sd"),
    ],
)
def test_what_tells_no_spread_is_refused(
    first: list[float], second: list[float], more: dict[str, Any], says: str, tmp_path: Path
) -> None:
    write_runs(tmp_path, first, second, **more)
    with pytest.raises(UsageError, match=says):
        recorded_spread(journal.read(tmp_path).records, (A, B), "trec", "accuracy")


@pytest.mark.parametrize(
    ("effect", "code", "says"),
    [
        ("2", 2, "one point of accuracy is 0.01 or 1%"),
        # With --sd it is half a point; from records it would be fifty.
        ("0.5", 2, "which is 50 points of accuracy; expected 0.5% for 0.5 points, or 50%"),
        ("50%", 0, ""),
        ("0.05", 0, ""),
    ],
)
def test_points_of_accuracy_are_not_taken_for_shares(
    effect: str, code: int, says: str, tmp_path: Path
) -> None:
    write_runs(tmp_path / "j", *values(6))
    done = here(f"plan {FROM.replace('0.5%', effect)}", cwd=tmp_path)
    assert done.returncode == code
    assert says in done.stderr
    assert done.stderr.count("\n") == bool(code)
