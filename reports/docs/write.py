"""``attnbench report --docs``: write ``docs/results`` and the README's part, or say what is stale.

A picture is drawn anew only where its data or its words changed: another processor or version of
matplotlib draws the same data a little differently.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

from harness.errors import UsageError
from harness.records.journal import PACKED
from reports.claims.ledger import devices_of
from reports.core import predicted
from reports.core.figure_data import data_of
from reports.core.html import TEMPLATES, environment
from reports.core.page import svg
from reports.core.source import PUBLISHED, DeviceRecords, Source, find
from reports.core.style import with_dark
from reports.core.tables import delimited
from reports.docs import declared, reached, speed, training
from reports.docs.plain import PlainOutput, text_of
from reports.pages.claims import Ledger
from reports.pages.size.answers import Found

RESULTS = Path("docs/results")
PICTURES = RESULTS / "figures"
PLANS = Path("plans")
README = Path("README.md")
PAGES = ("speed", "training", "training-all", "claims", "calibration")
BEGIN = "<!-- attnbench report --docs: begin -->"
END = "<!-- attnbench report --docs: end -->"
MACHINES = "<!-- machines -->"
"""Where a page's template has the list of those that it names."""


def values_of(source: Source, timed: Sequence[Found], plans: Path) -> dict[str, Any]:
    """All that the templates are filled with.

    Parameters
    ----------
    timed : sequence of Found
        What every device measured at the profile's size, the README's first.
    plans : Path
        Folder of the design files.
    """
    claims = Ledger(devices_of("" if source.published else str(source.folders[0])), PlainOutput())
    known = [f for f in timed if f.problem]
    of_gpus = predicted.beside([*source.devices, *_of_gpus()])
    return {
        "at_sizes": [(f.device.title, f.where, speed.answers_table(f)) for f in known],
        "small": speed.small_table(known[0]) if known else "",
        "frontiers": [(d.title, t) for d in source.devices if (t := speed.frontier_table(d))],
        "ratios": speed.ratio_tables(),
        "growth": speed.growth_tables(),
        "bits": speed.same_bits(),
        "predicted": {
            "heading": predicted.heading(of_gpus),
            "sentence": predicted.sentence(),
            "table": predicted.table(of_gpus),
        },
        "experiments": declared.lists(source),
        "first": (declared.TITLES[False], *training.FIRST),
        "not_run": declared.not_run(source, plans),
        "reached": reached.table(source),
        "trained": training.sections(source),
        "recipes": training.recipes(),
        "central": declared.central(source),
        "withdrawn": declared.withdrawn(source),
        "counts": text_of(claims.counts()),
        "papers": [
            (paper["paper"], text_of(claims.of_paper(name)))
            for name, paper in claims.tables.items()
        ],
        "audits": [v for v in claims.verdicts if v.claim.kind == "audit"],
        # Written by the programs that judge them, of their own records beside.
        "goals": [
            path.read_text("utf-8").rstrip() for path in sorted(PUBLISHED.glob("*/goals*.md"))
        ],
        **{
            name.replace("-", "_"): (PUBLISHED / "cpu" / f"{name}.md").read_text("utf-8").rstrip()
            for name in ("calibration", "calibration-statistics")
        },
    }


def _of_gpus() -> list[DeviceRecords]:
    """What GPUs have shown: journals in folders of their own, which no page adds to another's."""
    packed = sorted(PUBLISHED.glob(f"*/*{PACKED}"))
    found = (find(str(path).removesuffix(PACKED)) for path in packed if path.parent.name != "cpu")
    return [one for each in found for one in each.devices if one.fingerprint["device"] == "cuda"]


def csv_of(figure: Figure) -> str:
    """What a figure shows, as CSV with numbers that another processor gives alike."""
    return delimited(data_of(figure).dropna(axis=1, how="all"), float_format="%.4g")


def words_of(figure: Figure) -> list[str]:
    """What is written in a figure: titles, names of axes and rows, legends, notes."""
    return sorted({text.get_text() for text in figure.findobj(Text)} - {""})


def marked(text: str, inside: str) -> str:
    """The README with something else between its marks.

    Raises
    ------
    UsageError
        If they are not there, once each.
    """
    before, found, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not found or BEGIN in rest or not end:
        raise UsageError(f"{README} has no place for what is generated; put in: {BEGIN} {END}")
    return f"{before}{BEGIN}\n\n{inside.strip()}\n\n{END}{after}"


def numbered(text: str, titles: Sequence[str]) -> str:
    """A page with *machine 2* for a title, and a list of those that it names at its mark.

    Parameters
    ----------
    titles : sequence of str
        Of all machines; a machine's place among them is its number, on whatever page.
    """
    numbers = {title: f"machine {at + 1}" for at, title in enumerate(titles)}
    used: set[str] = set()

    def number(found: re.Match[str]) -> str:
        used.add(found["title"])
        short = numbers[found["title"]]
        begins = found["begin"] is not None
        return (found["begin"] or "") + (short.capitalize() if begins else short)

    # One title may begin with another, which has more variables or is told from a twin.
    every = "|".join(re.escape(title) for title in sorted(titles, key=len, reverse=True))
    if every:
        one = rf"(?P<begin>^(?:#+ )?)?(?P<title>{every})(?!, \w+=| \[)"
        text = re.sub(one, number, text, flags=re.MULTILINE)
    lines = [f"- {numbers[title]}: {title}" for title in titles if title in used]
    return text.replace(MACHINES, "\n".join(lines))


def machines(source: Source) -> list[str]:
    """Titles of all that some records were made on, the oldest first."""
    found = [one for device in source.devices for one in device.machines.items()]
    return list(dict.fromkeys(title for title, _ in sorted(found, key=lambda one: one[1])))


def texts(root: Path, values: Mapping[str, Any], titles: Sequence[str]) -> dict[Path, str]:
    """The generated pages and the README, by their path below the root."""
    # Not escaped: Markdown, whose tables escape what stands in them.
    templates = environment(TEMPLATES / "docs", escape=False)
    filled = {
        name: numbered(templates.get_template(f"{name}.md.jinja").render(values), titles)
        for name in (*PAGES, "readme")
    }
    found = {RESULTS / f"{name}.md": filled[name] for name in PAGES}
    readme = (root / README).read_text(encoding="utf-8")
    return {**found, README: marked(readme, filled["readme"])}


def write(root: Path, source: Source | None = None, check: bool = False) -> list[Path]:
    """Write what differs from the published records of today.

    Parameters
    ----------
    root : Path
        Of the repository.
    source : Source, optional
        The published records without it.
    check : bool
        Write nothing.

    Returns
    -------
    list of Path
        What was written, or is stale; below the root.

    Raises
    ------
    UsageError
        If the root is none of a clone of attnbench, or its README has no marks.
    """
    if not (root / README).is_file() or not (root / "pyproject.toml").is_file():
        raise UsageError(f"--docs: {root} is no clone of attnbench; run it in one")
    source = find("") if source is None else source
    timed = speed.timed(source)
    figures = training.figures(source)
    figures |= speed.figures(timed)
    values = values_of(source, timed, root / PLANS)
    captions = {name: caption for name, (_, caption) in figures.items()}
    values |= {"figures": dict.fromkeys(("glance", "length", "declared", "printed"), "") | captions}
    stale: dict[Path, str] = {}
    for name, (figure, _) in figures.items():
        said = csv_of(figure) + "\n".join(words_of(figure))
        digest = hashlib.sha256(said.encode()).hexdigest()[:16]
        mark, path = f"<!-- data {digest} -->\n", PICTURES / f"{name}.svg"
        if not ((root / path).is_file() and (root / path).read_text("utf-8").endswith(mark)):
            stale[path] = with_dark(svg(figure)).rstrip() + f"\n{mark}"
    for path, text in texts(root, values, machines(source)).items():
        if not (root / path).is_file() or (root / path).read_text("utf-8") != text:
            stale[path] = text
    wanted = {PICTURES / f"{name}.svg" for name in figures}
    gone = [
        path.relative_to(root)
        for path in sorted((root / PICTURES).glob("*"))
        if path.relative_to(root) not in wanted
    ]
    if not check:
        for path, text in stale.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        for path in gone:
            (root / path).unlink()
    return [*stale, *gone]
