"""The report in a real browser: no complaint, no missing image, nothing from the network."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from reports.core.html import document
from reports.core.page import Output, table
from reports.core.source import find
from reports.site import build
from suites.support import browser
from suites.support.report_records import write_everything

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browser.executable() is None, reason="no chromium on this machine"),
]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("browser")
    write_everything(folder / "journal")
    report = build(find(str(folder / "journal")), str(folder / "journal"), folder / "out")
    assert report.failures == []
    return folder / "out"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_nothing_is_wrong_with_any_page(site: Path, dark: bool) -> None:
    pages = sorted(site.glob("*.html"))
    for page, seen in zip(pages, browser.look(pages, dark=dark), strict=True):
        assert seen.complaints == [], page.name
        assert seen.broken == [], page.name
        asked = [url for url in seen.requests if not url.startswith(("file://", "data:"))]
        assert asked == [], page.name
        assert len(seen.requests) >= 1
        assert not seen.wider, f"{page.name} must be scrolled sideways"


def test_a_phone_shows_it_without_scrolling_sideways(site: Path) -> None:
    pages = sorted(site.glob("*.html"))
    for page, seen in zip(pages, browser.look(pages, width=390), strict=True):
        assert not seen.wider, page.name


def test_tables_sort_by_what_they_hold_and_filter(tmp_path: Path) -> None:
    """By the buttons that the keyboard reaches; units count, and what is empty stands last."""
    rows = [[f"m{i}", text] for i, text in enumerate(["2.5 ms", "1 s", "", "900 µs"] + ["3 s"] * 6)]
    shown = table(["name", "time"], rows)
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
    page = tmp_path / "table.html"
    page.write_text(document("t", f"{shown.html}{act}"))
    (seen,) = browser.look([page])
    up, down, filtered = seen.complaints
    assert "m3 m0 m1 m4 m5 m6 m7 m8 m9 m2" in up
    assert "descending" in down
    assert "m4 m5 m6 m7 m8 m9 m1 m0 m3 m2" in down
    assert "'m3'" in filtered


def test_the_browser_itself_notices(tmp_path: Path) -> None:
    """The test above would notice what it looks for."""
    page = tmp_path / "bad.html"
    page.write_text(
        "<!doctype html><title>x</title><img src='gone.png'><div style='width:3000px'>x</div>"
        "<script>console.error('oh'); fetch('http://127.0.0.1:9/x').catch(() => 0)</script>"
    )
    (seen,) = browser.look([page])
    assert any("oh" in text for text in seen.complaints)
    assert [Path(url).name for url in seen.broken] == ["gone.png"]
    assert any(url.startswith("http://127.0.0.1:9") for url in seen.requests)
    assert seen.wider


def test_a_hollow_black_marker_is_light_on_a_dark_page(tmp_path: Path) -> None:
    """Its outline is drawn through a ``use``, which rules with a parent do not reach."""
    figure = Figure(figsize=(2, 2))
    axes = figure.subplots()
    axes.set_axis_off()
    axes.plot([1], [1], "D", color="#000000", markerfacecolor="white", markersize=30)
    page, shot = tmp_path / "marker.html", tmp_path / "marker.png"
    shown = Output(None, "x").figure("marker", figure, "caption")
    alone = "<style>figcaption, nav { display: none }</style>"
    page.write_text(document("x", f"{alone}{shown.html}"))
    seen = {}
    for dark in (False, True):
        browser.look([page], dark=dark, shots=[shot])
        seen[dark] = imread(shot)[..., :3].mean(-1)
    assert seen[False].min() < 0.1
    ground = seen[True][-1, -1]
    assert ground < 0.2
    assert seen[True].max() > 0.8
    # Nothing is darker than the paper: that would be ink that was left as it is.
    assert seen[True].min() > ground - 0.02
