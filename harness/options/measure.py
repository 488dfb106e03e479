"""Options of the commands that list, verify, measure and report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.options import readers as r
from harness.options.declare import TEXT, argument, option, switch
from harness.options.groups import (
    Factory,
    Given,
    Journal,
    Measuring,
    Narrowed,
    Output,
    Sizes,
    Where,
)


@dataclass(frozen=True, kw_only=True)
class ListOptions(Given, Output):
    """Of ``attnbench list``."""

    markdown: bool = switch("Print the README's table of mechanisms.", "--markdown")


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(Given, Output):
    """Of ``attnbench explain``."""

    names: tuple[str, ...] = argument(
        "One or more names.", TEXT, "MECHANISM...", kind="many", required=True
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Where, Given, Factory, Output):
    """Of ``attnbench verify``."""

    names: tuple[str, ...] = argument(
        "Mechanisms or mechanism.implementation; all without any.", TEXT, "names", kind="many"
    )
    dtypes: tuple[str, ...] = option(
        "f64, f32, bf16, f16, joined by commas.", r.DTYPE_NAMES, "--dtypes", absent=()
    )
    stress: bool = switch(
        "Record the error over magnitudes of inputs and scores instead, for the report.",
        "--stress",
    )
    golden: Path | None = option(
        "Check the golden .npz files at or below DIR instead.", r.THERE, "--golden"
    )
    exact: bool = switch("Only what the papers claim exactly: a minute.", "--exact")
    jobs: int = option("Children at a time (0: one per core).", r.JOBS, "--jobs", default="0")

    def __post_init__(self) -> None:
        """Refuse more than one child at a time where only one is run."""
        if self.stress and self.jobs > 1:
            raise UsageError(
                f"--jobs: given {self.jobs}; --stress runs one child at a time, leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Measuring, Output):
    """Of ``attnbench bench``."""

    extra: tuple[str, ...] = argument("For pytest.", r.PYTEST, "-- PYTEST", kind="many")
    dry_run: bool = switch("List the cases and stop.", "--dry-run")


@dataclass(frozen=True, kw_only=True)
class FrontierOptions(Where, Given, Factory, Sizes, Output):
    """Of ``attnbench frontier``."""

    only: tuple[str, ...] = argument(
        "Mechanisms or mechanism.implementation, @H for heads; without any the default "
        "implementation of every mechanism.",
        TEXT,
        "names",
        kind="many",
    )
    memory: int | None = option(
        "Memory limit, e.g. 4GiB; default: half of the machine's, nine tenths of a GPU's.",
        r.BYTES,
        "--memory",
    )
    seconds: float = option(
        "Time limit on one pass.", r.POSITIVE_NUMBER, "--seconds", default="10.0"
    )
    limit: int = option("Largest length tried.", r.POSITIVE, "--limit", default=str(2**17))
    passes: tuple[str, ...] = option(
        "training (default), forward, or both.", r.PASS_NAMES, "--passes", absent=()
    )
    settings: tuple[str, ...] = option(
        "As of attnbench bench.", r.SETTINGS, "--settings", absent=()
    )


@dataclass(frozen=True, kw_only=True)
class DiffOptions(Where, Narrowed, Output):
    """Of ``attnbench diff``."""

    base: str = argument("A revision, or a journal folder.", TEXT, "BASE", required=True)
    head: str = argument("What is judged: alike.", TEXT, "HEAD", required=True)
    profile: str | None = option("diff (default), quick, full or paper.", r.PROFILE, "--profile")
    only: tuple[str, ...] = option(
        "Only this mechanism or mechanism.implementation; repeatable.",
        TEXT,
        "--only",
        shown="NAME",
        kind="many",
    )
    settings: tuple[str, ...] = option("As for bench.", r.SETTINGS, "--settings", absent=())
    blocks: int | None = option("Blocks (default: 15).", r.POSITIVE, "--blocks")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(Journal, Output):
    """Of ``attnbench report``."""

    out: Path = option("Folder to write.", r.FOLDER, "--out", default="report")
    like: Path | None = option(
        "Your sizes, TOML: batch, length, heads, width, dtype, setting, mechanism, baseline, task "
        "(default: the papers' size).",
        r.FILE,
        "--like",
    )
    jobs: int = option("Notebooks at a time (0: one per core).", r.JOBS, "--jobs", default="0")


@dataclass(frozen=True, kw_only=True)
class ClaimsOptions(Journal, Output):
    """Of ``attnbench claims``."""


@dataclass(frozen=True, kw_only=True)
class DataOptions(Output):
    """Of ``attnbench data list`` and ``attnbench data check``."""

    names: tuple[str, ...] = argument("All of them without any.", TEXT, "[CORPUS]...", kind="many")
    data: str | None = option("Corpora (default: $ATTNBENCH_DATA).", TEXT, "--data", shown="DIR")
