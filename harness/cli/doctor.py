"""``attnbench doctor``: whether this machine can measure, and what to do where it can't."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, console, say
from harness.doctor.checks import Diagnosis, judge
from harness.doctor.facts import gather
from harness.json_file import write_json
from harness.options.measure import DoctorOptions

COLOURS = {"ok": "green", "note": "yellow", "bad": "bold red"}


def run_doctor(options: DoctorOptions) -> int:
    """Look, print a row for everything and what to do; 1 where something is bad."""
    out = console()
    with out.status("looking: a compilation and a checked launch take up to a minute"):
        facts = gather(options.device, options.journal, options.data)
    found = judge(facts)
    table = bare_table("", "", "found", "what to do")
    for one in found:
        state = f"[{COLOURS[one.state]}]{one.state}[/]"
        table.add_row(one.what, state, escape(one.found), escape(one.advice))
    out.print(table)
    bad = [one.what for one in found if one.state == "bad"]
    where = "the GPU" if facts.on_gpu else "the CPU"
    ready = f"Ready to measure {where}." if not bad else f"Not ready: {', '.join(bad)}."
    say(out, ready, COLOURS["bad" if bad else "ok"])
    answer = {"ready": not bad, "findings": [asdict(one) for one in found]}
    write_json(options.json_file, {**answer, "facts": asdict(facts)})
    return int(bool(bad))


def tell_unready(findings: Sequence[Diagnosis], out: Console) -> None:
    """A line for what is not as it should be, before something is measured."""
    for one in findings:
        if one.state != "ok":
            does = f": {one.advice}" if one.advice else ""
            say(out, f"{one.what}: {one.found}{does}", COLOURS[one.state])
