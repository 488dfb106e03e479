"""The list of commands, and how their mistakes and exit codes reach the shell."""

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
    DataCheckOptions,
    DataListOptions,
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


COMMANDS = (
    (app, "list", ListOptions, "harness.cli.list_:run_list"),
    (app, "explain", ExplainOptions, "harness.cli.explain:run_explain"),
    (app, "verify", VerifyOptions, "harness.cli.verify:run_verify"),
    (app, "bench", BenchOptions, "harness.cli.bench:run_bench"),
    (app, "frontier", FrontierOptions, "harness.cli.frontier:run_frontier"),
    (app, "diff", DiffOptions, "harness.cli.diff:run_diff"),
    (app, "train", TrainOptions, "harness.cli.train:run_train"),
    (app, "compare", CompareOptions, "harness.cli.comparing:run_compare"),
    (app, "plan", PlanOptions, "harness.cli.plan:run_plan"),
    (app, "sweep", SweepOptions, "harness.cli.sweep:run_sweep"),
    (app, "report", ReportOptions, "harness.cli.report:run_report"),
    (app, "claims", ClaimsOptions, "harness.cli.claims:run_claims"),
    (data, "list", DataListOptions, "harness.cli.data:run_list"),
    (data, "check", DataCheckOptions, "harness.cli.data:run_check"),
)
"""Where a command stands, its name, its options (whose docstring is the help), who does it."""
for place, name, options, run_command in COMMANDS:
    place.command(name)(command(options, run_command))


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
