"""The report's pages on a made-up journal, compared by what they say and what charts show."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.errors import UsageError
from harness.experiments.warnings import NOT_COUNTED
from harness.profile import load_profile, load_profiles
from harness.records import journal
from harness.records.ratios import Row
from harness.stats import ratio_interval
from reports.core import frontiers, sizes
from reports.core.against import against, beyond_none
from reports.core.costs import Costs
from reports.core.figure_data import data_of
from reports.core.page import Output, Shown, together
from reports.core.printed_values import printed_costs
from reports.core.source import DeviceRecords, Source, find
from reports.pages.attention.page import Attended
from reports.pages.corpora import tables
from reports.pages.corpora.page import Corpora
from reports.pages.scaling import figures as scaling_figures
from reports.pages.scaling import stress as numerics
from reports.pages.scaling.page import Scaling
from reports.pages.size.answers import answers, frontier_sentence
from reports.pages.size.page import Sized
from reports.pages.tradeoff import Tradeoff
from reports.pages.trust import Trusted
from suites.support.made_up_records import reading
from suites.support.report_records import (
    BASE,
    DISA,
    GAINS,
    LENGTHS,
    LSTM,
    MINE,
    RATIOS,
    VARIANT,
    run,
    write,
)


def open_page(kind: Any, folder: Path, out: Path, device: DeviceRecords, **more: str) -> Any:
    return kind.begin(journal=str(folder), device=device.key, out=str(out), page="p", **more)


def test_the_first_page_answers_for_each_device(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    page = Sized.begin(journal=str(folder), like="", out=str(tmp_path), page="size")
    shown = together(page.headline(), page.pictures(), page.details())
    assert shown.plain.count("Longest sequence for a training step") == 1
    assert shown.plain.count("No frontier was searched") == 1
    assert "Made up (cpu)" in shown.plain
    assert "Not made up" in shown.plain
    tables = [pd.read_csv(p) for p in sorted(tmp_path.glob("tables/size-answers-*.csv"))]
    assert len(tables) == 2
    for table in tables:
        mine = table.set_index("implementation").loc[f"{MINE} 8h"]
        assert mine["training_time_ratio"] == pytest.approx(1.3, rel=0.01)
        assert mine["training_time_ratio_low"] < 1.3 < mine["training_time_ratio_high"]
        assert mine["memory_ratio"] == pytest.approx(1.2)
        assert mine["training_verdict"] == "slower"
    assert "Accuracies are of the mechanism, trained 300 wide with 6 heads." in shown.plain
    told = [t for table in tables for t in table["accuracy"].dropna()]
    assert len([t for t in told if t.startswith("trec +1.9") and t.endswith("points, better")]) == 1
    assert "N = 2,048 (N = 2,176: oom)" in shown.plain
    (gains,) = tmp_path.glob(f"tables/size-accuracies-{device.key[:6]}.csv")
    gained = pd.read_csv(gains).iloc[0]
    assert (gained["task"], gained["model"], gained["baseline"]) == ("trec", MINE, BASE)
    assert gained["low"] < gained["difference"] < gained["high"]
    (text,) = tmp_path.glob(f"tables/size-accuracies-{device.key[:6]}.md")
    head, _, row = text.read_text().splitlines()
    assert head == "| less multi_head | trec (accuracy, points; 6 seeds) |"
    assert row.startswith("| mtsa | +1.9")
    assert row.endswith("], better |")
    crossovers = [str(t.set_index("implementation").at[f"{MINE} 8h", "crossover"]) for t in tables]
    # That of the sweep: 1.3 (N / 64)^-0.4 = 1 at N = 123.
    assert crossovers[0].startswith("from N = 12")
    assert crossovers[0].endswith("(batch 4)")


def at_size(measured: Costs) -> tuple[sizes.Size, list[Row]]:
    """The profile's size, and what was measured at it."""
    asked = sizes.of_profile(measured.profile)
    nearest = sizes.nearest(measured.rows, asked)
    return asked, [r for r in measured.rows if sizes.problem_of(r) == nearest]


def test_ablations_are_no_answer_unless_asked_for(measured: Costs) -> None:
    asked, here = at_size(measured)
    mine = next(r for r in here if r.columns["name"] == MINE)
    name = f"{MINE}[scale_t=identity]"
    here.append(replace(mine, columns={**mine.columns, "name": name, "case": name}))
    labels = [a.label for a in answers(here, measured, asked)]
    assert f"{MINE} 8h" in labels
    assert not any("[" in label for label in labels)
    labels = [a.label for a in answers(here, measured, replace(asked, mechanism=name))]
    assert f"{name} 8h" in labels


def test_padded_batches_stand_for_others_only_where_they_are_asked_for(
    device: DeviceRecords, measured: Costs
) -> None:
    asked = replace(sizes.of_profile(measured.profile), setting="1-thread")
    usual = [r for r in measured.rows if r.columns["settings"] == "1-thread"]

    def under(setting: str) -> list[Row]:
        return [replace(r, columns={**r.columns, "settings": setting}) for r in usual]

    both = [*under("1-thread+padded"), *under("tf32")]
    found = sizes.nearest(both, asked)
    assert found[4] == "tf32"
    found = sizes.nearest(both, replace(asked, setting="padded"))
    assert found[4] == "1-thread+padded"
    assert printed_costs(usual)
    assert printed_costs(under("1-thread+padded")) == []
    reach = [r for r in device.records if r["kind"] == "frontier"]
    padded = [{**r, "case": f"{r['case']}+1-thread+padded", "key": f"{r['key']}p"} for r in reach]
    assert "padded" not in frontier_sentence([*padded, *reach], asked)
    assert ", 1-thread+padded)" in frontier_sentence(padded, asked)


def test_memory_has_an_interval_or_says_that_it_has_none(measured: Costs) -> None:
    asked, here = at_size(measured)
    mine = answers(here, measured, asked)[0]
    assert replace(mine, memory=ratio_interval([1.2, 1.21, 1.22])).memory_text == (
        "1.21x [1.19, 1.24]"
    )
    assert replace(mine, memory=ratio_interval([1.2])).memory_text == "1.20x, one reading"
    assert replace(mine, memory=None).memory_text == ""
    small = {p: replace(r, below_floor=True, memory_floor=2**17) for p, r in mine.rows.items()}
    told = replace(mine, memory=measured.memory_ratio(small["training"]), rows=small).memory_text
    assert told == "below what can be told (floor 128 KiB)"


def test_a_device_that_tells_nothing_of_the_two_has_no_column(
    source: Source, device: DeviceRecords
) -> None:
    others = [r for r in device.records if r["kind"] == "run" and r["model"] == LSTM]
    silent = replace(device, fingerprint={**device.fingerprint, "model": "Silent"})
    silent = replace(silent, key="silent", records=tuple(others))
    for devices, columns in (((device, silent), 1), ((silent,), 1), ((silent, device), 1)):
        given = replace(source, devices=devices)
        shown = Sized(given, Output(None, "size")).headline()
        assert shown.html.count('<th scope="col">') == columns, shown.html
        told = "Nothing of mtsa.fused against multi_head.sdpa was measured or compared on Silent"
        assert (told in shown.plain) == (len(devices) > 1)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_every_profile_reads_memory_in_several_processes(kind: str) -> None:
    for name in load_profiles():
        assert load_profile(name, kind).memory_blocks >= 3, name


def test_other_heads_or_another_width_are_told(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    size_here = f'batch = 64\nlength = 64\nmechanism = "{MINE}"\n'
    for more, says in (
        ("heads = 16\n", "was measured here with 8 heads, not with 16"),
        ("width = [300, 1200]\n", "was measured here to 600 wide, not to 1200"),
    ):
        file.write_text(size_here + more)
        text = Sized.begin(journal=str(folder), like=str(file), out="", page="size").details().plain
        assert says in text
        assert "attnbench bench --only" in text
    file.write_text(size_here)
    page = Sized.begin(journal=str(folder), like=str(file), out="", page="size")
    assert "was measured here" not in page.details().plain
    assert f"measured: {MINE} 8h, batch 64, N = 64" in page.headline().plain


def test_a_size_that_was_not_measured_names_the_nearest_and_the_command(
    folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('batch = 4\nlength = 300\nwidth = [300, 600]\ntask = "cr"\n')
    page = Sized.begin(journal=str(folder), like=str(file), out="", page="size")
    text = together(page.headline(), page.details()).plain
    assert "was not measured here" in text
    assert "batch 4, N = 256, input 300 wide" in text
    assert "attnbench bench --only mtsa.fused --batch 4 --lengths 300 --width 300x600" in text
    assert "trec" not in page.headline().plain.partition("accuracy, 95 %")[2].partition("--task")[0]
    file.write_text("batch = 4\nlength = 256\n")
    page = Sized.begin(journal=str(folder), like=str(file), out="", page="size")
    assert "was not measured here" not in page.details().plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("size = 3", "unknown name 'size'; use batch, length"),
        ('batch = "many"', "batch = 'many'; expected a whole number"),
        ("batch = 0", "batch = 0; expected a whole number"),
        ("batch = true", "batch = True; expected a whole number"),
        ("width = [3]", "width = [3]; expected [in, out]"),
        ('dtype = "f8"', "dtype = 'f8'; expected f64"),
        ('mechanism = "mtsa"', "expected mechanism.implementation"),
        ("batch = ", "can't read"),
    ],
)
def test_a_bad_file_of_sizes_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(UsageError) as error:
        sizes.read(str(file))
    assert said in str(error.value)
    assert "\n" not in str(error.value).rstrip()


def test_ratio_charts_show_the_ratios(measured: Costs) -> None:
    sweep = measured.sweeps[0]
    assert sweep.lengths == list(LENGTHS)
    drawn = data_of(scaling_figures.curve("ratio", sweep, "training", BASE, "here"))
    mine = drawn[drawn["series"] == f"{MINE} 8h"]
    assert mine["x"].tolist() == list(LENGTHS)
    expected = [RATIOS[MINE] * (n / 64) ** -0.4 for n in LENGTHS]
    assert mine["y"].tolist() == pytest.approx(expected, rel=0.01)
    assert (mine["low"] < mine["y"]).all()
    assert (mine["y"] < mine["high"]).all()
    assert "noise floor" in set(drawn["series"])
    figure = scaling_figures.curve("time", sweep, "training", BASE, "here")
    drawn = data_of(figure)
    base = drawn[drawn["series"] == f"{BASE} 8h"]["y"].tolist()
    # Milliseconds of four sequences; the median block takes 1.4 times as long as the first.
    assert base == pytest.approx([168 * (n / 64) ** 2 for n in LENGTHS], rel=0.02)
    peaks = data_of(scaling_figures.curve("memory", sweep, "training", BASE, "here"))
    mib = peaks[peaks["series"] == f"{BASE} 8h"]["y"].tolist()
    assert mib == pytest.approx([12 * n / 64 for n in LENGTHS])
    disa = drawn[drawn["series"] == DISA]
    assert disa["x"].tolist() == [16, 64, 256]
    crossed = drawn[drawn["series"] == f"{DISA}: oom"]
    assert crossed["x"].tolist() == [1024]
    axes = figure.axes[0]
    assert axes.get_xscale() == axes.get_yscale() == "log"
    assert axes.get_ylim()[0] < drawn["y"].min()
    assert crossed["y"].iloc[0] < axes.get_ylim()[1]
    tied = [np.asarray(line.get_xdata()).tolist() for line in axes.get_lines()]
    assert tied.count([256, 1024]) == 1  # the line's end and its cross


def test_scaling_has_frontier_numerics_and_printed_costs(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    page = open_page(Scaling, folder, tmp_path, device)
    assert f"{DISA} N = 256 (N = 384: oom)" in page.frontier().plain
    table = pd.read_csv(tmp_path / "tables" / "p-frontier.csv").set_index("name")
    assert table.loc[BASE, "longest"] == 4096
    said = page.numerics().plain
    assert f"{BASE} in f16 at 1e4" in said
    assert f"{MINE} in f16" not in said
    printed = page.beside()
    rows = pd.read_csv(tmp_path / "tables" / "p-printed.csv")
    by_what = rows[rows["what"] == "memory, training"].set_index("implementation")
    memory = by_what.loc[f"{MINE} 8h, 1-thread"]
    assert memory["printed_ratio"] == pytest.approx(558 / 466)
    assert memory["measured_ratio"] == pytest.approx(1.2)
    assert "GTX 1080 Ti" in printed.plain


def test_the_page_of_a_gpu_has_what_was_predicted_of_it(tmp_path: Path) -> None:
    case = "core_mtsa.fused-B4-N4096-D2048x512-H8-bf16-forward-cuda"
    with journal.Writer(
        tmp_path / "sent", {"fingerprint": {"model": "NVIDIA H100 80GB HBM3", "device": "cuda"}}
    ) as writer:
        writer.append(reading(case, 0, 1.0) | {"fingerprint": "f"})
    sent = str(tmp_path / "sent")
    (gpu,) = find(sent).devices
    page = Scaling.begin(journal=sent, device=gpu.key, out=str(tmp_path), page="p")
    shown = page.beside().plain
    assert "Predicted for GPUs, and measured on H100" in shown
    assert "H100, forward, measured" in shown
    assert "A100" not in shown
    rows = pd.read_csv(tmp_path / "tables" / "p-predicted.csv")
    assert rows["measured_seconds"].dropna().tolist() == [1.0]


def test_the_frontier_chart_shows_bracket_and_reason(device: DeviceRecords) -> None:
    (group,) = frontiers.groups(frontiers.reaches(device.records))
    drawn = data_of(scaling_figures.frontier(group))
    assert drawn[drawn["series"] == f"{MINE} 8h"]["x"].tolist() == [2048]
    assert drawn[drawn["series"] == f"{MINE} 8h: oom"]["x"].tolist() == [2176]


def test_memory_and_slopes_are_drawn_with_units(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    page = open_page(Scaling, folder, tmp_path, device)
    page.memory()
    page.slopes()
    slopes = pd.read_csv(tmp_path / "tables" / "p-slopes.csv")
    time = slopes.query("cost == 'time' and `pass` == 'training'")
    mine = time[time["implementation"] == f"{MINE} 8h"]["slope"]
    assert mine.tolist() == pytest.approx([1.6, 1.6], abs=0.02)
    data = pd.read_csv(tmp_path / "figures" / "p-memory-training.csv")
    assert set(data["y_axis"]) == {"peak memory (MiB)"}
    assert set(data["x_axis"]) == {"sequence length N (tokens)"}
    svg = (tmp_path / "figures" / "p-memory-training.svg").read_text()
    assert "commit 0123456789" in svg
    assert "torch 2.13.0" in svg


def test_differences_are_paired_and_judged_together(source: Source, device: DeviceRecords) -> None:
    page = Corpora(source, device, Output(None, "p"))
    rows = {(d.model.task, d.model.model): d for d in page.differences}
    assert set(rows) == {(t, m) for t in ("trec", "cr") for m in GAINS if m != BASE}
    mine = rows["trec", MINE]
    assert mine.difference.difference == pytest.approx(0.02, abs=0.002)
    assert mine.verdict == "better"
    assert rows["trec", LSTM].verdict == "undecided"
    assert rows["cr", "none.fused"].verdict == "worse"
    assert (mine.together, mine.adjusted_p) == (1, mine.difference.p), "declared by itself"
    folds = rows["cr", MINE]
    assert folds.declared is None
    assert folds.together == len(rows) - 1, "with what was declared nowhere"
    assert folds.adjusted_p > folds.difference.p
    assert folds.values.units == "folds"
    assert folds.counted == "10 paired folds"


def test_a_difference_that_is_not_counted_is_told_with_those_that_are(
    source: Source, device: DeviceRecords
) -> None:
    page = Corpora(source, device, Output(None, "p"))
    trec = [d for d in page.differences if d.model.task == "trec"]
    mine, none = (next(d for d in trec if d.model.model == m) for m in (MINE, "none.fused"))
    lost = [replace(d, verdict=f"{d.verdict}{NOT_COUNTED}") for d in (mine, none)]
    assert tables.apart(lost) == (
        f"{MINE} {mine.text}, better (not counted); none.fused {none.text}, worse (not counted)"
    )
    undecided = [d for d in trec if d.verdict == "undecided"]
    assert tables.apart(undecided).startswith("no difference is shown after Holm; 0 of")


def test_a_baseline_that_attending_to_nothing_beats_is_told(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    page = open_page(Corpora, folder, tmp_path, device)
    assert beyond_none(page.differences) == [], "it is worse"
    better = {("none.fused", "cr"): 0.07}  # 0.01 above the baseline, 0.01 below MTSA
    records = [
        {**r, "test": {"accuracy": r["test"]["accuracy"] + better[r["model"], r["task"]]}}
        if r["kind"] == "run" and (r["model"], r["task"]) in better
        else r
        for r in device.records
    ]
    ahead = Corpora(page.source, replace(device, records=tuple(records)), page.place)
    rows = {(d.model.task, d.model.model): d for d in ahead.differences}
    over = against(rows["cr", MINE].model, rows["cr", "none.fused"].model)
    told = (
        f"On cr, none.fused, which attends to nothing, is itself ahead of {BASE}, by "
        f"{rows['cr', 'none.fused'].text} points"
    )
    shown = ahead.differences_to_baseline().plain
    assert told in shown
    said = f"Over none.fused, exploratory, each by itself: {MINE} {over.text}"
    assert f"{said}, {LSTM} " in shown, "the largest first"
    assert "On trec, none" not in shown


def test_only_a_significant_best_is_bold(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    page = open_page(Corpora, folder, tmp_path, device)
    page.table()
    text = (tmp_path / "tables" / "p-table.md").read_text()
    row = next(line for line in text.splitlines() if line.startswith(f"| {MINE}"))
    assert row.count("**") == 4  # both tasks
    assert text.count("**") == 4
    tex = (tmp_path / "tables" / "p-table.tex").read_text()
    assert tex.count(r"\textbf{") == 2
    assert r"multi\_head.sdpa" in tex
    numbers = pd.read_csv(tmp_path / "tables" / "p-table.csv")
    trec = numbers.query("task == 'trec' and model == @MINE").iloc[0]
    assert trec["replicates"] == 6
    cell = next(c for c in row.split("|") if "**" in c).strip(" *")
    assert cell in (
        f"{100 * m:.2f} ({100 * s:.2f})"
        for m, s in zip(numbers["mean"], numbers["sd"], strict=True)
    )
    # Without a clear winner nothing is bold.
    equal = [
        {**r, "test": {"accuracy": 0.5 + 0.01 * r["seed"]}}
        for r in device.records
        if r["kind"] == "run" and r["task"] == "trec" and "[" not in r["model"]
    ]
    jittered = [
        {**r, "test": {"accuracy": r["test"]["accuracy"] + 0.005 * math.sin(7 * i)}}
        for i, r in enumerate(equal)
    ]
    other = DeviceRecords(device.key, device.fingerprint, tuple(jittered), device.sessions)
    assert Corpora(page.source, other, Output(None, "p"))._best() == {}


def test_corpora_shows_ablations_mirrored_summation_and_scales(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    page = open_page(Corpora, folder, tmp_path, device)
    assert (
        "declared before their runs: 1 better; exploratory: "
        in page.differences_to_baseline().plain
    )
    said = page.ablations().plain
    assert f"trec: {VARIANT} − {MINE}" in said
    assert page.mirrored().plain.startswith("Test error over the variance")
    data = pd.read_csv(tmp_path / "figures" / "p-mirrored.csv")
    mine = data.query("series == @MINE")
    assert mine["x"].tolist() == [5, 20]
    assert mine["y"].tolist() == pytest.approx([0.2 * math.sqrt(k) / 2 + 0.001 for k in (5, 20)])
    page.scales()
    alpha = pd.read_csv(tmp_path / "figures" / "p-alpha-trec.csv")
    means = alpha[alpha["series"] == "multi_scale_transformer.windowed"]
    assert means["x"].tolist() == [-0.5, 0.5]
    assert set(means["y_axis"]) == {"test accuracy (%)"}
    assert means["y"].tolist() == pytest.approx([84.1, 86.1])  # one scale is at no alpha
    single = pd.read_csv(tmp_path / "tables" / "p-single.csv").iloc[0]
    assert single["other"] == "multi_scale_transformer.windowed[alpha=0.5]"
    assert single["difference"] == pytest.approx(-0.03, abs=1e-4)
    page.beside()
    printed = pd.read_csv(tmp_path / "tables" / "p-printed.csv")
    row = printed.query("task == 'trec' and model == @MINE").iloc[0]
    assert (row["printed_mean"], row["printed_sd"]) == (95.3, 0.3)


def test_scales_are_shown_by_the_recipe_that_they_were_trained_by(
    folder: Path, device: DeviceRecords, tmp_path: Path
) -> None:
    """Table 6 has five heads, which the other models were not trained with."""
    kept = tuple(
        {**r, "recipe": {**r["recipe"], "heads": 5}}
        if r["kind"] == "run" and str(r["model"]).startswith("multi_scale_transformer")
        else r
        for r in device.records
    )
    page = open_page(Corpora, folder, tmp_path, device)
    other = Corpora(page.source, replace(device, records=kept), page.place)
    said = other.scales().plain
    assert "trec: accuracy by alpha, 5 heads" in said
    alpha = pd.read_csv(tmp_path / "figures" / "p-alpha-trec.csv")
    means = alpha[alpha["series"] == "multi_scale_transformer.windowed"]
    assert means["y"].tolist() == pytest.approx([84.1, 86.1])
    assert len(pd.read_csv(tmp_path / "tables" / "p-single.csv")) == 1
    assert "multi_scale_transformer" not in other.table().plain


def test_a_section_without_records_names_its_command(tmp_path: Path) -> None:
    write(tmp_path, "Alone", [run(MINE, "trec", 0, {"accuracy": 0.5})])
    (device,) = find(str(tmp_path)).devices

    def page(module: Any, **more: str) -> Any:
        return open_page(module, tmp_path, tmp_path / "out", device, **more)

    scaled = page(Scaling)
    for piece, command in (
        (scaled.about, "attnbench bench"),
        (scaled.frontier, "attnbench frontier"),
        (scaled.numerics, "attnbench verify --stress"),
        (scaled.time, "attnbench bench"),
        (scaled.cases, "attnbench bench"),
        (scaled.beside, "attnbench bench --profile paper"),
        (scaled.threads, "attnbench bench --profile threads"),
        (scaled.batches, "attnbench bench --profile batch"),
    ):
        assert command in piece().plain
    over = page(Corpora)
    assert "attnbench compare --all" in over.differences_to_baseline().plain
    for piece in (over.ablations, over.mirrored, over.scales):
        assert "attnbench compare" in piece().plain
    weighed = page(Tradeoff)
    assert "attnbench compare" in weighed.about().plain
    looked = page(Attended, look="")
    assert "attnbench train mtsa --task trec --look" in looked.about().plain
    opened = Sized.begin(journal=str(tmp_path), like="", out="", page="size")
    first = opened.headline().plain
    for command in ("attnbench bench", "attnbench frontier", "attnbench compare"):
        assert command in first
    # Every other piece of an empty page says something or nothing, but does not fail.
    for one in (scaled, over, weighed, looked, page(Trusted)):
        for name in dir(one):
            if not name.startswith("_") and callable(method := getattr(one, name)):
                if name in ("begin", "standings", "ranked"):
                    continue
                assert isinstance(method(), Shown), name


def test_stress_lines_say_where_they_break(device: DeviceRecords) -> None:
    found = {(s.name, s.dtype, s.kind): s for s in numerics.stresses(device.records)}
    assert found[BASE, "f16", "scores"].breaks == "1e4"
    assert found[MINE, "f16", "scores"].breaks == ""
    figure = numerics.figure(list(found.values()), ["f32", "f16"], "scores")
    drawn = data_of(figure)
    lost = drawn[drawn["series"] == f"{BASE}: not finite"]
    assert lost["x"].tolist() == [10_000]
    assert set(drawn["panel"]) == {"f32", "f16"}
