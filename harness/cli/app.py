"""The commands: each reads its typed options, calls one function, and gives its exit code."""

from __future__ import annotations

import sys
from importlib import metadata
from platform import python_version
from typing import Annotated

import typer

from harness.cli.signature import command
from harness.errors import UsageError
from harness.options import (
    BenchOptions,
    ClaimsOptions,
    CompareOptions,
    DataOptions,
    DiffOptions,
    ExplainOptions,
    FrontierOptions,
    ListOptions,
    PlanOptions,
    ReportOptions,
    SweepOptions,
    TrainOptions,
    VerifyOptions,
)

app = typer.Typer(
    name="attnbench",
    help="Is this self-attention mechanism what its paper says, and should I use it at my size?\n\n"
    "[bold]attnbench bench[/] verifies and measures on whatever device is there; "
    "[bold]attnbench verify[/] checks against independent oracles; "
    "[bold]attnbench compare[/] trains models and judges them, "
    "[bold]attnbench sweep[/] trains without judging; "
    "[bold]attnbench plan[/] says how many seeds that takes; "
    "[bold]attnbench report[/] draws what was recorded; "
    "[bold]attnbench claims[/] gives the verdict on every published claim; "
    "[bold]attnbench list[/] shows what there is, [bold]attnbench explain[/] what it computes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)
data = typer.Typer(
    help="Which corpora exist, where their files are expected, and whether yours are right.",
    no_args_is_help=True,
)
app.add_typer(data, name="data")


def _version(asked: bool) -> None:
    if asked:
        versions = [f"{name} {metadata.version(name)}" for name in ("attnbench", "torch")]
        typer.echo(", ".join([*versions, f"Python {python_version()}"]))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Versions of attnbench, torch and Python.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass


@command(app, "list", ListOptions)
def _list(options: ListOptions) -> int:
    """List mechanisms, their implementations and where they come from."""
    from harness.cli.list_ import run_list

    return run_list(options)


@command(app, "explain", ExplainOptions)
def _explain(options: ExplainOptions) -> int:
    """Equations, source and configurations; where papers and code differ; what is odd."""
    from harness.cli.explain import run_explain

    return run_explain(options)


@command(app, "verify", VerifyOptions)
def _verify(options: VerifyOptions) -> int:
    """Check implementations against independent float64 oracles, or golden vectors.

    Values and gradients of input and weights, over dtypes, masks, padding and edge cases. The
    error may be at most twice that of a plain implementation in the same dtype. Then what the
    papers claim exactly: Algorithm 1 = eq. 13, numbers of weights and heads. All of it is recorded.
    Exit code 1 when anything is over budget or an exact claim fails.
    """
    from harness.cli.verify import run_verify

    return run_verify(options)


@command(app, "bench", BenchOptions)
def _bench(options: BenchOptions) -> int:
    """Verify, then measure time and peak memory, and compare with the baseline.

    Killed and started again it goes on where it was. What follows '--' goes to pytest, for
    example [bold]-- --benchmark-json out.json[/] or [bold]-- -k N256[/].
    """
    from harness.cli.bench import run_bench

    return run_bench(options)


@command(app, "frontier", FrontierOptions)
def _frontier(options: FrontierOptions) -> int:
    """Find the longest sequence each mechanism can train on within memory and time.

    By bisection, each probe in a process of its own that may run out of memory without harm.
    Killed and started again it goes on where it was.
    """
    from harness.cli.frontier import run_frontier

    return run_frontier(options)


@command(app, "diff", DiffOptions)
def _diff(options: DiffOptions) -> int:
    """Measure two git revisions now, side by side: which cases became slower or faster?

    Only the revisions' mechanisms differ; clock and plan are those of this attnbench, and the
    environment too, unless the constraints differ. BASE runs twice: nothing below that noise is
    claimed. It says nothing of correctness: attnbench verify does.

    Given two journal folders instead, only ratios to the baseline are compared. Exit code 1: a
    case is slower, or fails in HEAD alone; 3: nothing comparable was measured.
    """
    from harness.cli.diff import run_diff

    return run_diff(options)


@command(app, "train", TrainOptions)
def _train(options: TrainOptions) -> int:
    """Train one model with one seed and test it once, at the epoch that was best on dev.

    The same model, task, recipe and seed give the same record, which is kept and not trained again.
    """
    from harness.cli.train import run_train

    return run_train(options)


@command(app, "compare", CompareOptions)
def _compare(options: CompareOptions) -> int:
    """Train models, paired by seed, and say better, worse, practically equal or undecided.

    Two, or many against a baseline ([bold]--all multi_head[/], or [bold]compare mtsa disa bi_lstm
    --baseline multi_head[/]): these are declared together, and judged together by Holm's method.
    Killed and started again it goes on where it was. Without data it compares on a synthetic task;
    [bold]--task trec --data DIR[/] is real text.
    """
    from harness.cli.comparing import run_compare

    return run_compare(options)


@command(app, "plan", PlanOptions)
def _plan(options: PlanOptions) -> int:
    """Say how many seeds a comparison needs, before it is made.

    By the exact power of the t-test. The deviation is yours, or is estimated from a journal:
    [bold]attnbench plan --effect 0.5% --from results --models mtsa multi_head --task trec[/].
    """
    from harness.cli.plan import run_plan

    return run_plan(options)


@command(app, "sweep", SweepOptions)
def _sweep(options: SweepOptions) -> int:
    """Train many models on many tasks with many seeds (or folds): all runs that are missing.

    Task by task, and for each seed all models, so that a sweep that is stopped has pairs. Killed
    and started again it does what is missing; two at once on one journal share the work. No metric
    is shown: [bold]attnbench compare[/] on the same journal finds the runs and judges.
    Exit code 1: a run failed; what failed is listed with the command that repeats it.
    """
    from harness.cli.sweep import run_sweep

    return run_sweep(options)


@command(app, "report", ReportOptions)
def _report(options: ReportOptions) -> int:
    """Execute the notebooks on what was measured and write one folder to open in a browser.

    Its first page says whether to use the mechanism at your size. With an empty journal the
    records published with attnbench are shown.
    """
    from harness.cli.report import run_report

    return run_report(options)


@command(app, "claims", ClaimsOptions)
def _claims(options: ClaimsOptions) -> int:
    """Every published claim with its verdict: reproduced, not reproduced, undecided, not testable.

    From the journal's records, and for audits from the papers' printed numbers alone; without a
    journal from the records published with attnbench. Exit code 1 if an exact claim (equality,
    numbers of weights and heads) fails.
    """
    from harness.cli.claims import run_claims

    return run_claims(options)


@command(data, "list", DataOptions)
def _data_list(options: DataOptions) -> int:
    """List corpora: what they are, their tasks, sizes, licences, sources, and files."""
    from harness.cli.data import run_list

    return run_list(options)


@command(data, "check", DataOptions)
def _data_check(options: DataOptions) -> int:
    """Compare the files here with the checksums of the corpora.

    What counts is the content: a file that was unpacked or packed again is right. Exit code 1: a
    file is wrong, or one of a corpus that was asked for by name is missing; 2: nothing is there.
    """
    from harness.cli.data import run_check

    return run_check(options)


_ClickError: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of all usage errors; newer typer carries its own click, so it is not click's."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 fine, 1 the answer is no, 2 usage or bad input."""
    try:
        result = app(args=arguments, standalone_mode=False)
    except UsageError as error:
        print(f"attnbench: {error}", file=sys.stderr)
        return 2
    except _ClickError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if message:  # none when only the help was shown
            print(f"attnbench: {message.rstrip('.')}; see --help", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("attnbench: stopped", file=sys.stderr)
        return 130
    if result == 130:  # newer typer turns ctrl-C into its exit code
        print("attnbench: stopped", file=sys.stderr)
    return result if isinstance(result, int) else 0
