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
    JournalFolder,
    JsonOutput,
    Measuring,
    Narrowed,
    Sizes,
    Where,
)


@dataclass(frozen=True, kw_only=True)
class ListOptions(Given, JsonOutput):
    """List mechanisms, their implementations and where they come from."""

    markdown: bool = switch("Print the table of mechanisms of docs/verify.md.", "--markdown")


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(Given, JsonOutput):
    """Equations, source and configurations; where papers and code differ; what is odd."""

    names: tuple[str, ...] = argument(
        "One or more names.", TEXT, "MECHANISM...", kind="many", required=True
    )


@dataclass(frozen=True, kw_only=True)
class VerifyOptions(Where, Given, Factory, JsonOutput):
    """Check implementations against independent float64 oracles, or golden vectors.

    Values and gradients of input and weights, over dtypes, masks, padding and edge cases. The
    error may be at most twice that of a plain implementation in the same dtype. Then what the
    papers claim exactly: Algorithm 1 = eq. 13, numbers of weights and heads. All of it is recorded.
    Exit code 1 when anything is over budget or an exact claim fails.
    """

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
    determinism: bool = switch(
        "Tell beside each verdict whether the same bits come again: in 30 repeats, alone and in a "
        "batch, on two threads, compiled; and what torch's deterministic mode costs. Killed and "
        "started again it goes on where it was.",
        "--determinism",
    )
    large: bool = switch(
        "Instead at heads of 64, 75 and 128 and up to 4,097 tokens, all rows and gradients, what "
        "works in tiles, on a GPU all with heads (f32, bf16 if --dtypes is not given); minutes "
        "each, and it goes on where it was.",
        "--large",
    )
    resume: bool = switch(
        "Take what the journal holds of this code, and go on where it was stopped.", "--resume"
    )
    golden: Path | None = option(
        "Check the golden .npz files at or below DIR instead.", r.THERE, "--golden"
    )
    exact: bool = switch("Only what the papers claim exactly: a minute.", "--exact")
    jobs: int = option(
        "Children at a time (0: one per core, on a GPU at most eight).",
        r.JOBS,
        "--jobs",
        default="0",
    )

    def __post_init__(self) -> None:
        """Refuse what can't be together."""
        super().__post_init__()
        kinds = ("large", "stress", "golden", "exact", "determinism")
        runs = [f"--{name}" for name in kinds if getattr(self, name)]
        if len(runs) > 1:
            raise UsageError(f"given {' '.join(runs)}; each is a run of its own, give one")
        unread = ("dtypes", "resume") if self.exact else ("dtypes", "option", "jobs", "resume")
        flags = [f"--{name}" for name in unread if getattr(self, name)]
        if (self.exact or self.golden is not None) and flags:
            what = "exact claims" if self.exact else "golden files"
            raise UsageError(f"{' '.join(flags)}: {what} say themselves how; leave it out")
        if self.stress and self.jobs > 1:
            raise UsageError(
                f"--jobs: given {self.jobs}; --stress runs one child at a time, leave it out"
            )


@dataclass(frozen=True, kw_only=True)
class BenchOptions(Measuring, JsonOutput):
    """Verify, then measure time and peak memory, and compare with the baseline.

    Killed and started again it goes on where it was. What follows '--' goes to pytest, for
    example [bold]-- --benchmark-json=out.json[/] or [bold]-- -k=N256[/].
    """

    extra: tuple[str, ...] = argument("For pytest.", r.PYTEST, "-- PYTEST", kind="many")
    dry_run: bool = switch("List the cases and stop.", "--dry-run")


@dataclass(frozen=True, kw_only=True)
class FrontierOptions(Where, Given, Factory, Sizes, JsonOutput):
    """Find the longest sequence each mechanism can train on within memory and time.

    By bisection, each probe in a process of its own that may run out of memory without harm.
    Killed and started again it goes on where it was.
    """

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


@dataclass(frozen=True, kw_only=True)
class DiffOptions(Where, Narrowed, JsonOutput):
    """Measure two git revisions now, side by side: which cases became slower or faster?

    Only the revisions' mechanisms differ; clock and plan are those of this attnbench, and the
    environment too, unless the constraints differ. BASE runs twice: nothing below that noise is
    claimed. It says nothing of correctness: attnbench verify does.

    Given two journal folders instead, only ratios to the baseline are compared. Exit code 1: a
    case is slower, or fails in HEAD alone; 3: nothing comparable was measured.
    """

    base: str = argument("A revision, or a journal folder.", TEXT, "BASE", required=True)
    head: str = argument("What is judged: alike.", TEXT, "HEAD", required=True)
    profile: str | None = option("diff (default), quick, full or paper.", r.PROFILE, "--profile")


@dataclass(frozen=True, kw_only=True)
class ReportOptions(JournalFolder, JsonOutput):
    """Execute the notebooks on what was measured and write one folder to open in a browser.

    Its first page says whether to use the mechanism at your size. With an empty journal the
    records published with attnbench are shown.
    """

    out: Path = option("Folder to write.", r.FOLDER, "--out", default="report")
    like: Path | None = option(
        "Your sizes, TOML: batch, length, heads, width, dtype, setting, mechanism, baseline, task "
        "(default: the papers' size).",
        r.FILE,
        "--like",
    )
    jobs: int = option("Notebooks at a time (0: one per core).", r.JOBS, "--jobs", default="0")
    docs: bool = switch(
        "Write docs/results and the README's table of this clone instead, from the published "
        "records.",
        "--docs",
    )
    check: bool = switch("With --docs: write nothing, exit code 1 if one is stale.", "--check")

    def __post_init__(self) -> None:
        """Refuse what can't be together."""
        if self.check and not self.docs:
            raise UsageError("--check is for --docs; expected attnbench report --docs --check")
        if self.docs and self.like is not None:
            raise UsageError("--like is of your own report; leave it out beside --docs")


@dataclass(frozen=True, kw_only=True)
class ClaimsOptions(JournalFolder, JsonOutput):
    """Every published claim with its verdict: reproduced, not reproduced, undecided, not testable.

    From the journal's records, and for audits from the papers' printed numbers alone; without a
    journal from the records published with attnbench. Exit code 1 if an exact claim (equality,
    numbers of weights and heads) fails.
    """


@dataclass(frozen=True, kw_only=True)
class DataOptions(JsonOutput):
    """Which corpora, and where their files are."""

    names: tuple[str, ...] = argument("All of them without any.", TEXT, "[CORPUS]...", kind="many")
    data: str | None = option("Corpora (default: $ATTNBENCH_DATA).", r.PLACE, "--data", shown="DIR")


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(Where, JsonOutput):
    """Can this machine measure? Driver, compilers, a checked launch, folders, room, quiet.

    Every line says what to do where something is missing. Exit code 1: what was asked for can't be
    measured here.
    """

    data: str | None = option("Corpora (default: $ATTNBENCH_DATA).", r.PLACE, "--data", shown="DIR")


@dataclass(frozen=True, kw_only=True)
class DataListOptions(DataOptions):
    """List corpora: what they are, their tasks, sizes, licences, sources, and files."""


@dataclass(frozen=True, kw_only=True)
class DataCheckOptions(DataOptions):
    """Compare the files here with the checksums of the corpora.

    What counts is the content: a file that was unpacked or packed again is right. Exit code 1: a
    file is wrong, or one of a corpus that was asked for by name is missing; 2: nothing is there.
    """
