"""The README's table of mechanisms, from the records: ``attnbench list --markdown``."""

from __future__ import annotations

from pathlib import Path

import suites.harness.verify
from harness.registry import builtins
from reference_impls.mechanism import Mechanism

GOLDEN = Path(suites.harness.verify.__path__[0]) / "golden"
PAPERS_OWN = ("mtsa_paper", "multi_head_paper", "msmsa")
"""Golden folders computed from the papers' equations; the others by the authors' programs."""
BEGIN, END = "<!-- mechanisms: attnbench list --markdown -->", "<!-- end of mechanisms -->"


def _goldens(mechanism: Mechanism) -> str:
    """How many golden files hold it to account, and whose numbers they are."""
    counts = {"authors'": 0, "paper's form": 0}
    for folder in mechanism.goldens:
        whose = "paper's form" if folder in PAPERS_OWN else "authors'"
        counts[whose] += len(list((GOLDEN / folder).glob("*.npz")))
    return ", ".join(f"{count} {whose}" for whose, count in counts.items() if count) or "none exist"


def _implementations(mechanism: Mechanism) -> str:
    names = [i.name for i in mechanism.implementations]
    return ", ".join(f"`{n}`" for n in names if n != "plain")


def _checked(mechanism: Mechanism) -> str:
    configurations = 1 + len(mechanism.variants)
    return f"oracle, {configurations} configuration{'s' if configurations > 1 else ''}"


def markdown() -> str:
    """One row per built-in mechanism."""
    lines = [
        "| mechanism | what and where from | implementations beside `plain` | verified against | "
        "golden files |",
        "|---|---|---|---|---|",
    ]
    for m in builtins().values():
        what = f"{m.summary} ({m.source})"
        lines.append(
            f"| `{m.name}` | {what} | {_implementations(m)} | {_checked(m)} | {_goldens(m)} |"
        )
    return "\n".join(lines)
