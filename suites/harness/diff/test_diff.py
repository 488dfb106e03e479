"""``attnbench diff``: statistics over many cases, two journals, two revisions."""

from __future__ import annotations

import json
import math
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats
from statsmodels.stats.multitest import multipletests

import harness
from harness.diff import revisions, rows
from harness.errors import UsageError
from harness.isolate import Interpreter
from harness.records import journal
from harness.records.ratios import time_frame
from harness.records.sharing import at_work
from harness.stats import (
    between_sessions,
    inside_blocks,
    joint_floor,
    judge,
    noise_floor,
    ratio_interval,
)
from harness.stats.timing import LogRatio
from suites.support.command_line import ROOT, here, started
from suites.support.made_up_records import reading

BASELINE = "multi_head.sdpa"
SIZE = "B64-N64-D300x600-H8-f32-forward-cpu+1-thread"


def case_id(name: str) -> str:
    return f"{name}-{SIZE}"


def estimate_of(ratios: list[float]) -> LogRatio:
    estimate = inside_blocks(ratios)
    assert estimate is not None
    return estimate


class TestStatistics:
    def test_holm_is_statsmodels(self) -> None:
        # Holm's own order: 0.001, 0.012, 0.02, 0.04 are tried at 5 % / 4, / 3, / 2, / 1.
        p_values = [0.02, 0.001, 0.04, 0.012]
        estimates = {
            str(p): LogRatio(scipy_stats.t.isf(p / 2, 14) * 0.01, 0.01, 14, 15) for p in p_values
        }
        judged = list(judge(estimates, dict.fromkeys(estimates, 1.0)).values())
        rejected, adjusted, *_ = multipletests(p_values, method="holm")
        assert [d.p_value for d in judged] == pytest.approx(p_values)
        assert [d.adjusted for d in judged] == pytest.approx(list(adjusted))
        assert [d.verdict == "slower" for d in judged] == list(rejected)

    def test_interval_and_adjusted_p_always_agree(self) -> None:
        rng = np.random.default_rng(3)
        for _ in range(30):
            estimates = {
                str(i): estimate_of(list(np.exp(rng.normal(rng.choice([0, 0.03]), 0.03, 7))))
                for i in range(6)
            }
            for d in judge(estimates, dict.fromkeys(estimates, 1.0)).values():
                excludes = d.ratio.low > 1 or d.ratio.high < 1
                assert excludes == (d.adjusted < 0.05)

    def test_two_sessions_are_compared_by_welch(self) -> None:
        before, after = [1.1, 1.3, 1.2, 1.25], [1.5, 1.45, 1.7, 1.62, 1.55]
        estimate = between_sessions(before, after)
        assert estimate is not None
        welch = scipy_stats.ttest_ind(np.log(after), np.log(before), equal_var=False)
        assert estimate.p_value == pytest.approx(welch.pvalue)
        interval = estimate.interval(0.95)
        low, high = np.exp(welch.confidence_interval(0.95))
        assert (interval.low, interval.high) == pytest.approx((low, high))
        # Without any spread.
        assert between_sessions([2.0], [2.0] * 3) is None
        changed = between_sessions([2.0] * 3, [3.0] * 3)
        assert changed is not None
        assert changed.p_value == 0
        assert estimate_of([1.0, 1.0]).p_value == 1

    def test_joint_floor_is_wider_than_both_and_narrower_than_their_product(self) -> None:
        assert 1.1 < joint_floor(1.05, 1.1) < 1.05 * 1.1
        assert joint_floor(1.0, 1.1) == pytest.approx(1.1)
        assert math.isinf(joint_floor(1.1, math.inf))


def times_of(
    case: str, base: list[float], control: list[float], head: list[float]
) -> list[dict[str, Any]]:
    return [
        {"kind": "diff", "case": case, "side": side, "block": b, "status": "ok", "median": v}
        for side, values in (("base", base), ("control", control), ("head", head))
        for b, v in enumerate(values)
    ]


class TestRows:
    def test_drift_between_blocks_cancels(self) -> None:
        drift = [1.0, 3.0, 0.5, 8.0, 2.0]
        wobble = [1.01, 0.99, 1.0, 1.02, 0.98]
        head = [1.2 * d * w for d, w in zip(drift, wobble, strict=True)]
        control = [d * w for d, w in zip(drift, reversed(wobble), strict=True)]
        (row,) = rows.measured(times_of("a", drift, control, head), ["a"])
        assert row.ratio is not None
        assert row.ratio.low < 1.2 < row.ratio.high < 1.25
        assert row.floor == pytest.approx(noise_floor(ratio_interval(wobble)))
        assert row.verdict == "slower"
        assert rows.exit_code([row]) == 1

    def test_nothing_below_the_noise_of_the_base_is_claimed(self) -> None:
        noisy = [1.3, 0.8, 1.2, 0.8, 1.25, 0.75]
        (row,) = rows.measured(times_of("a", [1.0] * 6, noisy, [1.1, 1.11] * 3), ["a"])
        assert row.adjusted < 0.001
        assert row.verdict == "undecided"
        assert rows.exit_code([row]) == 0

    @pytest.mark.parametrize(
        ("failing", "status", "verdict", "code"),
        [
            (["head"], "crash", "broken", 1),
            (["head"], "unsupported", "not measured", 3),
            (["base", "control"], "crash", "mended", 3),
            (["base", "control", "head"], "crash", "not measured", 3),
        ],
    )
    def test_a_failure_in_one_revision_is_a_finding(
        self, failing: list[str], status: str, verdict: str, code: int
    ) -> None:
        records = times_of("a", [1.0], [1.0], [1.0])
        for r in records:
            if r["side"] in failing:
                # Python's own word for it; what counts is the status.
                r.update(status=status, detail="boom, unsupported operand")
        (row,) = rows.measured(records, ["a"])
        assert row.verdict == verdict
        assert f"{status}: boom" in row.detail
        assert row.detail.startswith("both: ") == (len(failing) == 3), "said once"
        assert rows.exit_code([row]) == code

    def test_one_block_compares_nothing(self) -> None:
        found = rows.measured(times_of("a", [1.0], [1.0], [9.0]), ["a"], new=["n"], gone=["g"])
        assert [r.verdict for r in found] == ["not measured", "new", "gone"]
        assert rows.exit_code(found) == 3
        assert "nothing of H could be compared with B" in rows.closing(found, "B", "H")

    def test_closing_names_what_is_slower_worst_first(self) -> None:
        quiet = [1.001, 0.999, 1.0, 1.0]
        records = times_of("a", [1.0] * 4, quiet, [1.5, 1.51, 1.5, 1.5])
        records += times_of("b", [1.0] * 4, quiet, [2.0, 2.01, 2.0, 2.0])
        records += times_of("c", [1.0] * 4, quiet, [1.0, 1.001, 1.0, 1.0])
        said = rows.closing(rows.measured(records, ["a", "b", "c"]), "B", "H")
        assert said.startswith("2 of 3 cases are slower in H than in B")
        assert said.index("b 2.00x") < said.index("a 1.50x")
        assert "1 the same" in said


FINGERPRINT = {"device": "cpu", "model": "some CPU", "torch": "2.13.0", "threads": 2}


def write_journal(
    folder: Path, ratios: dict[str, float], code: str = "c", **fingerprint: Any
) -> Path:
    """Seven blocks of the baseline, its control and cases of given ratios to it, with 1 % noise."""
    rng = np.random.default_rng(len(folder.name))
    writer = journal.Writer(folder, {"fingerprint": {**FINGERPRINT, **fingerprint}})
    speed = rng.uniform(1, 100)  # another day, another clock: only ratios can be compared
    cases = {case_id(BASELINE): 1.0, case_id(BASELINE) + "+control": 1.0}
    cases |= {case_id(name): ratio for name, ratio in ratios.items()}
    for block in range(7):
        for case, ratio in cases.items():
            seconds = speed * ratio * 2.0**block * float(np.exp(rng.normal(0, 0.01)))
            writer.append(reading(case, block, seconds, code=code))
    writer.close()
    return folder


class TestJournals:
    def test_only_ratios_to_the_baseline_are_compared(self, tmp_path: Path) -> None:
        before = {"mtsa.algorithm1": 1.2, "disa.broadcast": 5.0, "bi_lstm.packed": 3.0}
        after = {"mtsa.algorithm1": 1.5, "disa.broadcast": 5.0, "multi_cnn.conv": 0.5}
        write_journal(tmp_path / "base", before)
        write_journal(tmp_path / "head", after)
        done = here("diff base head --json out.json", cwd=tmp_path, code=1)
        assert "only ratios to the baseline multi_head.sdpa are compared" in done.stdout
        assert "not of the same code" not in done.stdout
        result = json.loads((tmp_path / "out.json").read_text())
        found = {r["case"].partition("-B")[0]: r for r in result["rows"]}
        assert {name: r["verdict"] for name, r in found.items()} == {
            "mtsa.algorithm1": "slower",
            "disa.broadcast": "same",
            "multi_cnn.conv": "new",
            "bi_lstm.packed": "gone",
        }
        mine = found["mtsa.algorithm1"]
        assert mine["ratio"]["low"] < 1.25 < mine["ratio"]["high"]
        assert (mine["base"], mine["head"]) == pytest.approx((1.2, 1.5), rel=0.02)
        assert result["exit_code"] == 1
        # The other way round it is faster.
        assert here("diff head base --json out.json", cwd=tmp_path).returncode == 0
        rows = json.loads((tmp_path / "out.json").read_text())["rows"]
        assert {r["verdict"] for r in rows if "mtsa" in r["case"]} == {"faster"}

    def test_a_device_in_both_is_found_among_others(self, tmp_path: Path) -> None:
        write_journal(tmp_path / "base", {"mtsa.algorithm1": 1.2})
        write_journal(tmp_path / "head", {"mtsa.algorithm1": 1.2}, code="d")
        write_journal(tmp_path / "head", {"mtsa.algorithm1": 9.0}, model="newer CPU")
        done = here("diff base head", cwd=tmp_path, code=0)
        assert "several devices; compared on some CPU" in done.stdout
        assert "not of the same code" in done.stdout

    def test_nothing_in_common_is_code_3(self, tmp_path: Path) -> None:
        for name, case in (("base", "mtsa.algorithm1"), ("head", "disa.broadcast")):
            write_journal(tmp_path / name, {case: 1.2})
        assert here("diff base head", cwd=tmp_path).returncode == 3

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ("base other", "they differ in torch ('2.13.0' and '2.12.0'), threads (2 and 8)\n"),
            ("base empty", "empty holds no times"),
            ("base base --blocks 3 --only mtsa", "--only, --blocks given with"),
            ("base base --device cuda", "holds no times on cuda"),
            ("base base --json no/such/out.json", "can't write --json"),
        ],
    )
    def test_mistakes_are_one_line(self, tmp_path: Path, arguments: str, says: str) -> None:
        write_journal(tmp_path / "base", {"mtsa.algorithm1": 1.2})
        write_journal(tmp_path / "other", {"mtsa.algorithm1": 1.2}, threads=8, torch="2.12.0")
        (tmp_path / "empty").mkdir()
        done = here(f"diff {arguments}", cwd=tmp_path, code=2)
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


OFTEN = """

_once = ConvMultiCnn.convolve


def _often(self, x, weight, bias):
    for _ in range(59):
        _once(self, x, weight, bias)
    return _once(self, x, weight, bias)


ConvMultiCnn.convolve = _often
"""
PLAIN_FAILS = """

def _fails(self, x, weight, bias):
    raise RuntimeError("broken on purpose")


PlainMultiCnn.convolve = _fails
"""
CONV = '            conv=("ConvMultiCnn", "torch\'s convolution for each kernel size"),\n'
SMALL = "--lengths 4 --batch 2 --width 24 --passes forward --device cpu"
MULTI_CNN = "reference_impls/multi_cnn/"


class Repository:
    """A repository of its own with the mechanisms, to commit to."""

    def __init__(self, root: Path) -> None:
        self.root = root
        skip = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / revisions.MECHANISMS, root / revisions.MECHANISMS, ignore=skip)
        (root / ".ci").mkdir()
        for name in ("pyproject.toml", revisions.CONSTRAINTS):
            shutil.copy(ROOT / name, root / name)
        self.git("init", "--quiet")
        self.git("add", "--all")
        self.commit("base")

    def git(self, *arguments: str) -> str:
        who = ("-c", "user.name=someone", "-c", "user.email=someone@example.org")
        done = subprocess.run(
            ["git", *who, *arguments], cwd=self.root, capture_output=True, text=True, check=True
        )
        return done.stdout

    def commit(self, tag: str) -> None:
        self.git("commit", "--quiet", "--all", "--message", tag)
        self.git("tag", tag)

    def branch(self, tag: str, *edits: tuple[str, str, str]) -> None:
        """Commit edits of the base under a tag, and go back; nothing old is the end of a file."""
        for path, old, new in edits:
            file = self.root / path
            text = file.read_text()
            assert old in text
            file.write_text(text.replace(old, new) if old else text + new)
        self.commit(tag)
        self.git("checkout", "--quiet", "base")

    def assert_clean(self, temporary: Path) -> None:
        assert len(self.git("worktree", "list").splitlines()) == 1
        assert not list(temporary.glob("attnbench-diff-*"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A base and what can become of it, one tag each."""
    made = Repository(tmp_path_factory.mktemp("repository") / "with a blank")
    made.branch(
        "changed",
        (MULTI_CNN + "modules.py", "", OFTEN),
        (MULTI_CNN + "modules.py", "", PLAIN_FAILS),
        (MULTI_CNN + "__init__.py", CONV, CONV + CONV.replace("conv=", "twin=")),
    )
    made.branch("older", ("reference_impls/mechanism.py", "class Unsupported", "class NotYet"))
    made.branch(
        "unmeasured",
        (MULTI_CNN + "__init__.py", "conv=(", "other=("),
        (MULTI_CNN + "__init__.py", '="conv"', '="other"'),
    )
    made.branch("impossible", (".ci/constraints.txt", "", "numpy==0.0.1\n"))
    made.branch("pinned", (".ci/constraints.txt", "", "not-a-package-we-need==1.0\n"))
    made.git("rm", "-r", "--quiet", "--cached", "reference_impls")
    made.commit("bare")
    made.git("checkout", "--quiet", "--force", "base")
    return made


Diff = Callable[[str], "subprocess.CompletedProcess[str]"]


@pytest.fixture
def diff(repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Diff:
    """``attnbench diff`` in that repository; whatever comes of it, nothing may stay behind."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(revisions, "repository", lambda: repository.root)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def run(line: str) -> subprocess.CompletedProcess[str]:
        done = here(f"diff {line}", cwd=tmp_path)
        repository.assert_clean(temporary)
        return done

    return run


def test_a_slowdown_is_found_and_a_failure_is_not_hidden(
    repository: Repository, diff: Diff, tmp_path: Path
) -> None:
    # Uncommitted work is not what is compared.
    dirty = repository.root / MULTI_CNN / "modules.py"
    before = dirty.read_text()
    dirty.write_text("raise RuntimeError('not committed')\n")
    names = ("multi_cnn.conv", "multi_cnn.plain", "multi_cnn.twin", "none.fused")
    only = " ".join(f"--only {name}" for name in names)
    try:
        done = diff(f"base changed {only} {SMALL} --blocks 3 --json out.json")
    finally:
        dirty.write_text(before)
    assert (done.returncode, done.stderr) == (1, ""), done.stdout + done.stderr
    told = json.loads((tmp_path / "out.json").read_text())
    found = {r["case"].partition("-B")[0]: r for r in told["rows"]}
    # A false alarm has its few percent; a wrong pairing of the sides would be far beyond this.
    assert 1 / 10 < found.pop("none.fused")["ratio"]["ratio"] < 10
    assert {name: r["verdict"] for name, r in found.items()} == {
        "multi_cnn.conv": "slower",
        "multi_cnn.plain": "broken",
        "multi_cnn.twin": "new",
    }
    assert found["multi_cnn.conv"]["ratio"]["ratio"] > 3
    assert found["multi_cnn.conv"]["ratio"]["count"] == 3
    assert "broken on purpose" in found["multi_cnn.plain"]["detail"]
    assert "of 2 cases" in done.stdout
    assert "slower in changed" in done.stdout
    told_of = [one for one in done.stdout.splitlines() if one.startswith("multi_cnn.plain-B")]
    row, reason = (one.partition(" ")[2].strip() for one in told_of)
    assert row.endswith("broken"), "the reason takes no room of the table's numbers"
    assert reason.startswith("head: ")

    read = journal.read(tmp_path / "results")
    assert not read.warnings
    (first,) = read.sessions.values()
    commits = {label: commit for label, (_, commit) in first["revisions"].items()}
    assert commits["head"] == repository.git("rev-parse", "changed").strip()
    mine = [r for r in read.records if r["kind"] == "diff" and "multi_cnn.conv" in r["case"]]
    assert {(r["side"], r["block"]) for r in mine} == {
        (side, block) for side in ("base", "control", "head") for block in range(3)
    }
    for r in mine:
        assert r["revision"] == commits["head" if r["side"] == "head" else "base"]
    assert len({r["interpreter"] for r in mine}) == 9
    # bench and report must never take them for measurements of the code that is installed.
    assert time_frame(read.records).empty


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("base nowhere", "unknown revision 'nowhere'"),
        ("base -- --exec=x", "unknown revision '--exec=x'"),
        ("base ''", "unknown revision ''"),
        ("base temporary", "expected two revisions or two journal folders"),
        ("base older", "revision older"),
        ("base bare", "has no reference_impls"),
        ("base base --only nosuch", "unknown mechanism 'nosuch'"),
        pytest.param("base impossible", "can't be installed: ", marks=pytest.mark.nightly),
    ],
)
def test_mistakes_are_one_line(diff: Diff, tmp_path: Path, arguments: str, says: str) -> None:
    done = diff(arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "impossible" not in arguments or "numpy" in done.stderr
    assert not (tmp_path / "results").exists()


def test_cases_of_one_revision_only_are_listed_and_nothing_is_measured(
    diff: Diff, tmp_path: Path
) -> None:
    both = "--only multi_cnn.conv --only multi_cnn.other"
    done = diff(f"base unmeasured {both} {SMALL} --json out.json")
    assert (done.returncode, done.stderr) == (3, "")
    told = json.loads((tmp_path / "out.json").read_text())
    found = {r["case"].partition("-B")[0]: r["verdict"] for r in told["rows"]}
    assert found == {"multi_cnn.other": "new", "multi_cnn.conv": "gone"}
    assert "nothing of unmeasured" in done.stdout


START = """
import sys
from pathlib import Path
from harness import cli
from harness.diff import revisions
revisions.repository = lambda: Path(sys.argv[1])
sys.exit(cli.run(["diff", *sys.argv[2:]]))
"""


def test_what_is_stopped_leaves_a_readable_journal_and_no_worktree(
    repository: Repository, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    line = f"base changed --only multi_cnn.conv {SMALL} --blocks 50"
    given = ("-c", START, repository.root, *line.split())
    process = started(*given, cwd=tmp_path, TMPDIR=str(temporary))
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        files = list(tmp_path.glob("results/*.jsonl"))
        if files and '"kind":"diff"' in files[0].read_text():
            break
        time.sleep(0.05)
    in_use = f"attnbench diff, process {process.pid} on "
    with pytest.raises(UsageError, match=in_use), at_work(tmp_path / "results", "", alone=False):
        pytest.fail("it is measured alone")
    assert len(repository.git("worktree", "list").splitlines()) == 3
    process.send_signal(signal.SIGTERM)  # as `timeout` does
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (130, "attnbench: stopped\n")
    repository.assert_clean(temporary)
    read = journal.read(tmp_path / "results")
    assert not read.warnings
    assert any(r["kind"] == "diff" and r["status"] == "ok" for r in read.records)


@pytest.mark.nightly
def test_other_constraints_get_environments_of_their_own(diff: Diff, tmp_path: Path) -> None:
    done = diff(f"base pinned --only multi_cnn.conv {SMALL} --blocks 1")
    assert (done.returncode, done.stderr) == (3, ""), done.stdout + done.stderr
    assert "the constraints of the two revisions differ" in done.stdout
    mine = [r for r in journal.read(tmp_path / "results").records if r["kind"] == "diff"]
    assert [r["status"] for r in mine] == ["ok"] * 3


def test_the_repository_is_the_clone_that_attnbench_runs_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path.resolve()
    monkeypatch.setattr(harness, "__path__", [str(root / "harness")])
    with pytest.raises(UsageError, match="is no git checkout; clone the repository"):
        revisions.repository()
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    assert revisions.repository() == root
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(UsageError, match="git is not there"):
        revisions.repository()


def test_an_interpreter_runs_the_python_that_it_is_given() -> None:
    with Interpreter(preload=(), python=sys.executable) as interpreter:
        assert interpreter.run("statistics:mean", {"data": [1, 3]}).value == 2
