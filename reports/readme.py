"""What the README shows of the published records: figures, score line, trained models.

``python -m reports.readme`` writes them; ``python -m reports.readme --check`` says what is stale.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from matplotlib.figure import Figure

from harness.errors import UsageError
from reports.claims import ledger, score, score_lines
from reports.claims.ledger import devices_of
from reports.core import sizes
from reports.core.costs import Costs
from reports.core.figure_data import data_of
from reports.core.forest import Panel, forests
from reports.core.page import Output, svg
from reports.core.source import DeviceRecords, Source, find
from reports.core.style import with_dark
from reports.core.tables import markdown
from reports.pages.corpora.page import Corpora, line_of
from reports.pages.scaling.figures import ratio
from reports.pages.size.answers import accuracy_table, answers, differences
from reports.pages.size.figures import glance

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
FOLDER = Path(__file__).with_name("readme_figures")
BEGIN, END = "<!-- made by python -m reports.readme: begin -->", "<!-- end -->"
MODELS = "<!-- models, made by python -m reports.readme: begin -->"
Made = Mapping[str, tuple[Figure, str]]
"""Figure and what it says, by name."""


def figures(source: Source) -> Made:
    """Two or three figures: costs of the device with most timings, accuracies of the last one."""
    made: dict[str, tuple[Figure, str]] = {}
    device = max(source.devices, key=_timings, default=None)
    if device is not None and _timings(device):
        made |= _costs(device)
    trained = source.device("", "run")
    if trained is not None:
        made |= _accuracies(source, trained)
    return made


def _timings(device: DeviceRecords) -> int:
    return sum(record["kind"] == "time" for record in device.records)


def _footer(figure: Figure, device: DeviceRecords, *kinds: str) -> Figure:
    figure.text(0.005, -0.01, device.footer(*kinds), fontsize=6.5, color="0.45", va="top")
    return figure


def _costs(device: DeviceRecords) -> Made:
    measured = Costs(device)
    size = sizes.of_profile(measured.profile)
    made: dict[str, tuple[Figure, str]] = {}
    problem = sizes.nearest(measured.rows, size)
    if problem is not None:
        here = [r for r in measured.rows if sizes.problem_of(r) == problem]
        batch, length, width, dtype, setting = problem
        under = f"batch {batch}, N = {length:,}, {width} wide, {dtype}, {setting}"
        figure = glance(answers(here, measured, size), measured.baseline, under)
        made["glance"] = (
            _footer(figure, device, "time", "memory"),
            f"Time and peak memory of every mechanism over those of {measured.baseline}, {under}.",
        )
    if measured.sweeps and measured.sweeps[0].lines("training"):
        where = f"{device.fingerprint.get('model')} ({device.kind})"
        figure = ratio(measured.sweeps[0], "training", measured.baseline, where)
        made["length"] = (
            _footer(figure, device, "time"),
            f"Time of a training step over that of {measured.baseline}, against length.",
        )
    return made


def _accuracies(source: Source, device: DeviceRecords) -> Made:
    """A panel per corpus, a row per mechanism."""
    page = Corpora(source, device, Output(None, "readme"))
    panels = []
    for task in page.corpora:
        mine = [d for d in page.differences if d.model.task == task.name]
        if mine:
            unit = mine[0].model.unit.of_differences.strip()
            xlabel = f"{mine[0].model.metric}, {unit}" if unit else mine[0].model.metric
            lines = {
                d.model.mechanism: replace(line_of(d), label=f"{task.name}: {d.model.mechanism}")
                for d in mine
            }
            panels.append(Panel(task.name, xlabel, lines))
    if not panels:
        return {}
    figure = forests(
        panels,
        f"less {page.baseline}'s; right of zero: better; bars: 95 % t-intervals; grey: not shown "
        "after Holm",
    )
    said = (
        f"What models reach on the test sets less what {page.baseline} reaches, every seed or fold "
        "and 95 % t-intervals."
    )
    return {"accuracy": (_footer(figure, device, "run"), said)}


def models_table(source: Source) -> str:
    """Every model against the baseline on every task, as declared and judged together."""
    device = source.device("", "run")
    if device is None:
        return "Nothing was trained."
    measured = Costs(device)
    size = sizes.of_profile(measured.profile)
    columns, rows = accuracy_table(differences(device.records, size), size)
    return markdown(["model", *columns], rows, range(len(columns) + 1)).rstrip("\n")


def data(figure: Figure) -> str:
    """What a figure shows, as CSV with numbers that another processor gives alike."""
    frame = data_of(figure).dropna(axis=1, how="all")
    buffer = io.StringIO()
    frame.to_csv(buffer, index=False, float_format="%.4g")
    return buffer.getvalue()


def digest(text: str) -> str:
    """By which an SVG says which data it shows."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def block(source: Source, made: Made) -> str:
    """What stands between the markers."""
    devices = devices_of("" if source.published else str(source.folders[0])).devices
    verdicts = ledger({d.key: d.records for d in devices})
    said = score_lines(verdicts, {d.key: d.title for d in devices})
    failed = [f"{claim} does not hold" for d in devices for claim in score(verdicts, d.key).failed]
    images = [
        f"![{caption}](reports/{FOLDER.name}/{name}.svg)" for name, (_, caption) in made.items()
    ]
    return "\n\n".join([*images, *said, *failed])


def marked(text: str, inside: str, begin: str = BEGIN) -> str:
    """The README with something else between a pair of its markers.

    Raises
    ------
    UsageError
        If they are not there, once each.
    """
    before, found, rest = text.partition(begin)
    _, end, after = rest.partition(END)
    if not found or begin in rest or not end:
        raise UsageError(f"README.md has no place for what is generated; put in: {begin} {END}")
    return f"{before}{begin}\n\n{inside}\n\n{END}{after}"


def generated(text: str, source: Source, made: Made) -> str:
    """The README with all that is made from the records."""
    return marked(marked(text, block(source, made)), models_table(source), MODELS)


def stale(source: Source, folder: Path = FOLDER, readme: Path = README) -> list[str]:
    """Files that do not show the published records of today."""
    made = figures(source)
    found = []
    for name, (figure, _) in made.items():
        wanted = data(figure)
        path = folder / f"{name}.csv"
        if not path.is_file() or path.read_text(encoding="utf-8") != wanted:
            found.append(path.name)
        drawn = folder / f"{name}.svg"
        if not drawn.is_file() or f"<!-- data {digest(wanted)} -->" not in drawn.read_text(
            encoding="utf-8"
        ):
            found.append(drawn.name)
    found += [p.name for p in sorted(folder.glob("*")) if p.stem not in made]
    text = readme.read_text(encoding="utf-8")
    if generated(text, source, made) != text:
        found.append(readme.name)
    return found


def write(source: Source, folder: Path = FOLDER, readme: Path = README) -> list[Path]:
    """Write figures, their data, and the README's part; returns what was written."""
    made = figures(source)
    text = generated(readme.read_text(encoding="utf-8"), source, made)
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*"):
        if path.suffix in (".svg", ".csv"):
            path.unlink()
    written = []
    for name, (figure, _) in made.items():
        csv = data(figure)
        path = folder / f"{name}.csv"
        path.write_text(csv, encoding="utf-8")
        drawn = with_dark(svg(figure)).rstrip() + f"\n<!-- data {digest(csv)} -->\n"
        path.with_suffix(".svg").write_text(drawn, encoding="utf-8")
        written += [path, path.with_suffix(".svg")]
    readme.write_text(text, encoding="utf-8")
    return [*written, readme]


def main(arguments: list[str]) -> int:
    """Write, or with ``--check`` only look; 1 if something is stale."""
    source = find("")
    try:
        if arguments == ["--check"]:
            found = stale(source)
            for name in found:
                print(f"stale: {name}; python -m reports.readme makes it anew")
            return int(bool(found))
        if arguments:
            raise UsageError(f"given {' '.join(arguments)}; expected nothing, or --check")
        for path in write(source):
            print(path.relative_to(ROOT))
    except UsageError as error:
        print(f"reports.readme: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
