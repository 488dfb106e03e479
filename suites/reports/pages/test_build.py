"""``attnbench report`` on made-up journals, with the real papermill."""

from __future__ import annotations

import ast
import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas as pd
import pytest

import reports.core.source
import reports.site
from harness.cli import run as command
from harness.experiments.conclusion import conclusions
from harness.records import journal
from reports.contents import NOTEBOOKS, Asked, Notebook, Page
from reports.core.axes import spread
from reports.core.html import TEMPLATES, document
from reports.core.parameters import unknown
from reports.core.slopes import by_block, fit_slope, longest
from reports.core.source import find
from reports.core.words import file_name
from reports.pages.comparison import figures as comparison_figures
from reports.pages.scaling import figures as scaling_figures
from suites.support.command_line import ROOT, attnbench, environment

EVIL = '<script>alert("$x_1$")</script>'
DESIGN = """../"'\\\n); open("executed", "w") #"""
FAMILY = "family" + "0" * 10
PAIR, MANY = (f"comparison-{file_name(key)}" for key in (DESIGN, FAMILY))
BASE, MINE = "multi_head.sdpa", "mtsa.algorithm1"
LENGTHS = (16, 64, 256, 1024)
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def fingerprint(model: str) -> dict[str, Any]:
    return {"device": "cpu", "model": model, "torch": "2.13.0", "threads": 2}


def write_bench(folder: Path, model: str, scale: float = 1.0) -> None:
    """Multi-head grows as N, ours as N squared, and runs out of memory at the longest length."""
    rng = np.random.default_rng(0)
    environment = {"commit": EVIL, "platform": EVIL, "packages": {EVIL: EVIL}}
    writer = journal.Writer(folder, {"fingerprint": fingerprint(model), "environment": environment})
    for n in LENGTHS:
        for phase in ("forward", "training"):
            for block in range(3):
                mine = f"{EVIL}.{EVIL}" if EVIL in model else MINE
                for name, power, extra in ((BASE, 1, ""), (BASE, 1, "+control"), (mine, 2, "")):
                    heads = f"{name}-B2-N{n}-D30x60-H8-f32-{phase}-cpu+1-thread{extra}"
                    seconds = scale * (n / 16) ** power * 2.0**block * rng.lognormal(0, 0.01)
                    common = {
                        "case": heads,
                        "block": block,
                        "interpreter": f"i{block}",
                        "code": "c",
                    }
                    oom = name == mine and n == LENGTHS[-1]
                    how = (
                        {"status": "oom", "detail": EVIL}
                        if oom
                        else {"status": "ok", "median": seconds, "samples": [seconds]}
                    )
                    writer.append(
                        {"kind": "time", "key": f"t{model}{heads}{block}", **common, **how}
                    )
                    if block == 0 and not oom:
                        bytes_ = n * 2**20
                        writer.append(
                            {
                                "kind": "memory",
                                "key": f"m{model}{heads}",
                                **common,
                                "status": "ok",
                                "peak_bytes": bytes_,
                                "transient_bytes": bytes_,
                            }
                        )
    writer.close()


def write_comparison(folder: Path, model: str, gain: float = 0.02, seeds: int = 6) -> None:
    """Seeds differ widely; ours gains a little with every one."""
    writer = journal.Writer(folder, {"fingerprint": fingerprint(model), "environment": {}})
    keys = [[f"{name}{seed}" for name in (MINE, BASE)] for seed in range(seeds)]
    recipe = {"choose": "dev", "tuning_trials": 0}
    writer.append(
        {
            "kind": "design",
            "key": DESIGN,
            "question": "q",
            "models": [MINE, BASE],
            "task": f"trec {EVIL}",
            "metric": "accuracy",
            "higher_is_better": True,
            "split": EVIL,
            "one_test_set": True,
            "recipes": [recipe, recipe],
            "seeds": list(range(seeds)),
            "paired": True,
            "margin": 0.05,
            "match": "none",
            "runs": keys,
            "status": "ok",
        }
    )
    for seed in range(seeds):
        for name, more in ((MINE, gain + 0.001 * seed), (BASE, 0.0)):
            value = 0.7 + 0.03 * seed + more
            epochs = [
                {"epoch": e, "loss": 1.0 / e, "dev": {"accuracy": value - 0.1 / e}, "seconds": 1.0}
                for e in (1, 2, 3)
            ]
            writer.append(
                {
                    "kind": "run",
                    "key": f"{name}{seed}",
                    "model": name,
                    "seed": seed,
                    "status": "ok",
                    "epochs": epochs,
                    "chosen_epoch": 3,
                    "test": {"accuracy": value},
                    "seconds": 3.0,
                    "parameters": 1000,
                    "parameters_with_words": 2000,
                    "peak_bytes": 2.0**20,
                }
            )
    writer.close()


def write_family(folder: Path, model: str, seeds: int = 6) -> None:
    """Two models against one on two tasks: one gains much, the other nothing."""
    writer = journal.Writer(folder, {"fingerprint": fingerprint(model), "environment": {}})
    recipe = {"choose": "dev", "tuning_trials": 0}
    tasks, models = (f"trec {EVIL}", "cr"), (MINE, "bi_lstm.packed")
    made = [
        {
            "kind": "design",
            "key": f"{name}-{task}",
            "question": f"{name}-{task}",
            "models": [name, BASE],
            "task": task,
            "metric": "accuracy",
            "higher_is_better": True,
            "split": EVIL,
            "one_test_set": True,
            "recipes": [recipe, recipe],
            "folds": 0,
            "seeds": list(range(seeds)),
            "paired": True,
            "margin": None,
            "match": "none",
            "runs": [[f"{name}-{task}-{s}", f"{BASE}-{task}-{s}"] for s in range(seeds)],
            "status": "ok",
        }
        for task in tasks
        for name in models
    ]
    writer.append(
        {
            "kind": "family",
            "key": FAMILY,
            "question": "fq",
            "baseline": BASE,
            "models": list(models),
            "tasks": list(tasks),
            "designs": made,
            "status": "ok",
        }
    )
    for task in tasks:
        for name, gain in ((BASE, 0.0), (MINE, 0.05), (models[1], 0.0)):
            for seed in range(seeds):
                value = 0.7 + 0.01 * seed + gain + 0.002 * (-1) ** seed * (name != BASE)
                writer.append(
                    {
                        "kind": "run",
                        "key": f"{name}-{task}-{seed}",
                        "model": name,
                        "seed": seed,
                        "status": "ok",
                        "test": {"accuracy": value},
                        "seconds": 3.0,
                        "epochs": [
                            {"epoch": 1, "loss": 1.0, "dev": {"accuracy": value}, "seconds": 1.0}
                        ],
                        "chosen_epoch": 1,
                        "parameters": 1000,
                        "parameters_with_words": 2000,
                    }
                )
    writer.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole report: two devices, one of them with a comparison, and one of many models."""
    folder = tmp_path_factory.mktemp("das ist ☃")
    write_bench(folder / "journal", f"Slow {EVIL}", 100.0)
    write_bench(folder / "journal", "Fast")
    write_comparison(folder / "journal", "Fast")
    write_family(folder / "journal", "Fast")
    done = attnbench(
        "report", "--journal", "journal", "--out", "out", "--json", "out.json", cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert f"report: {Path('out') / 'index.html'}" in done.stdout
    return folder / "out"


def pages(site: Path) -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in site.glob("*.html")}


def test_the_folder_has_an_index_and_its_pages(site: Path) -> None:
    found = pages(site)
    assert len([name for name in found if name.startswith("scaling-")]) == 2
    assert {"index.html", "audit.html"} < set(found)
    assert len([name for name in found if name.startswith("comparison-")]) == 2
    assert json.loads((site.parent / "out.json").read_text())["failures"] == []
    index = found["index.html"]
    reached = set(re.findall(r'href="([^"]*\.html)"', "".join(found.values())))
    assert set(found) <= reached
    assert "Built from the journal journal." in index
    assert "2 experiments. Of the comparisons of two: 1 " in index
    table = found["experiments.html"]
    assert f'href="{PAIR}.html"' in table
    assert f'href="{MANY}.html"' in table
    groups = re.findall(r'class="name">(\w+)<', index)
    assert groups == ["Cost", "Accuracy", "Claims", "Trust"]
    (nav,) = re.findall("<nav.*?</nav>", index, re.S)
    assert nav.count("<a ") <= 9  # the overview, and eight


def test_every_figure_is_there_twice_and_has_a_sentence(site: Path) -> None:
    kinds = {kind: {p.stem for p in site.glob(f"figures/*.{kind}")} for kind in ("svg", "png")}
    assert kinds["svg"] == kinds["png"]
    assert len(kinds["svg"]) > 20
    for path in site.glob("figures/*.svg"):
        assert path.read_text().rstrip().endswith("</svg>")
    for path in site.glob("figures/*.png"):
        assert path.read_bytes().startswith(b"\x89PNG")
    for name, text in pages(site).items():
        captions = re.findall(r"<figcaption>(.*?)(?:<span|</figcaption>)", text)
        assert len(captions) == len(re.findall("<figure[ >]", text)), name
        assert all(len(c) > 30 and c.rstrip().endswith(".") for c in captions), captions


def test_it_opens_offline(site: Path) -> None:
    """Nothing is loaded but files of the folder itself; no script but ours, in the page."""
    for name, text in pages(site).items():
        for loaded in re.findall(r'(?:src|href|action|data)\s*=\s*"([^"]*)"', text):
            if not loaded.startswith(("#", "data:")):
                assert (site / loaded).is_file(), f"{name} loads {loaded}"
        assert text.count("<script") == 1
        assert (TEMPLATES / "tables.js").read_text() in text
        assert not re.search(r"@import|url\((?!#)", text), name
    for path in site.glob("figures/*.svg"):
        assert not re.search(r'href="(?!#|data:)|url\((?!#)|@import', path.read_text()), path.name


def test_text_from_records_is_escaped(site: Path) -> None:
    for name, text in pages(site).items():
        assert EVIL not in text, name
        # The others show nothing of the records that hold it.
        if name.startswith(("index", "scaling", "trust", "comparison")):
            assert "&lt;script&gt;" in text, name
    for path in site.glob("figures/*.svg"):
        assert "<script" not in path.read_text(), path.name
    for path in site.glob("notebooks/*.ipynb"):
        outputs = [
            o for cell in json.loads(path.read_text())["cells"] for o in cell.get("outputs", ())
        ]
        shown = [text for o in outputs for text in o.get("data", {}).get("text/html", ())]
        assert shown
        assert not [text for text in shown if "<script" in text], path.name
    assert not list(site.parent.rglob("executed"))


def test_every_figure_has_its_data(site: Path) -> None:
    drawn = sorted(site.glob("figures/*.svg"))
    assert len(drawn) > 20
    empty = [p.name for p in drawn if pd.read_csv(p.with_suffix(".csv")).empty]
    assert empty == []


def test_devices_are_never_mixed(site: Path) -> None:
    tables = {p.name: pd.read_csv(p) for p in site.glob("tables/scaling-*-cases.csv")}
    assert len(tables) == 2
    fast = next(t for name, t in tables.items() if "fast" in name)
    slow = next(t for name, t in tables.items() if "slow" in name)
    assert len(fast) == len(slow) == 2 * 2 * len(LENGTHS)
    both = fast.merge(slow, on="case")
    ratio = (both["time_seconds_y"] / both["time_seconds_x"]).dropna()
    assert ratio.tolist() == pytest.approx([100.0] * 2 * len(LENGTHS))
    page = next(text for name, text in pages(site).items() if name.startswith("scaling-fast"))
    assert "never mixed with this: Slow" in page


def test_oom_is_marked_and_named(site: Path) -> None:
    (drawn,) = site.glob("figures/scaling-fast-cpu-??????-time-training.svg")
    assert ">OOM<" in drawn.read_text()
    page = next(text for name, text in pages(site).items() if name.startswith("scaling-fast"))
    assert "mtsa.algorithm1 8h at N = 1,024: oom" in page
    (table,) = site.glob("tables/scaling-fast*-cases.csv")
    failed = pd.read_csv(table).query("status == 'oom'")
    assert failed["length_tokens"].unique().tolist() == [1024]
    assert failed["time_seconds"].isna().all()


def test_tables_parse_and_name_their_units(site: Path) -> None:
    tables = {p.name: pd.read_csv(p) for p in site.glob("tables/*.csv")}
    assert all(len(table) for table in tables.values())
    slopes = next(t for name, t in tables.items() if "fast" in name and "slopes" in name)
    mine = slopes.query("cost == 'time' and implementation == 'mtsa.algorithm1 8h'")
    assert mine["slope"].tolist() == pytest.approx([2.0] * len(mine), abs=0.02)
    assert (mine["slope_high"] - mine["slope_low"]).max() < 0.1
    assert set(mine["lengths_tokens"]) == {"16 64 256", "64 256"}
    cases = next(t for name, t in tables.items() if "cases" in name)
    assert {"time_seconds", "peak_memory_bytes", "length_tokens"} <= set(cases)
    assert "training_seconds" in tables[f"{PAIR}-costs.csv"]
    assert tables[f"{PAIR}-seeds.csv"]["difference_accuracy"].min() == pytest.approx(0.02)


def test_the_comparison_page_gives_the_interval_first(site: Path) -> None:
    text = pages(site)[f"{PAIR}.html"]
    words = ["95 % t-interval [", "p (paired t", "Hedges g", "minimum detectable", "sign-flip"]
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "+2.25 points" in text
    assert "mtsa.algorithm1 did better than multi_head.sdpa with 6 of 6 seeds." in text
    assert "one and the same test set" in text  # a warning


def test_the_page_of_many_allows_for_their_number(site: Path) -> None:
    text = pages(site)[f"{MANY}.html"]
    words = [
        "2 models against multi_head.sdpa",
        "2 better, 2 undecided",
        "over 6 paired seeds",
        "one and the same test set",
        "95 % t-intervals.",
        "p Holm</th>",
        "baseline</td>",
        "allow for 4 comparisons",
        "any difference among the 3 models (Friedman)",
        "mean rank",
    ]
    places = [text.index(word) for word in words]
    assert places == sorted(places)
    assert "2 better, 2 undecided" in pages(site)["experiments.html"]
    table = pd.read_csv(site / "tables" / f"{MANY}-task0-statistics.csv")
    assert table["first"].tolist() == [MINE, "bi_lstm.packed"]
    assert table["verdict"].tolist() == ["better", "undecided"]
    assert (table["p_holm"] >= table["p"]).all()
    assert table["difference"].iloc[0] == pytest.approx(0.05)
    ranks = pd.read_csv(site / "tables" / f"{MANY}-tasks.csv").set_index("model")["mean rank"]
    assert ranks[MINE] == 1.0


def test_a_forest_has_a_line_for_every_model(tmp_path: Path) -> None:
    write_family(tmp_path, "Fast")
    (many,) = conclusions(journal.read(tmp_path).records)
    (axes,) = comparison_figures.forest(many.of_task("cr")).axes
    bars = [np.asarray(line.get_xdata()).tolist() for line in axes.get_lines()]
    for c in many.of_task("cr"):
        assert c.difference is not None
        assert [100 * c.difference.low, 100 * c.difference.high] in [
            pytest.approx(b) for b in bars if len(b) == 2
        ]
    assert [t.get_text() for t in axes.get_yticklabels()] == [MINE, "bi_lstm.packed"]


def test_a_second_report_replaces_the_first_one_only(tmp_path: Path) -> None:
    out = tmp_path / "out"
    reports.site.prepare(out)
    (out / "index.html").write_text(document("t", ""))
    (out / "scaling-gone.html").write_text(document("t", ""))
    (out / "mine.html").write_text("mine")
    reports.site.prepare(out)
    assert [p.name for p in out.glob("*.html")] == ["mine.html"]
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("years of work")
    with pytest.raises(reports.site.UsageError, match="holds other files"):
        reports.site.prepare(tmp_path / "other")


def test_an_empty_journal_falls_back_to_the_published_records(tmp_path: Path) -> None:
    found = find(str(tmp_path))
    assert found.published
    assert found.devices
    assert "published with attnbench, not from yours" in found.says
    assert "holds no measurements" in found.says
    assert "does not exist" in find(str(tmp_path / "nowhere")).says
    write_bench(tmp_path, "Fast")
    assert not find(str(tmp_path)).published


@pytest.mark.usefixtures("no_published")
def test_nothing_at_all_is_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert command(["report", "--journal", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nothing to report" in error
    assert not (tmp_path / "out").exists()


def test_bad_sizes_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("batches = 3\n")
    done = attnbench("report", "--like", "mine.toml", "--out", "r", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("attnbench: --like mine.toml: unknown name 'batches'; use batch")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "r").exists()


@pytest.fixture
def no_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports.core.source, "PUBLISHED", tmp_path / "none")


def test_a_failing_notebook_is_named_and_the_others_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    bad = Page("scaling", "broken", "Broken", {"device": f"nonsense{EVIL}"})
    good = Page("audit", "audit", "Audit", {})
    books = (
        Notebook("scaling", lambda _: [bad], "nobody"),
        Notebook("audit", lambda _: [good], "nobody"),
    )
    monkeypatch.setattr(reports.site, "NOTEBOOKS", books)
    out = tmp_path / "out"
    assert command(["report", "--journal", str(tmp_path / "no"), "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "broken could not be made: NotebookError: given device 'nonsense" in error
    index = (out / "index.html").read_text()
    assert "broken: NotebookError: given device" in index
    assert EVIL not in index
    assert "MTSA's accuracies" in (out / "audit.html").read_text()
    assert "could not be made" in (out / "broken.html").read_text()


def test_what_was_not_done_is_said_not_failed(tmp_path: Path) -> None:
    write_bench(tmp_path, "Fast")
    source = find(str(tmp_path))
    by_name = {book.name: book for book in NOTEBOOKS}
    assert by_name["comparison"].pages(Asked(source, str(tmp_path))) == []
    assert "attnbench compare" in by_name["comparison"].missing
    assert "attnbench compare --all" in by_name["comparison"].missing
    other = tmp_path / "compared"
    write_comparison(other, "Fast")
    assert by_name["scaling"].pages(Asked(find(str(other)), str(other))) == []
    assert "attnbench bench" in by_name["scaling"].missing


def papermill(book: str, cwd: Path, *parameters: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "papermill",
            str(ROOT / "notebooks" / book),
            "out.ipynb",
            "-k",
            "python3",
            *parameters,
        ],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_misspelt_parameter_is_an_error_under_papermill_itself(tmp_path: Path) -> None:
    done = papermill("scaling.ipynb", tmp_path, "-p", "jurnal", "x")
    assert done.returncode != 0
    assert done.stderr.rstrip().splitlines()[-1] == (
        "NotebookError: unknown parameter 'jurnal'; this notebook has journal, device, out, page"
    )
    assert "refuse_unknown" not in done.stderr  # no traceback of ours


def test_papermill_itself_runs_a_notebook_with_right_parameters(tmp_path: Path) -> None:
    done = papermill("audit.ipynb", tmp_path, "-p", "out", "here")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here" / "figures" / "audit-runner-up.svg").is_file()


@pytest.mark.parametrize(
    ("cell", "wrong"),
    [
        ("# Parameters\njurnal = 'x'\n", ["jurnal"]),
        ("journal = 'x'\n_out = 3\n", ["_out"]),
        ("journal = 'x'\nout = None\n", []),
        ("jurnal = float('nan')\nlist_ = [1, {'a': -2}]\n", ["jurnal", "list_"]),
        ("import os\nx = os.getcwd()\n", []),  # a person at work
        ("%matplotlib inline\n", []),
    ],
)
def test_only_what_papermill_writes_is_taken_for_parameters(cell: str, wrong: list[str]) -> None:
    assert unknown([cell], ["journal", "out"]) == wrong


@pytest.mark.parametrize("path", BOOKS, ids=lambda p: p.stem)
def test_notebooks_are_thin_and_stripped(path: Path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    code = [cell for cell in book.cells if cell.cell_type == "code"]
    assert code[0].metadata.tags == ["parameters"]
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    declared = {line.partition(" = ")[0] for line in code[0].source.splitlines()}
    for cell in code:
        tree = ast.parse(cell.source)
        assert not any(isinstance(node, ast.Import) for node in ast.walk(tree))
        modules = [n.module for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert all(str(module).startswith("reports") for module in modules)
        assert len(tree.body) <= max(3, len(declared))
    opening = next(
        n
        for n in ast.walk(ast.parse(code[1].source))
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "begin"
    )
    assert {keyword.arg for keyword in opening.keywords} == declared
    assert not opening.args  # the keywords are what parameters are checked against


def test_every_page_has_its_notebook() -> None:
    assert {book.name for book in NOTEBOOKS} == {path.stem for path in BOOKS}


def test_reports_do_not_load_torch() -> None:
    modules = ", ".join(f"reports.{p.stem}" for p in (ROOT / "reports").glob("[a-z]*.py"))
    code = f"import sys, harness.cli.report, {modules}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_slope_of_a_power_law_is_found() -> None:
    rng = np.random.default_rng(1)
    covered = 0
    for _ in range(200):
        blocks = [
            {n: 3e-6 * n**1.7 * drift * rng.lognormal(0, 0.05) for n in (16, 64, 256, 1024)}
            for drift in rng.lognormal(0, 1, 7)
        ]
        fit = fit_slope(blocks)
        assert fit is not None
        assert fit.slope == pytest.approx(1.7, abs=0.06)
        assert (fit.blocks, fit.lengths) == (7, (16, 64, 256, 1024))
        covered += fit.low <= 1.7 <= fit.high
    assert 0.90 <= covered / 200 <= 0.99  # a 95 % interval


def test_overhead_bends_the_whole_and_not_the_longest() -> None:
    blocks: list[Mapping[int, float]] = [
        {n: 1e-2 + 1e-6 * n**2 for n in (16, 64, 256, 1024, 4096)} for _ in range(3)
    ]
    whole, end = fit_slope(blocks), fit_slope(longest(blocks))
    assert whole is not None
    assert end is not None
    assert end.lengths == (1024, 4096)
    assert whole.slope < 1.5 < 1.99 < end.slope
    assert set(longest([{512: 1.0, 1024: 2.0, 2048: 4.0, 256: 1.0}])[0]) == {512, 1024, 2048}


def test_the_longest_lengths_are_those_that_show_growth_and_if_they_can_its_interval() -> None:
    short = {n: float(n) for n in (256, 1024, 4096)}
    alone = {16384: 1.0}
    assert longest([alone, short]) == [{}, {1024: 1024.0, 4096: 4096.0}], "one length shows nothing"
    once = {8192: 1.0, 16384: 4.0}
    assert longest([once, short]) == [once, {4096: 4096.0}], "the longest, if none has an interval"
    again = fit_slope(longest([once, short, dict(short)]))
    assert again is not None
    assert (again.blocks, again.lengths) == (2, (1024, 4096))
    far = {2 * n: v for n, v in once.items()}
    assert longest([far, short, dict(short)])[0] == far, "two that end far before say too little"
    assert longest([alone]) == []


def test_slopes_without_enough_are_none_or_without_interval() -> None:
    assert fit_slope([]) is None
    assert fit_slope([{16: 1.0}]) is None
    one = fit_slope([{16: 1.0, 32: 2.0}])
    assert one is not None
    assert one.slope == pytest.approx(1.0)
    assert math.isnan(one.low)
    assert str(one) == "1.00 [one reading]"
    lacking = fit_slope([{16: 1.0, 32: 2.0}, {16: 1.0}])
    assert lacking is not None
    assert lacking.blocks == 1


def test_times_of_two_sessions_never_meet_in_a_block() -> None:
    """A slower day must not pass for growth: up to 64 all ran ten times slower than the rest."""
    rows = [
        {"session": session, "block": block, "length": n, "seconds": factor * n, "bytes": n}
        for session, factor, lengths in (("a", 10.0, (16, 32, 64)), ("b", 1.0, (64, 128, 256, 512)))
        for block in (0, 1)
        for n in lengths
    ]
    frame = pd.DataFrame(rows)
    timed = fit_slope(by_block(frame, "seconds", timed=True))
    assert timed is not None
    assert timed.slope == pytest.approx(1.0)
    assert (timed.lengths, timed.blocks) == ((64, 128, 256, 512), 2)
    held = fit_slope(by_block(frame, "bytes", timed=False))
    assert held is not None
    assert (held.lengths, held.blocks) == ((16, 32, 64, 128, 256, 512), 2)


def test_labels_are_moved_apart_as_little_as_possible() -> None:
    assert spread([0.0, 100.0], 10) == [0.0, 100.0]
    assert spread([50.0, 50.0], 10) == [45.0, 55.0]
    moved = spread([10.0, 11.0, 12.0, 60.0], 10)
    assert np.diff(moved).min() >= 10 - 1e-9
    assert moved[1] == pytest.approx(11.0)
    assert moved[3] == 60.0


def test_a_line_for_every_seed(tmp_path: Path) -> None:
    write_comparison(tmp_path, "Fast")
    ((one,),) = (c.comparisons for c in conclusions(journal.read(tmp_path).records))
    (axes,) = comparison_figures.slope_chart(one).axes
    ends = [np.asarray(line.get_ydata()).tolist() for line in axes.get_lines()]
    for _, first, second in one.values:
        assert [100 * second, 100 * first] in [pytest.approx(e) for e in ends]
    texts = [t.get_text() for t in axes.texts]
    assert [f"seed {seed}" in texts for seed in range(6)] == [True] * 6
    offsets = [t.get_position()[1] for t in axes.texts if t.get_text().startswith("seed")]
    assert max(map(abs, offsets)) < 200, "beside their lines, not off the page"
    (axes,) = comparison_figures.differences(one).axes
    assert one.difference is not None
    bar = [100 * one.difference.low, 100 * one.difference.high]
    assert any(
        np.asarray(line.get_xdata()).tolist() == pytest.approx(bar)
        for line in axes.get_lines()
        if np.size(line.get_xdata()) == 2
    )
    curves = comparison_figures.learning_curves([one])
    assert curves is not None
    assert {MINE, BASE} <= {t.get_text() for t in curves.axes[0].texts}


def test_names_at_line_ends_do_not_overlap(tmp_path: Path) -> None:
    write_bench(tmp_path, "Fast")
    from reports.core.page import Output
    from reports.pages.scaling.page import Scaling

    source = find(str(tmp_path))
    report = Scaling(source, source.devices[0], Output(None, "p"))
    figure = scaling_figures.curve("time", report.sweeps[0], "training", report.base, "here")
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in figure.axes[0].texts if t.get_fontsize() == 8]
    inner = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert not any(inner)


def test_the_notebook_metadata_names_no_environment() -> None:
    for path in BOOKS:
        spec = json.loads(path.read_text())["metadata"]["kernelspec"]
        assert spec == {"display_name": "Python 3", "language": "python", "name": "python3"}


def test_papermill_needs_no_kernel_installed_elsewhere() -> None:
    from reports.execute import RunningPython

    spec = RunningPython().kernel_spec
    assert spec.argv[0] == sys.executable
    assert spec.env["PYTHONPATH"].split(os.pathsep)[0] == str(ROOT)
