"""A whole report of made-up records: what its pages say, hold and load, read and in a browser."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import nbformat
import pandas as pd
import pytest

import reports.core.source
import reports.site
from harness.cli import run as command
from reports import contents
from reports.contents import NOTEBOOKS, Notebook, Scope
from reports.core.html import TEMPLATES, document
from reports.core.page import table
from reports.core.parameters import unknown
from reports.core.source import DeviceRecords, Source, find
from reports.core.words import file_name
from suites.support import browser
from suites.support.command_line import ROOT, environment
from suites.support.report_records import (
    BASE,
    DISA,
    EVIL,
    EVIL_KEY,
    FAMILY,
    LENGTHS,
    LSTM,
    MINE,
    SLOWER,
    bench,
    design,
    run,
    write,
)

PAIR, MANY = (f"comparison-{file_name(key)}" for key in (EVIL_KEY, FAMILY))
NONSENSE = f"nonsense{EVIL}"
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
in_a_browser = pytest.mark.skipif(browser.executable() is None, reason="no chromium here")


def pages(site: Path) -> dict[str, str]:
    return {p.name: p.read_text(encoding="utf-8") for p in site.glob("*.html")}


def page_of(site: Path, begins: str) -> str:
    """The one page whose name begins so."""
    (text,) = (text for name, text in pages(site).items() if name.startswith(begins))
    return text


def in_order(text: str, words: list[str]) -> None:
    places = [text.index(word) for word in words]
    assert places == sorted(places)


def test_the_folder_has_an_index_and_its_pages(site: Path) -> None:
    found = pages(site)
    for name, count in {"scaling-": 2, "trust-": 2, "comparison-": 3, "audit": 1}.items():
        assert len([one for one in found if one.startswith(name)]) == count
    assert json.loads((site.parent / "out.json").read_text())["failures"] == []
    reached = set(re.findall(r'href="([^"]*\.html)"', "".join(found.values())))
    assert set(found) <= reached
    index, listed = found["index.html"], found["experiments.html"]
    assert "Built from the journal journal." in index
    assert "3 experiments. Of the comparisons of two: 1 better, 1 practically equal." in index
    assert f'href="{PAIR}.html"' in listed
    assert f'href="{MANY}.html"' in listed
    assert "2 better, 2 undecided" in listed
    assert re.findall(r'class="name">(\w+)<', index) == ["Cost", "Accuracy", "Claims", "Trust"]
    (nav,) = re.findall("<nav.*?</nav>", index, re.S)
    assert nav.count("<a ") <= 9  # the overview, and eight


def test_every_figure_has_three_files_and_a_sentence(site: Path) -> None:
    drawn = sorted(site.glob("figures/*.svg"))
    assert len(drawn) > 20
    for path in drawn:
        assert path.read_text().rstrip().endswith("</svg>")
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
        assert not pd.read_csv(path.with_suffix(".csv")).empty, path.name
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
        cells = json.loads(path.read_text())["cells"]
        outputs = [one for cell in cells for one in cell.get("outputs", ())]
        shown = [text for o in outputs for text in o.get("data", {}).get("text/html", ())]
        assert shown
        assert not [text for text in shown if "<script" in text], path.name
    assert not list(site.parent.rglob("executed"))


def test_devices_are_never_mixed(site: Path) -> None:
    slow, fast = (
        pd.read_csv(next(site.glob(f"tables/scaling-{name}-*-cases.csv")))
        for name in ("not-made-up", "made-up")
    )
    assert len(fast) == len(slow) == 2 * 4 * (1 + len(LENGTHS))
    both = fast.merge(slow, on="case")
    ratio = (both["time_seconds_y"] / both["time_seconds_x"]).dropna()
    assert len(ratio) == 2 * (3 * (1 + len(LENGTHS)) - 1)  # one is called otherwise, one failed
    assert ratio.tolist() == pytest.approx([SLOWER] * len(ratio))
    assert "never mixed with this: Not made up" in page_of(site, "scaling-made-up")


def test_oom_is_marked_and_named(site: Path) -> None:
    (drawn,) = site.glob("figures/scaling-made-up-cpu-??????-time-training.svg")
    assert ">OOM<" in drawn.read_text()
    assert f"{DISA} at N = 1,024: oom" in page_of(site, "scaling-made-up")
    (file,) = site.glob("tables/scaling-made-up*-cases.csv")
    failed = pd.read_csv(file).query("status == 'oom'")
    assert failed["length_tokens"].unique().tolist() == [1024]
    assert failed["time_seconds"].isna().all()


def test_tables_parse_and_name_their_units(site: Path) -> None:
    tables = {p.name: pd.read_csv(p) for p in site.glob("tables/*.csv")}
    assert all(len(one) for one in tables.values())
    cases = next(t for name, t in tables.items() if "cases" in name)
    assert {"time_seconds", "peak_memory_bytes", "length_tokens"} <= set(cases)
    assert "training_seconds" in tables[f"{PAIR}-costs.csv"]
    assert tables[f"{PAIR}-seeds.csv"]["difference_accuracy"].min() == pytest.approx(0.02)


def test_the_comparison_page_gives_the_interval_first(site: Path) -> None:
    text = pages(site)[f"{PAIR}.html"]
    in_order(
        text, ["95 % t-interval [", "p (paired t", "Hedges g", "minimum detectable", "sign-flip"]
    )
    assert "+2.25 points" in text
    assert "mtsa.algorithm1 did better than multi_head.sdpa with 6 of 6 seeds." in text
    assert "one and the same test set" in text  # a warning


def test_the_page_of_many_allows_for_their_number(site: Path) -> None:
    in_order(
        pages(site)[f"{MANY}.html"],
        [
            "2 models against multi_head.sdpa",
            "2 better, 2 undecided",
            "mean rank",
            "p Holm</th>",
            "baseline</td>",
            "any difference among the 3 models (Friedman)",
            "by mean rank: ",
            "no two can be told apart by their ranks with fewer than 7 tasks",
            "Holm over 3 pairs; the smallest p that is possible is 1)",
            "over 6 paired seeds",
            "one and the same test set",
            "95 % t-intervals.",
            "allow for 4 comparisons",
        ],
    )
    many = pd.read_csv(site / "tables" / f"{MANY}-task0-statistics.csv")
    assert many["first"].tolist() == [MINE, LSTM]
    assert many["verdict"].tolist() == ["better", "undecided"]
    assert (many["p_holm"] >= many["p"]).all()
    assert many["difference"].iloc[0] == pytest.approx(0.05)
    ranks = pd.read_csv(site / "tables" / f"{MANY}-tasks.csv").set_index("model")["mean rank"]
    assert ranks[MINE] == 1.0


@in_a_browser
@pytest.mark.slow
@pytest.mark.parametrize(
    ("dark", "width"),
    [
        pytest.param(False, 1280, id="light", marks=pytest.mark.nightly),
        pytest.param(True, 390, id="dark on a phone"),
    ],
)
def test_a_browser_finds_nothing_wrong_with_any_page(site: Path, dark: bool, width: int) -> None:
    found = sorted(site.glob("*.html"))
    for page, seen in zip(found, browser.look(found, dark=dark, width=width), strict=True):
        assert seen.complaints == [], page.name
        assert seen.broken == [], page.name
        asked = [url for url in seen.requests if not url.startswith(("file://", "data:"))]
        assert asked == [], page.name
        assert len(seen.requests) >= 1
        assert not seen.wider, f"{page.name} must be scrolled sideways"


@in_a_browser
@pytest.mark.slow
def test_tables_sort_by_what_they_hold_and_filter_and_the_browser_itself_notices(
    tmp_path: Path,
) -> None:
    """By the buttons that the keyboard reaches; units count, and what is empty stands last."""
    times = ["2.5 ms", "1 s", "", "900 µs"] + ["3 s"] * 6
    shown = table([{"name": f"m{i}", "time": text} for i, text in enumerate(times)])
    act = """<script>addEventListener("DOMContentLoaded", () => {
      const texts = (rows) => [...rows].map((row) => row.cells[0].textContent).join(" ");
      const all = document.querySelector("tbody").rows;
      const [, time] = document.querySelectorAll("th button");
      time.focus(); time.click(); console.log(texts(all));
      time.click(); console.log(time.parentElement.ariaSort, texts(all));
      const filter = document.querySelector("input[type=search]");
      filter.value = "M"; filter.dispatchEvent(new Event("input"));
      filter.value = "µs"; filter.dispatchEvent(new Event("input"));
      console.log(texts([...all].filter((row) => !row.hidden)));
    })</script>"""
    sorts, bad = tmp_path / "table.html", tmp_path / "bad.html"
    sorts.write_text(document("t", f"{shown.html}{act}"))
    bad.write_text(
        "<!doctype html><title>x</title><img src='gone.png'><div style='width:3000px'>x</div>"
        "<script>console.error('oh'); fetch('http://127.0.0.1:9/x').catch(() => 0)</script>"
    )
    sorted_, wrong = browser.look([sorts, bad])
    up, down, filtered = sorted_.complaints
    assert "m3 m0 m1 m4 m5 m6 m7 m8 m9 m2" in up
    assert "descending" in down
    assert "m4 m5 m6 m7 m8 m9 m1 m0 m3 m2" in down
    assert "'m3'" in filtered
    assert any("oh" in text for text in wrong.complaints)
    assert [Path(url).name for url in wrong.broken] == ["gone.png"]
    assert any(url.startswith("http://127.0.0.1:9") for url in wrong.requests)
    assert wrong.wider


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
    (tmp_path / "garbage.jsonl").write_text("no record\n")
    (warning,) = find(str(tmp_path)).warnings
    assert "garbage.jsonl:1: not a record" in warning
    (tmp_path / "garbage.jsonl").unlink()
    write(tmp_path, "Fast", [next(bench())])
    assert not find(str(tmp_path)).published


def test_nothing_at_all_is_exit_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.setattr(reports.core.source, "PUBLISHED", tmp_path / "none")
    assert command(["report", "--journal", str(tmp_path), "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "nothing to report" in error
    assert not (tmp_path / "out").exists()


def test_bad_sizes_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    file, out = tmp_path / "mine.toml", tmp_path / "r"
    file.write_text("batches = 3\n")
    assert command(["report", "--like", str(file), "--out", str(out)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"attnbench: --like {file}: unknown name 'batches'; use batch")
    assert error.count("\n") == 1
    assert not out.exists()


def test_a_failing_notebook_is_named_and_the_others_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    bad = Notebook(
        "scaling", "", "nobody", ("run",), record="device", found=lambda _: [(NONSENSE, "Broken")]
    )
    books = (bad, Notebook("experiments", "Good", "nobody", alone=True))
    monkeypatch.setattr(reports.site, "NOTEBOOKS", books)
    monkeypatch.setattr(reports.site, "cores", lambda: 1)  # one kernel makes both
    write(tmp_path, "Fast", [design(), *(run(MINE, "trec", s, {"accuracy": 0.5}) for s in (0, 1))])
    out = tmp_path / "out"
    assert command(["report", "--journal", str(tmp_path), "--out", str(out)]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "scaling could not be made: NotebookError: given device 'nonsense" in error
    index = (out / "index.html").read_text()
    assert "scaling: NotebookError: given device" in index
    assert EVIL not in index
    assert "1 experiment." in (out / "experiments.html").read_text()
    assert "could not be made" in (out / "scaling.html").read_text()


def test_what_was_not_done_is_said_not_failed(tmp_path: Path) -> None:
    books = {book.name: book for book in NOTEBOOKS}
    benched = find(str(write(tmp_path / "benched", "Fast", [next(bench())])))
    assert books["comparison"].pages(Scope(benched, "")) == []
    assert "attnbench compare" in books["comparison"].missing
    assert "attnbench compare --all" in books["comparison"].missing
    runs = [run(model, "trec", 0, {"accuracy": 0.5}) for model in (MINE, BASE)]
    compared = find(str(write(tmp_path / "compared", "Fast", [design(), *runs])))
    assert books["scaling"].pages(Scope(compared, "")) == []
    assert "attnbench bench" in books["scaling"].missing


def test_pages_and_files_of_a_source(source: Source, device: DeviceRecords) -> None:
    found = [p for book in NOTEBOOKS for p in book.pages(Scope(source, "j"))]
    names = [p.name for p in found]
    assert len(names) == len(set(names))
    assert [p.name for p in found if p.notebook.front] == ["size"]
    file_of = contents.page_of(source)
    assert file_of("scaling", device.key).startswith("scaling-made-up-cpu-")
    assert file_of("audit", device.key) == "audit.html"
    assert file_of("nonsense", "") == ""


@pytest.mark.nightly
def test_a_misspelt_parameter_is_an_error_under_papermill_itself(tmp_path: Path) -> None:
    book, words = str(ROOT / "notebooks" / "scaling.ipynb"), ("-k", "python3", "-p", "jurnal", "x")
    done = subprocess.run(
        [sys.executable, "-m", "papermill", book, "out.ipynb", *words],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode != 0
    assert done.stderr.rstrip().splitlines()[-1] == (
        "NotebookError: unknown parameter 'jurnal'; this notebook has journal, device, out, page"
    )
    assert "refuse_unknown" not in done.stderr  # no traceback of ours


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
    spec = {"display_name": "Python 3", "language": "python", "name": "python3"}
    assert book.metadata["kernelspec"] == spec
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
    (imported,) = (n for n in ast.walk(ast.parse(code[1].source)) if isinstance(n, ast.ImportFrom))
    page = getattr(import_module(str(imported.module)), imported.names[0].name)
    assert page.begin.__wrapped__, "what opens a notebook refuses parameters that it has not"


def test_every_page_has_its_notebook() -> None:
    assert {book.name for book in NOTEBOOKS} == {path.stem for path in BOOKS}
