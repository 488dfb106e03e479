"""The mutation tester: what it changes, what it finds, what it does not run twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from cosmic_ray.mutating import mutate_code
from rich.console import Console

from harness.errors import UsageError
from harness.isolate import Pool
from suites.programs.mutation import __main__ as program
from suites.programs.mutation import draw, inside
from suites.programs.mutation import run as running
from suites.programs.mutation.draw import Mutant, Site, Unit, sample, select, sites, units
from suites.programs.mutation.operators import operators, positions
from suites.programs.mutation.relevance import TEST, Ran, lines_to_watch, relevant
from suites.programs.mutation.run import Store, baseline, control, run
from suites.support.patching import ROOT

SMALL = "source2token"


@pytest.fixture(scope="module", autouse=True)
def one_interpreter() -> Iterator[None]:
    """Begun once for all tests of this module, each task in a child of its own as ever."""
    preload, env = running.PRELOAD, running.ONE_THREAD

    def run_all(tasks: Sequence[Any], workers: int, **options: Any) -> Iterator[Any]:
        assert options == {"preload": preload, "env": env}
        return pool.run(tasks)

    with Pool(1, preload=preload, env=env) as pool, mock.patch.object(running, "run_all", run_all):
        yield


def planted(file: str, line: str, becomes: str, unit: str = SMALL) -> Mutant:
    """A mutant of our own choice."""
    [path] = [p for p in units()[unit].files if p.as_posix().endswith(f"/{file}")]
    before = path.read_text(encoding="utf-8")
    assert before.count(line) == 1
    row = before[: before.index(line)].count("\n") + 1
    site = Site(unit, path, "ByHand", 0, row, 0, line.strip(), 0)
    return Mutant(site, before, before.replace(line, becomes))


DIRECT = "return (closed_at_padding(s, mask).softmax(1) * x)"
SIGN = ("modules.py", "x @ self.s1_w + self.s1_b", "x @ self.s1_w - self.s1_b")
SAME = ("modules.py", "s[..., 0]", "s[..., -1]")
LOOP = ("modules.py", DIRECT, "while True: pass\n        return (s * x)")
BROKEN = ("modules.py", "import math", "import no_such_module")
MEMORY = ("modules.py", DIRECT, "bytearray(1 << 40); return (s * x)")
KERNEL = (
    "divisor = tl.where(good, denominator, 1.0)\n    result",
    "divisor = tl.where(good, -denominator, 1.0)\n    result",
)
UNSEEN = ("modules.py", 'return {"scores": s,', 'return {"scores": -s,')


def test_faults_are_killed_and_what_computes_the_same_survives(tmp_path: Path) -> None:
    results = Store(tmp_path)
    ran, failed = baseline([units()[SMALL]], 1, results, files=[])
    assert ran
    assert not failed
    assert baseline([units()[SMALL]], 0, Store(tmp_path), files=[]) == (ran, failed)
    mutants = [planted(*m) for m in (SIGN, SAME, LOOP, BROKEN, MEMORY, UNSEEN)]
    rows: dict[str, Any] = {}
    run(mutants, ran, results, 1, 1.0, lambda row: rows.update({row["id"]: row}))
    found = [rows[m.id] for m in mutants]
    assert [row["verdict"] for row in found] == [
        "killed",
        "survived",
        "timeout",
        "incompetent",
        "killed",
        "survived",
    ]
    assert "budget" in found[0]["detail"] or "at most" in found[0]["detail"]
    assert "no_such_module" in found[3]["detail"]
    assert found[5]["detail"] == "no check runs it"  # without any test files
    assert all(Store(tmp_path).find(m.id) == rows[m.id] for m in mutants)


def test_a_fault_in_a_kernel_is_noticed_in_tritons_interpreter(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the kernels are Triton's")
    mutant = planted("triton/forward.py", *KERNEL, unit="kernels")
    lines = frozenset(range(1, len(mutant.before.splitlines())))
    test = f"{inside.INTERPRETED}::test_agrees[one-column]"
    ran = [Ran((TEST, inside.INTERPRETED, test), 10.0, {"kernels/triton/forward.py": lines})]
    for made, verdict in ((mutant, "killed"), (replace(mutant, source=mutant.before), "survived")):
        rows: list[Any] = []
        run([made], ran, Store(tmp_path), 1, 60.0, rows.append)
        assert [(row["verdict"], row["by"] == test) for row in rows] == [
            (verdict, verdict == "killed")
        ]


def test_a_check_that_fails_by_itself_kills_nothing_but_the_run() -> None:
    layer = f"{SMALL}/modules.py"
    lines = {layer: frozenset({1})}
    fine = Ran(("trial", "N=2", f"{SMALL}.plain", "f64"), 0.1, lines)
    wrong = Ran(("golden", f"{SMALL}/no_such.npz", f"{SMALL}.plain", "f64"), 0.2, lines)
    with pytest.raises(UsageError, match="the code as it is does not survive: killed by golden"):
        control([units()[SMALL]], [fine, wrong], 1, 5.0)


def test_a_finished_mutant_is_not_run_again_unless_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = planted(*SIGN)
    first = Store(tmp_path)
    assert first.find(mutant.id) is None
    first.add_mutant(mutant, {"verdict": "killed", "by": "", "detail": "", "seconds": 0})
    assert Store(tmp_path).find(mutant.id) is not None
    monkeypatch.setattr(running, "state", lambda: "other code or checks")
    assert Store(tmp_path).find(mutant.id) is None


def test_the_program_scores_resumes_and_names_survivors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    mutants = [planted(*SIGN), planted(*SAME)]
    monkeypatch.setattr(program, "sample", lambda *_: mutants)
    monkeypatch.setattr(program, "baseline", lambda *_, **__: ([], []))
    monkeypatch.setattr(program, "control", lambda *_: None)

    def made_up(todo: Sequence[Mutant], *rest: Any) -> None:
        for mutant, verdict in zip(todo, ("timeout", "survived"), strict=True):
            outcome = {"verdict": verdict, "by": "", "detail": "", "seconds": 0.0}
            rest[-1](rest[1].add_mutant(mutant, outcome))

    monkeypatch.setattr(program, "run", made_up)
    told = Console(record=True, width=160, file=(tmp_path / "told").open("w"))
    assert program._score(told, [units()[SMALL]], 2, 0, 1, 5.0, []) == 1
    text = told.export_text()
    assert "50%" in text
    assert f"nox -s mutants -- --only {mutants[1].id}" in text
    assert "s[..., -1]" in text

    def fail(*_: Any) -> Any:
        raise AssertionError("run again")

    monkeypatch.setattr(program, "run", fail)
    assert program._score(told, [units()[SMALL]], 2, 0, 1, 5.0, []) == 1
    gone, come = mutants[1].change
    declared = [draw.Equivalent(f"{SMALL}/modules.py", gone, (come,), "shape")]
    assert program._score(told, [units()[SMALL]], 2, 0, 1, 5.0, declared) == 0


@pytest.mark.nightly
def test_a_test_is_found_again_in_each_run_whatever_its_name(tmp_path: Path) -> None:
    # pytest escapes a name's backslashes anew each time that it collects in one process.
    file = tmp_path / "test_of_backslashes.py"
    file.write_text(
        "import pytest\n"
        "from reference_impls.masks import parse\n"
        "@pytest.mark.parametrize('sign', ['a', '\\\\d', '\\n'], ids=str)\n"
        "def test_of_lines(sign):\n"
        "    assert parse('forward').lo == 1\n"
    )
    names = [row["check"][2] for row in inside.baseline_tests(str(file))["ran"]]
    assert len(names) == 3
    chosen = [name for name in names if "\\" in name]
    assert len(chosen) == 2
    for _ in range(2):
        for name in chosen:
            assert inside.run_tests([str(file)], [name], {}).finished == 1


def test_equivalents_that_match_nothing_are_refused(tmp_path: Path) -> None:
    mutant = sample(units()[SMALL], 1, 0)[0]
    gone, come = mutant.change
    file = tmp_path / "equivalent.toml"

    def entry(**changes: str) -> list[draw.Equivalent]:
        given = {
            "file": draw.short(mutant.site.path),
            "line": gone,
            "becomes": come,
            "reason": "for the test",
            **changes,
        }
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in given.items())
        file.write_text("[[equivalent]]\n" + text)
        return draw.read(file)

    right = entry()
    draw.refuse_stale(right, select([SMALL]))
    assert draw.declared(mutant, right) == right[0]
    for stale in (entry(line=gone + " "), entry(becomes=come + " + 1")):
        with pytest.raises(UsageError, match="the code has changed: correct the entry"):
            draw.refuse_stale(stale, select([SMALL]))
        assert draw.declared(mutant, stale) is None
    for bad in ({"reason": " "}, {"file": "mtsaa/modules.py"}):
        with pytest.raises(UsageError, match="expected a package that is there, and a reason"):
            entry(**bad)


def test_the_declared_equivalents_are_of_lines_that_there_are() -> None:
    # What the lines become takes a minute to see: the program refuses that.
    entries = draw.read()
    for entry in entries:
        text = " ".join((ROOT / entry.file).read_text(encoding="utf-8").split())
        assert " ".join(entry.line.split()) in text, entry
        assert entry.becomes
    draw.refuse_stale(entries, select([SMALL]))


@pytest.mark.parametrize(
    ("operator", "source", "wanted"),
    [
        ("LeaveOutMethod", "a = x.flip(0).sum()\n", ["a = x.sum()\n", "a = x.flip(0)\n"]),
        ("LeaveOutMethod", "import torch\na = torch.f(x)\n", []),
        ("LeaveOutMethod", "import torch\na = torch.nn.f(x)\n", []),
        ("LeaveOutMethod", "a = self.f(x)\n", []),
        ("LeaveOutMethod", "a = self.w.abs()\n", ["a = self.w\n"]),
        ("LeaveOutMethod", "a = x.contiguous()\n", []),
        ("LeaveOutMethod", "w.zero_()\n", []),
        ("LeaveOutCall", "a = torch.relu(x + 1) * 2\n", ["a = (x + 1) * 2\n"]),
        ("LeaveOutCall", "a = f(x, 1)\n", ["a = (x)\n"]),
        ("LeaveOutCall", "a = f(k=1) + g() + int(x)\nraise Bad('no')\n", []),
        ("LeaveOutStatement", "check(x)\nw.zero_()\n", ["pass\nw.zero_()\n", "check(x)\npass\n"]),
        (
            "ReplaceTrueWithFalse",
            "a = zip(b, strict=True)\nc = f(d=True)\n",
            ["a = zip(b, strict=True)\nc = f(d=False)\n"],
        ),
        ("LeaveOutCall", "assert isinstance(a, B)\n", []),
        ("LeaveOutStatement", "super().__init__()\n'text'\na = f(x)\n", []),
    ],
)
def test_calls_are_left_out(operator: str, source: str, wanted: list[str]) -> None:
    drawn = [n for name, n, _ in positions(source) if name == operator]
    made = [mutate_code(source, operators()[operator], n) for n in drawn]
    assert sorted(made) == sorted(wanted)


def test_annotations_docstrings_and_signatures_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "made_up.py"
    path.write_text(
        '"""1 + 1."""\nfrom a import b\n\n\n'
        "def f(x: A | None, *, y: B[2] | None = 3) -> C | None:\n"
        "    z: D | E = x + 4\n    return z\n"
    )
    # Two other numbers for each of the two, and ten other operations for the sum.
    assert Counter(s.line for s in sites(Unit("made_up", (path,)))) == {
        "def f(x: A | None, *, y: B[2] | None = 3) -> C | None:": 2,
        "z: D | E = x + 4": 2 + 11,
    }


def test_the_draw_is_fixed_and_spread_over_all_places() -> None:
    unit = units()[SMALL]
    drawn, everything = sample(unit, 20, 0), sample(unit, 10**6, 0)
    assert [m.id for m in drawn] == [m.id for m in everything[:20]]
    places, others = (
        {(m.site.path, m.site.row, m.site.column) for m in some}
        for some in (drawn, sample(unit, 20, 1))
    )
    assert len(places) == 20
    assert places != others
    assert len({m.id for m in everything}) == len(everything)
    assert {m.site.path.name for m in everything} == {"modules.py"}


def test_only_checks_that_run_the_statement_are_asked() -> None:
    source = (
        "A = 1\n\n\ndef f(\n    x=2,\n):\n    if x:\n        return (\n            x\n        )\n"
        "    return 3\n"
    )
    assert lines_to_watch(source, 1) is None
    assert lines_to_watch(source, 5) == set(range(7, 12))
    assert lines_to_watch(source, 7) == {7}
    assert lines_to_watch(source, 9) == {8, 9, 10}
    ran = [
        Ran(("trial", "slow"), 2.0, {"p/a.py": frozenset({7, 8})}),
        Ran(("trial", "fast"), 1.0, {"p/a.py": frozenset({7, 11})}),
        Ran(("test", "file", "id"), 0.1, {"p/a.py": frozenset({7, 11})}),
        Ran(("test", "file", "compiled"), 0.2, {"p/b.py": frozenset({1})}, compiles=True),
        Ran(("trial", "other"), 0.1, {"q/a.py": frozenset({7, 8})}),
    ]

    def asked(row: int) -> list[str]:
        return [r.check[-1] for r in relevant(ran, "p/a.py", source, row)]

    assert asked(9) == ["slow", "compiled"]
    assert asked(11) == ["fast", "id", "compiled"]
    assert asked(1) == ["fast", "slow", "id", "compiled"]


def test_below_nine_in_ten_is_not_enough() -> None:
    def score(killed: int, survived: int) -> program.Score:
        return program.Score("x", 100, 0, Counter(killed=killed - 1, timeout=1, survived=survived))

    assert score(90, 10).enough
    assert not score(89, 11).enough
    assert program.Score("x", 3, 3, Counter()).enough
    assert program.together([score(90, 10), score(95, 5)]).share == pytest.approx(0.925)
    # A package by itself, unless it has so few that one survivor would decide.
    assert not program.passed([score(80, 20), score(400, 0)])
    assert program.passed([score(4, 1), score(400, 0)])
    assert not program.passed([score(4, 1), score(3, 1)])
