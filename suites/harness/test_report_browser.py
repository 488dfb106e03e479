"""The report in a real browser: no complaint, no missing image, nothing from the network."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.build import build
from reports.source import find
from suites.harness import browser
from suites.harness.report_records import write_everything

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
