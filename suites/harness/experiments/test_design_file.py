"""Design files: what they ask for, what records tell of them, and what they let void a verdict."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.experiments import tables
from harness.experiments.conclusion import conclude
from harness.experiments.design_file import planned
from harness.experiments.warnings import VOIDS
from harness.options.train import CompareOptions
from suites.support.command_line import ROOT
from suites.support.comparisons import B, family, runs

TEXT = """\
question = "Is it?"
models = ["mtsa", "disa"]
baseline = "multi_head"
tasks = ["trec"]
seeds = [3, 7]
margin = "1%"
recipe = ["epochs=3"]
family = "two"
stopping = "two pairs"
void = ["failed runs"]
hours = 0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "plan.toml"
    path.write_text(TEXT)
    return path


def test_a_file_says_what_the_options_say(file: Path) -> None:
    options, plan = planned(CompareOptions(plan=file, jobs=3))
    assert (options.names, options.baseline, options.tasks) == (
        ("mtsa", "disa"),
        "multi_head",
        ("trec",),
    )
    assert (options.seeds, options.changes, options.jobs) == ((3, 7), ("epochs=3",), 3)
    ((whose, margin),) = options.margin
    assert (whose, margin.value, margin.percent) == ("", 0.01, True)
    assert plan["sha256"] == hashlib.sha256(TEXT.encode()).hexdigest()
    assert plan["committed"] == ""
    assert (plan["file"], plan["hours"], plan["void"]) == ("plan.toml", 0.5, ["failed runs"])


def test_a_commit_is_told_only_of_the_file_as_it_is(file: Path) -> None:
    def git(*arguments: str) -> str:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        done = subprocess.run(
            ["git", *who, *arguments], cwd=file.parent, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    assert planned(CompareOptions(plan=file))[1]["committed"] == ""
    git("add", "plan.toml")
    git("commit", "-qm", "a design")
    assert planned(CompareOptions(plan=file))[1]["committed"] == git("rev-parse", "HEAD")
    file.write_text(TEXT.replace("[3, 7]", "[3, 7, 9]"))
    assert planned(CompareOptions(plan=file))[1]["committed"] == ""


@pytest.mark.parametrize(
    ("line", "instead", "said"),
    [
        ('question = "Is it?"', "", "no question; a design has question, family"),
        ('question = "Is it?"', "question = 3", "question = 3; expected a text"),
        ("hours = 0.5", "", "no hours"),
        ("hours = 0.5", "hours = -1", "hours = -1; expected how many the runs may take"),
        ("seeds = [3, 7]", 'seeds = "many"', "seeds = 'many'; expected how many"),
        ('margin = "1%"', "margin = true", "margin = True; expected a positive number"),
        ('margin = "1%"', 'margin = "wide"', "margin = 'wide'; expected a positive number"),
        ('void = ["failed runs"]', 'void = ["bad luck"]', "expected some of failed runs"),
        ('tasks = ["trec"]', 'tasks = ["trec"]\nepochs = 3', "unknown key 'epochs'"),
        ('baseline = "multi_head"', 'baseline = ["a", "b"]', "expected one"),
        ("hours = 0.5", "hours = ", "is no TOML"),
    ],
)
def test_what_is_wrong_in_a_file_is_told_in_one_line(
    file: Path, line: str, instead: str, said: str
) -> None:
    assert line in TEXT
    file.write_text(TEXT.replace(line, instead))
    with pytest.raises(UsageError) as error:
        planned(CompareOptions(plan=file))
    assert said in str(error.value)
    assert str(file) in str(error.value)
    assert "\n" not in str(error.value).strip() or "TOML" in said


def test_the_command_says_nothing_beside_a_file(file: Path) -> None:
    besides: list[dict[str, Any]] = [{"seeds": (1, 2)}, {"task": ("cr",)}, {"choose": "dev"}]
    for beside in (*besides, {"unpaired": True}):
        with pytest.raises(UsageError, match="only the file may say it"):
            planned(CompareOptions(plan=file, **beside))


DESIGNS = [p for p in sorted((ROOT / "plans").glob("*.toml")) if "\nquestion =" in p.read_text()]


@pytest.mark.parametrize("path", DESIGNS, ids=lambda p: p.stem)
def test_designs_of_the_repository_can_be_read(path: Path) -> None:
    _, plan = planned(CompareOptions(plan=path))
    assert plan["question"].endswith("?")


PLAN: dict[str, Any] = {
    "file": "plan.toml",
    "sha256": "a" * 64,
    "committed": "b" * 40,
    "question": "Is it?",
    "family": "one",
    "stopping": "six seeds",
    "hours": 1.0,
    "void": [],
}
GOOD = [0.80, 0.81, 0.82, 0.80, 0.81, 0.82]
BETTER = [v + 0.05 + 0.001 * i for i, v in enumerate(GOOD)]


def concluded(design: dict[str, Any], **told: Any) -> Any:
    record = {**family(["disa.plain", "none.fused"], ["trec"]), "plan": design}
    told = {"plan": design["sha256"], **told}
    records = [record, *runs(B, GOOD, **told), *runs("disa.plain", BETTER, **told)]
    return conclude(record, [*records, *runs("none.fused", BETTER, **told)])


def test_what_is_not_of_the_design_is_exploratory() -> None:
    found = concluded(PLAN)
    assert not any(c.exploratory for c in found.comparisons)
    assert not any("plan.toml" in line for line in found.warnings)
    other = concluded(PLAN, plan="c" * 64)
    assert all(c.exploratory for c in other.comparisons)
    assert all(c.sentence.startswith("exploratory") for c in other.comparisons)
    assert any("were not trained under plan.toml" in line for line in other.warnings)
    uncommitted = concluded({**PLAN, "committed": ""})
    assert any("was not committed" in line for line in uncommitted.warnings)


def test_a_design_says_what_voids_its_verdict_and_how_long_it_may_take() -> None:
    record = {**family(["disa.plain"], ["trec"]), "plan": PLAN}
    told: dict[str, Any] = {"plan": PLAN["sha256"]}

    def judged(plan: dict[str, Any]) -> Any:
        mine = {**record, "plan": plan}
        some = [
            *runs(B, GOOD, **told, parameters=1000),
            *runs("disa.plain", BETTER, **told, parameters=9),
        ]
        return conclude(mine, [mine, *some]).comparisons[0]

    assert judged(PLAN).said == "better"
    void = judged({**PLAN, "void": ["unequal parameters"]})
    assert void.said == "better (not counted)"
    assert "not counted: unequal parameters" in void.sentence
    assert set(VOIDS) >= {"failed runs", "unequal parameters", "another corpus"}

    long = concluded({**PLAN, "hours": 1e-3}, task_seconds=36.0)
    assert any(
        "all runs together took 0.18 h; plan.toml allows 0.001 h" in w for w in long.warnings
    )
    lines = tables.asked(long)
    assert "Is it?" in lines[0]
    assert "commit bbbbbbbbbb" in lines[0]
    assert "stopping rule: six seeds" in lines[1]
    assert tables.asked(conclude(family(["a.x"], ["trec"]), [])) == []
