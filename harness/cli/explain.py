"""``attnbench explain``: what a mechanism is, from its record and its package's ``about.md``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.markdown import Markdown
from rich.markup import escape

from harness.cli.output import bare_table, console
from harness.isolate import Limits, run
from harness.json_file import write_json
from harness.options.measure import ExplainOptions
from harness.registry import Registry
from reference_impls.mechanism import Mechanism, Size

ABOUT = "about.md"
FACTS_CALL = "harness.verify.unaided.facts:facts"
SECTIONS = ("Equations", "Where papers and released code differ", "Known to be odd")
"""What every ``about.md`` has, as second-level headings in this order."""
SIZE = Size(batch=64, length=64, d_in=300, d_out=600, heads=8)
"""Where the formulas are evaluated for showing (Table 1 of the MTSA paper measures this size)."""


def about(mechanism: Mechanism) -> str:
    """Return the text of a mechanism's package, empty for a foreign mechanism without one."""
    if not mechanism.folder:
        return ""
    package = importlib.import_module(mechanism.folder)
    path = Path(package.__path__[0]) / ABOUT
    return path.read_text(encoding="utf-8") if path.exists() else ""


def sections(text: str) -> dict[str, str]:
    """Split a page at its second-level headings: heading -> what stands below it."""
    found: dict[str, str] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line.removeprefix("## ").strip()
            found[heading] = ""
        elif heading:
            found[heading] += line + "\n"
    return {name: body.strip() for name, body in found.items()}


def _numbers(mechanism: Mechanism) -> list[tuple[str, str]]:
    """The formulas at `SIZE`."""
    width = SIZE.d_out if mechanism.keeps_width else SIZE.d_in
    size = Size(SIZE.batch, SIZE.length, width, SIZE.d_out, SIZE.heads)
    formulas = (
        ("weights", mechanism.parameters, 1, ""),
        ("operations, forward", mechanism.operations, 1e9, " billion"),
        ("memory beyond input and weights, forward", mechanism.transient_bytes, 2**20, " MiB"),
    )
    return [
        (name, f"{formula(size) / unit:,.{0 if unit == 1 else 1}f}{suffix}")
        for name, formula, unit, suffix in formulas
        if formula is not None
    ]


def _options(options: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in options.items()) or "none"


def run_explain(options: ExplainOptions) -> int:
    """Print equations, source, configurations, differences and oddities; returns the exit code."""
    registry = Registry(options.given)
    out = console()
    rows = []
    shown = ""
    for name in options.names:
        ((mechanism, _), *_) = registry.select([name])
        text = about(mechanism)
        out.print(f"[bold]{mechanism.name}[/]: {escape(mechanism.summary)}", highlight=False)
        out.print(f"source: {escape(mechanism.source)}", highlight=False)
        if mechanism.padding_matters:
            out.print(f"padding: {escape(mechanism.padding_matters)}", highlight=False)
        if text and text != shown:
            out.print(Markdown(text[text.index("\n## ") :], hyperlinks=False))
            shown = text  # two forms of one package are explained on one page
        elif not text:
            out.print("Nothing is written about it: it has no about.md beside its record.")
        _print_configurations(out, mechanism, registry)
        facts = _facts(name, options.given) if mechanism.name in registry.given_names else None
        if facts is not None:
            _print_facts(out, facts)
        rows.append(
            {
                **({} if facts is None else {"facts": facts}),
                "name": mechanism.name,
                "summary": mechanism.summary,
                "source": mechanism.source,
                "sections": sections(text),
                "options": dict(mechanism.options),
                "variants": {k: dict(v) for k, v in mechanism.variants.items()},
                "implementations": [i.name for i in mechanism.implementations],
                "padding_matters": mechanism.padding_matters,
            }
        )
    write_json(options.json_file, rows)
    return 0


def _facts(name: str, given: tuple[str, ...]) -> list[tuple[str, str]]:
    """What a mechanism that was handed in computes, or why that can't be told."""
    asked = {"name": name, "given": list(given)}
    outcome = run(FACTS_CALL, asked, Limits(seconds=60))
    if outcome.status != "ok":
        return [("can't be told", outcome.detail)]
    return [(str(question), str(answer)) for question, answer in outcome.value]


def _print_facts(out: Any, facts: list[tuple[str, str]]) -> None:
    table = bare_table("what it computes (in float64, told and not judged)", "", overflow="fold")
    for question, answer in facts:
        table.add_row(escape(question), escape(answer))
    out.print(table)


def _print_configurations(out: Any, mechanism: Mechanism, registry: Registry) -> None:
    table = bare_table("configuration", "options", overflow="fold")
    table.columns[0].no_wrap = True
    table.add_row(mechanism.name, escape(_options(mechanism.options)))
    for label, options in mechanism.variants.items():
        table.add_row(f"  {label}", escape(_options(options)))
    out.print("\n[bold]Configurations[/] (--option NAME=VALUE; each is verified)")
    out.print(table)
    table = bare_table("implementation", "what", overflow="fold")
    table.columns[0].no_wrap = True
    for i in mechanism.implementations:
        mark = " (default)" if i.name == mechanism.default else ""
        table.add_row(f"{mechanism.name}.{i.name}{mark}", escape(i.summary))
    out.print()
    out.print(table)
    if numbers := _numbers(mechanism):
        s = SIZE
        out.print(
            f"\n[bold]At[/] B={s.batch}, N={s.length}, D={s.d_in} to {s.d_out}, H={s.heads}, "
            "float32: " + "; ".join(f"{name} {value}" for name, value in numbers),
            highlight=False,
        )
    command = f"attnbench verify {mechanism.name}{registry.flags}"
    out.print(f"\n{escape(command)}    checks all of it\n", highlight=False)
