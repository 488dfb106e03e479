"""Published tables: every transcribed line and cell stands in the paper."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from reports.claims.printed import FOLDER, PAPERS, at, load, load_all, number
from reports.claims.record import load_claims
from suites.support.command_line import ROOT

TEXT_FOLDER = Path(os.environ.get("ATTNBENCH_PAPERS") or ROOT.parent / "shared" / "papers")
CITATION = 60
"""Characters that may stand between the name of a row and its cells: a citation."""
_DROPPED = str.maketrans("", "", "-–—−∗*·")
TEXTS = [(paper, name) for paper in PAPERS for name in load(paper)["paper"]["texts"]]


def squeezed(text: str) -> str:
    """Without white space and dashes: texts of a PDF break lines, split words and drop spaces."""
    return "".join(unicodedata.normalize("NFKC", text).split()).translate(_DROPPED)


def tables(paper: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every table of a transcribed paper, by name."""
    for name, table in paper.items():
        if name != "paper":
            yield name, table


def sentences(table: Any) -> Iterator[str]:
    """Everything in a transcription that is called a line of the paper."""
    if isinstance(table, Mapping):
        for key, value in table.items():
            if key == "line" or key.endswith("_line"):
                yield value
            elif key == "lines":
                yield from value
            else:
                yield from sentences(value)
    elif isinstance(table, list):
        for one in table:
            yield from sentences(one)


def stands(row: Mapping[str, Any], text: str) -> bool:
    """Whether a row stands in a squeezed text: its name, perhaps a citation, and its cells."""
    name = re.escape(squeezed(row["name"] + row.get("mark", "")))
    cells = re.escape(squeezed("".join(row["cells"])))
    return re.search(f"{name}.{{0,{CITATION}}}?{cells}", text) is not None


def text_or_skip(name: str) -> str:
    if not (TEXT_FOLDER / name).is_file():
        pytest.skip(f"the papers are not part of the repository; none at {TEXT_FOLDER}")
    return squeezed((TEXT_FOLDER / name).read_text(encoding="utf-8"))


def rows(paper: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, row) for name, table in tables(paper) for row in table.get("rows", ())]


@pytest.mark.parametrize(("paper", "name"), TEXTS)
def test_every_line_and_row_stands_in_the_paper(paper: str, name: str) -> None:
    text = text_or_skip(name)
    lines = [line for _, table in tables(load(paper)) for line in sentences(table)]
    assert len(lines) >= 2
    for line in lines:
        assert squeezed(line) in text, line
    transcribed = [row for _, row in rows(load(paper)) if "line" not in row]
    assert len(transcribed) > 10
    for row in transcribed:
        assert stands(row, text), row


@pytest.mark.parametrize("paper", PAPERS)
def test_every_claim_quotes_the_paper(paper: str) -> None:
    text = "".join(text_or_skip(name) for name in load(paper)["paper"]["texts"])
    mine = [claim for claim in load_claims() if claim.paper == paper]
    assert len(mine) > 10
    for claim in mine:
        assert squeezed(claim.line) in text, (claim.id, claim.line)


@pytest.mark.parametrize("paper", PAPERS)
def test_rows_with_a_line_of_their_own_have_its_numbers(paper: str) -> None:
    for name, row in rows(load(paper)):
        if "line" in row:
            for cell in row["cells"]:
                # "8k to 28k" is printed as "8k~28k", which our text spells out.
                for part in cell.replace("-", "").split(" to "):
                    assert part in row["line"], (name, row)


def test_every_table_is_whole() -> None:
    known = load_all()
    assert set(known) == {path.stem for path in FOLDER.glob("*.toml")}
    for paper, content in known.items():
        for name, table in tables(content):
            assert table["place"], (paper, name)
            names = [row["name"] for row in table.get("rows", ())]
            assert len(names) == len(set(names)), (paper, name)
            for row in table.get("rows", ()):
                assert len(row["cells"]) == len(table["columns"]), (paper, name, row)
            assert len(table.get("units", table.get("columns", ()))) == len(
                table.get("columns", ())
            ), (paper, name)


def test_printed_numbers_carry_their_rounding() -> None:
    found = number("2.9m")
    assert (found.value, found.text) == (2.9, "2.9m")
    assert found.half == pytest.approx(0.05)
    assert (number("180s").value, number("180s").half) == (180, 0.5)
    assert number(".8720 (.0014)").value == 0.872
    assert number(".8720 (.0014)").half == pytest.approx(0.00005)
    assert number("84.8(1.3)").text == "84.8"
    assert (number("92.6%").low, number("92.6%").high) == pytest.approx((92.55, 92.65))
    assert number("10m").half == 0.5
    assert number("-0.5").value == -0.5
    for text in ("", "/", "-", "N/16"):
        with pytest.raises(ValueError, match="expected a printed number"):
            number(text)


def test_a_cell_that_is_not_there_is_an_error() -> None:
    table = load("mtsa")["table1"]
    assert at(table, "DiSA", "memory") == "6682MB"
    for row, column in (("DiSAN", "memory"), ("DiSA", "bytes")):
        with pytest.raises(ValueError, match="has no cell"):
            at(table, row, column)
