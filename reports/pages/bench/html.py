"""The page after a bench: one HTML file, figure inline, no network."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from harness.ratios import WITHHELD, Row
from reports.core.page import svg
from reports.core.words import known, time_text

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #666; --line: #ddd; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --soft: #a0a0a0; --line: #333; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.figure { background: #fff; border-radius: 6px; padding: 10px; } .figure svg { width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 13px; width: 100%; }
th, td { text-align: right; padding: 3px 9px; border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { text-align: left; font-family: ui-monospace, monospace; }
tr.problem td { font-weight: 600; padding-top: 12px; font-family: inherit; }
.faster { color: #1a8a4a; } .slower { color: #d0492a; } .undecided { color: #b58400; }
.same { color: #2b7fb8; } .bad, .withheld { color: #d0492a; font-weight: 600; } .soft { color: var(--soft); }
ol.say, ul.say { font-size: 1.05rem; padding-left: 1.3rem; }
figure { margin: 1rem 0; } figcaption { color: var(--soft); font-size: 14px; margin-top: .3rem; }
a { color: inherit; } table.dataframe td:first-child { font-family: inherit; } li { margin: .35rem 0; } .scroll { overflow-x: auto; }
"""


def document(title: str, body: str, *, home: bool = False) -> str:
    """A whole page around a body that is HTML already; nothing in it is loaded from elsewhere.

    Parameters
    ----------
    home : bool
        Whether there is an ``index.html`` beside it to go back to.
    """
    back = '<p class="soft"><a href="index.html">all pages</a></p>' if home else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>
<meta name="viewport" content="width=device-width"><link rel="icon" href="data:,">
<style>{STYLE}</style></head><body>
{back}{body}
</body></html>
"""


def _number(value: float, form: str, suffix: str = "") -> str:
    return "" if math.isnan(value) else f"{value:{form}}{suffix}"


def _rows(rows: Sequence[Row]) -> str:
    lines = []
    last = ""
    for r in rows:
        c = r.columns
        problem = (
            f"{c['phase']}, batch {c['batch']}, N = {c['length']}, {c['d_in']} to {c['d_out']}, "
            f"{c['dtype']}, {c['settings']}, {c['device']}"
        )
        if problem != last:
            floor = "" if math.isinf(r.floor) else f" (noise floor {100 * (r.floor - 1):.1f} %)"
            lines.append(
                f'<tr class="problem"><td colspan="9">{html.escape(problem)}'
                f'<span class="soft">{html.escape(floor)}</span></td></tr>'
            )
            last = problem
        heads = f" ({c['heads']} heads)" if c["heads"] else ""
        name = html.escape(f"{c['name']}{heads}")
        if r.status != "ok":
            why = html.escape(f"{r.status}: {r.detail}" if r.detail else r.status)
            lines.append(f'<tr><td>{name}</td><td colspan="8" class="bad">{why}</td></tr>')
            continue
        margin = _number(r.margin, ".3g", "x") if r.verified else "not verified"
        why = f": {r.detail}" if r.verdict == WITHHELD else ""
        cells = [
            known(r.seconds, time_text) + ("*" if r.near_floor else ""),
            html.escape(str(r.time)) if r.time else "",
            f'<span class="{html.escape(r.verdict)}">{html.escape(r.verdict + why)}</span>',
            _number(100 * r.compute_share, ".2g" if r.compute_share < 0.01 else ".0f", " %"),
            _number(r.peak_bytes / 2**20, ".1f", " MiB"),
            _number(r.memory_ratio, ".2f", "x"),
            _number(r.error, ".1e"),
            margin,
        ]
        lines.append(f"<tr><td>{name}</td>" + "".join(f"<td>{x}</td>" for x in cells) + "</tr>")
    return "\n".join(lines)


def _verified(rows: Sequence[Mapping[str, Any]]) -> str:
    out = []
    for r in rows:
        bad = "" if r["verdict"] == "ok" else ' class="bad"'

        def cell(name: str, r: Mapping[str, Any] = r) -> str:
            value = r.get(name)
            return f"{value:.2g}" if isinstance(value, float) else ""

        out.append(
            f"<tr><td>{html.escape(str(r['name']))}</td><td>{html.escape(str(r['dtype']))}</td>"
            + "".join(
                f"<td>{cell(f'{part}_{column}')}</td>"
                for part in ("value", "gradient")
                for column in ("error", "budget", "margin")
            )
            + f"<td{bad}>{html.escape(str(r['verdict']))}</td>"
            + f'<td class="soft">{html.escape(str(r.get("detail") or ""))}</td></tr>'
        )
    return "\n".join(out)


def build(
    path: Path,
    title: str,
    sentences: Sequence[str],
    figure: Figure,
    rows: Sequence[Row],
    verified: Sequence[Mapping[str, Any]],
    facts: Mapping[str, str],
) -> Path:
    """Write the page and return its path. Text from records is escaped.

    Parameters
    ----------
    facts : mapping
        Device, versions and the like, shown as a list at the end.
    """
    items = "".join(f"<li>{html.escape(s)}</li>" for s in sentences)
    known = "".join(
        f"<tr><td>{html.escape(k)}</td><td style='text-align:left'>{html.escape(v)}</td></tr>"
        for k, v in facts.items()
    )
    body = f"""<h1>{html.escape(title)}</h1>
<ol class="say">{items}</ol>
<h2>Cost against length</h2>
<div class="figure">{svg(figure)}</div>
<p class="soft">Points are medians over blocks (fresh interpreters). Ratios are formed inside each block; bars
are 95 % t-intervals on the log ratios over blocks. The grey band is the noise floor: how far the baseline,
measured a second time under another name, strayed from itself. Nothing inside it is claimed.</p>
<h2>Every case</h2>
<div class="scroll"><table><tr><th>case</th><th>time</th><th>ratio to baseline</th><th>verdict</th>
<th>of peak</th><th>peak memory</th><th>ratio</th><th>error</th><th>margin</th></tr>
{_rows(rows)}</table></div>
<p class="soft">Of peak: operations per second, of the best matrix product of that dtype and setting measured in the same
session. A row above 105 % of it can't be right, and its verdict is withheld. * Near the launch floor: at least half of the
time is launching operations.</p>
<h2>Verified against the oracles, small shapes</h2>
<div class="scroll"><table><tr><th>implementation</th><th>dtype</th><th>value error</th><th>budget</th>
<th>margin</th><th>gradient error</th><th>budget</th><th>margin</th><th>verdict</th><th></th></tr>
{_verified(verified)}</table></div>
<h2>Where this was measured</h2>
<div class="scroll"><table>{known}</table></div>
"""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document(title, body), encoding="utf-8")
    return path
