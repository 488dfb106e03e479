"""Colours, markers and labels of figures; figures and tables as files."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.patches import Rectangle

from harness.registry import builtins
from harness.stats import ties
from reports.core.axes import below, length_axis, spread
from reports.core.costs import Costs
from reports.core.curves import Point, draw_lines
from reports.core.figure_data import INTERVAL, data_of
from reports.core.forest import Line, critical_differences, forest
from reports.core.html import document
from reports.core.page import Output, footed
from reports.core.style import CONTRAST, LOOKS, PALETTE, look, luminance, text_colour
from reports.core.tables import Best, latex, markdown, under
from reports.core.words import file_name
from reports.pages.bench import cost
from reports.pages.scaling import figures as scaling_figures
from suites.support import browser
from suites.support.report_records import BASE

MECHANISMS = sorted(builtins())
TABLE1 = ("mtsa", "multi_head", "disa", "biblosa", "bi_lstm", "bi_gru", "multi_cnn", "hrchy_cnn")


def test_no_two_mechanisms_look_alike_and_what_the_papers_compare_differs_in_grey() -> None:
    looks = [look(name) for name in MECHANISMS]
    assert len(set(looks)) == len(looks)
    assert set(LOOKS) >= set(MECHANISMS)  # chosen, not left to chance
    assert len(set(LOOKS.values())) == len(LOOKS)
    foreign = {name: look(name) for name in ("theirs", "another", "x.y")}
    assert foreign == {name: look(name) for name in foreign}
    assert not set(foreign.values()) & set(LOOKS.values())
    markers = [look(name).marker for name in TABLE1]
    assert len(set(markers)) == len(markers)
    lights = sorted(luminance(c) for c in PALETTE)
    assert lights[-1] - lights[0] > 0.4


TURN = np.array([[-0.574, 1.43, 0.144], [0.426, 0.43, 0.144], [0.426, 1.43, -0.856]])
"""Hues by half a circle, as `hue-rotate` of CSS has it (Filter Effects, section 7.4)."""


def test_names_in_a_mechanisms_colour_can_be_read_on_white_and_on_dark() -> None:
    for name in MECHANISMS:
        ink = text_colour(look(name).colour)
        assert 1.05 / (luminance(ink) + 0.05) >= CONTRAST
        turned = to_hex(np.clip(TURN @ (1 - np.array(to_rgb(ink))), 0, 1))
        assert (luminance(turned) + 0.05) / (luminance("#16181c") + 0.05) >= CONTRAST
    assert text_colour("#882255") == "#882255", "dark enough as it is"
    assert text_colour("#E69F00") != "#e69f00"


ROWS = under(
    ["model", "a_b (%)"],
    [["x|y", Best("90.1 (0.4)")], ["50 % & more", "−0.5"], ["<b>", "{}~^\\"]],
)


def test_markdown_is_a_table_that_says_the_same() -> None:
    lines = markdown(ROWS).splitlines()
    assert lines[0] == "| model | a_b (%) |"
    assert lines[1] == "| --- | ---: |"
    assert lines[2] == r"| x\|y | **90.1 (0.4)** |"
    assert lines[4].startswith("| &lt;b> |")


def test_latex_is_escaped() -> None:
    text = latex(ROWS)
    assert r"\begin{tabular}{lr}" in text
    assert r"model & a\_b (\%) \\" in text
    assert r"x|y & \textbf{90.1 (0.4)} \\" in text
    assert r"50 \% \& more & $-$0.5 \\" in text
    assert r"\{\}\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert text.count(r"\\") == 4


def test_a_figure_is_read_back_as_it_was_drawn() -> None:
    figure = Figure()
    axes, other = figure.subplots(1, 2)
    axes.plot([1, 2], [3.0, 4.0], label="line")
    axes.plot([0, 9], [0, 0])  # a guide
    axes.axvline(1)
    axes.plot([1.0, 2.0], [5, 5], label="bar" + INTERVAL)
    axes.errorbar([1.0, 2.0], [3.0, 4.0], yerr=[[0.5, 1.0], [0.25, 2.0]], label="errors")
    axes.errorbar([5.0], [1.0], xerr=[[1.0], [2.0]], yerr=[[0.5], [0.5]], label="both")
    axes.set_xlabel("N (tokens)")
    other.imshow(np.array([[1.0, np.nan], [3.0, 4.0]]), label="heat")
    other.bar([0, 1], [7, 8], label="bars")
    data = data_of(figure)
    assert set(data["series"]) == {"line", "bar", "errors", "both", "heat", "bars"}
    assert data.query("series == 'line'")[["x", "y"]].to_numpy().tolist() == [[1, 3], [2, 4]]
    (bar,) = data.query("series == 'bar'").to_dict("records")
    assert (bar["kind"], bar["low"], bar["high"]) == ("interval", 1.0, 2.0)
    errors = data.query("series == 'errors'")
    assert errors[["low", "high"]].to_numpy().tolist() == [[2.5, 3.25], [3.0, 6.0]]
    (both,) = data.query("series == 'both'").to_dict("records")
    ends = (both["low"], both["high"], both["x_low"], both["x_high"])
    assert ends == (0.5, 1.5, 4.0, 7.0)
    assert data.query("series == 'heat'")["value"].tolist()[2:] == [3.0, 4.0]
    assert data.query("series == 'bars'")["y"].tolist() == [7, 8]
    assert set(data["x_axis"]) == {"N (tokens)", ""}


def test_a_point_without_an_interval_is_read_back_too() -> None:
    """One block has none: its bar has no ends."""
    figure = Figure()
    axes = figure.subplots()
    points = [Point(1.0, 3.0), Point(2.0, 4.5, 4.0, 6.0)]
    draw_lines(axes, {"a": points}, {"a": (look("mtsa"), "-")})
    one, two = data_of(figure).to_dict("records")
    assert (one["x"], one["y"]) == (1.0, 3.0)
    assert np.isnan(one["low"])
    assert (two["y"], two["low"], two["high"]) == (4.5, 4.0, 6.0)


def test_a_place_writes_every_form(tmp_path: Path) -> None:
    place = Output.of(tmp_path, "page", "device; commit abc")
    figure = Figure()
    figure.subplots().plot([1, 2], [3, 4], label="data")
    shown = place.figure("f", figure, "A caption that is a sentence.")
    for kind in ("svg", "png", "csv"):
        assert (tmp_path / "figures" / f"page-f.{kind}").is_file()
        assert f'href="figures/page-f.{kind}"' in shown.html
    assert "device; commit abc" in (tmp_path / "figures" / "page-f.svg").read_text()
    assert pd.read_csv(tmp_path / "figures" / "page-f.csv")["y"].tolist() == [3, 4]
    numbers = [{"accuracy_percent": 90.1}]
    table = place.table("t", numbers, ROWS)
    assert "<strong>90.1 (0.4)</strong>" in table.html
    assert "&lt;b&gt;" in table.html
    for kind in ("csv", "md", "tex"):
        assert (tmp_path / "tables" / f"page-t.{kind}").is_file()
    assert next(csv.reader((tmp_path / "tables" / "page-t.csv").open())) == ["accuracy_percent"]
    assert Output.of("", "page").table("t", numbers, ROWS).html


def test_no_text_of_a_csv_file_is_a_formula(tmp_path: Path) -> None:
    written = {
        "=1+1": "'=1+1",
        "+1": "'+1",
        "-1+cmd|' /C calc'!A0": "'-1+cmd|' /C calc'!A0",
        "@SUM(A1)": "'@SUM(A1)",
        "\t=1": "'\t=1",
        "\r=1": "'\n=1",
        "a\r=1": "a\n=1",
        "-1.5": "-1.5",
        "mtsa.fused": "mtsa.fused",
    }
    columns = {cell: [cell, None] for cell in written} | {"n": [-2.5, None]}
    place = Output.of(tmp_path, "page")
    place.table("t", pd.DataFrame(columns).to_dict("records"), ROWS)
    figure = Figure()
    axes = figure.subplots()
    for cell in written:
        axes.plot([1], [3], label=cell)
    place.figure("f", figure, "A caption that is a sentence.")
    first, row, _ = csv.reader((tmp_path / "tables" / "page-t.csv").open(newline=""))
    assert first == [*written.values(), "n"]
    assert row == [*written.values(), "-2.5"]
    _, *drawn = csv.reader((tmp_path / "figures" / "page-f.csv").open(newline=""))
    assert [row[1] for row in drawn] == [*written.values()]


@pytest.mark.parametrize(
    "text", ["../../etc", "a/b", "", "<b>", "trec", "x" * 300, "mirrored[k=5]"]
)
def test_names_from_records_stay_in_their_folder(text: str) -> None:
    name = file_name(text)
    assert name
    assert not set(name) & set("/\\.<>[]=")
    assert len(name) < 60
    assert (name == "trec") == (text == "trec")
    texts = ["a/b", "a-b", "a b", "A-B", "a_b"]
    assert len({file_name(t) for t in texts}) == len(texts)


def test_what_is_said_below_a_figure_makes_it_no_wider() -> None:
    def width(said: str) -> float:
        figure = Figure(figsize=(5.7, 4.2))
        figure.subplots().set_xlabel("tokens")
        footed(figure, said)
        return float(figure.get_tightbbox().width)

    device = "AMD EPYC family 26 model 2 (cpu), torch 2.13.0+cpu, 2 CPU threads, OMP_NUM_THREADS=1"
    assert width(f"{device}; commits {', '.join(10 * ['3715438b58'])}") <= 5.7 + 0.05


def test_labels_are_moved_apart_as_little_as_possible() -> None:
    assert spread([0.0, 100.0], 10) == [0.0, 100.0]
    assert spread([50.0, 50.0], 10) == [45.0, 55.0]
    moved = spread([10.0, 11.0, 12.0, 60.0], 10)
    assert np.diff(moved).min() >= 10 - 1e-9
    assert moved[1] == pytest.approx(11.0)
    assert moved[3] == 60.0
    assert below([1.0, 5.0, 9.0], 6.0, 2.0) == [1.0, 4.0, 6.0], "and stay under the title"
    assert below([1.0, 3.0], 6.0, 2.0) == [1.0, 3.0]
    assert below([], 6.0, 2.0) == []


def test_names_at_line_ends_do_not_overlap(measured: Costs) -> None:
    figure = scaling_figures.curve("time", measured.sweeps[0], "training", BASE, "here")
    figure.canvas.draw()
    boxes = [t.get_window_extent() for t in figure.axes[0].texts if t.get_fontsize() == 8]
    inner = [a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert len(inner) > 1
    assert not any(inner)


DOUBLED = [2**k for k in range(4, 15)]


@pytest.mark.parametrize("width", [2.5, 4.0, 12.0])
@pytest.mark.parametrize("lengths", [DOUBLED, [22, 109, 201, 1024], [64], [200, 210, 220]])
def test_labels_of_lengths_never_touch_and_the_longest_is_named(
    lengths: list[int], width: float
) -> None:
    figure, axes = plt.subplots(figsize=(width, 3))
    axes.plot(lengths, lengths)
    length_axis(axes, [*reversed(lengths), *lengths])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ticks = axes.get_xticklabels()
    assert len(ticks) == len(lengths)
    named = [t for t in ticks if t.get_text()]
    assert named[-1].get_text() == f"{max(lengths):,}"
    boxes = [t.get_window_extent(canvas.get_renderer()) for t in named]
    for one, following in itertools.pairwise(boxes):
        assert one.x1 < following.x0
    if width == 12.0 and lengths != [200, 210, 220]:
        assert [t.get_text() for t in ticks] == [f"{n:,}" for n in lengths]
    plt.close(figure)


def test_a_forest_draws_every_replicate_zero_interval_and_margin() -> None:
    line = Line("m", "mtsa", 1.0, 0.5, 1.5, True, (0.75, 1.0, 1.25))
    figure = forest([line], "t", "u", "x", margin=0.5)
    drawn = data_of(figure)
    singles = drawn[drawn["series"] == "m: every replicate"]["x"]
    assert sorted(singles) == [0.75, 1.0, 1.25]
    (bar,) = drawn[drawn["kind"] == "interval"].to_dict("records")
    assert (bar["low"], bar["high"]) == (0.5, 1.5)
    (axes,) = figure.axes
    assert any(np.asarray(line.get_xdata()).tolist() == [0, 0] for line in axes.get_lines())
    spans = [patch.get_x() for patch in axes.patches if isinstance(patch, Rectangle)]
    assert -0.5 in spans  # the margin


@pytest.mark.parametrize(("count", "bars"), [(8, [["b.x", "c.x"]]), (5, [["a.x", "b.x", "c.x"]])])
def test_models_stand_at_their_ranks_and_bars_over_ties(count: int, bars: list[list[str]]) -> None:
    wave = [(-1) ** n * 0.1 + n for n in range(count)]
    found = ties(
        {"b.x": wave, "a.x": [v + 5 for v in wave], "c.x": [float(n) for n in range(count)]}
    )
    figure = critical_differences(found, "trec", "seeds")
    drawn = data_of(figure)
    points = drawn[~drawn["series"].str.startswith("not told apart")].set_index("series")["x"]
    assert points.to_dict() == pytest.approx(dict(found.omnibus.ranks))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == [f"{model} ({rank:.2f})" for model, rank in points.items()], (
        "each beside its own point"
    )
    joined = drawn[drawn["series"].str.startswith("not told apart")].groupby("series")["x"]
    ranks = found.omnibus.ranks
    assert [list(bar) for _, bar in joined] == [sorted(ranks[m] for m in bar) for bar in bars]
    said = " ".join(text.get_text() for text in figure.texts)
    assert ("too few seeds to tell any apart" in said) is (count == 5)


def test_the_figure_of_bench_has_a_row_for_each_pass_that_was_measured(measured: Costs) -> None:
    forward = [r for r in measured.rows if r.columns["phase"] == "forward"]
    assert len(cost(measured.rows, BASE, "here").axes) == 6
    (first, *_) = axes = cost(forward, BASE, "here").axes
    assert len(axes) == 3
    assert first.get_title(loc="left").startswith("forward: time")


@pytest.mark.slow
@pytest.mark.skipif(browser.executable() is None, reason="no chromium here")
def test_a_figure_is_light_on_a_dark_page_in_it_and_alone(tmp_path: Path) -> None:
    figure = Figure(figsize=(2, 2))
    axes = figure.subplots()
    axes.set_axis_off()
    axes.scatter([2], [2], 900, color="#000000")
    page, shots = tmp_path / "marker.html", [tmp_path / "in.png", tmp_path / "alone.png"]
    shown = Output.of(tmp_path, "x").figure("marker", figure, "caption")
    page.write_text(
        document("x", f"<style>figcaption, nav {{ display: none }}</style>{shown.html}")
    )
    browser.look([page, tmp_path / "figures" / "x-marker.svg"], dark=True, shots=shots)
    inside, alone = (imread(shot)[..., :3].mean(-1) for shot in shots)
    ground = inside[-1, -1]
    assert ground < 0.2
    # Its own ground is the page's: no black box around it.
    assert inside.min() > ground - 0.02
    assert min(inside.max(), alone.max()) > 0.9
    assert np.median(alone[:100, :100]) < 0.1
