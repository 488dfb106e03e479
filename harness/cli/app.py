"""The list of commands, made from their declared options; how mistakes reach the shell."""

from __future__ import annotations

import errno
import importlib
import inspect
import io
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib import metadata
from platform import python_version
from typing import Annotated, Any

import typer

from harness.errors import NotVerified, UsageError
from harness.options import measure, train
from harness.options.declare import Option, declared, read

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
    "[bold]attnbench doctor[/] says whether this machine can measure; "
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


COMMANDS: dict[str, tuple[type, str]] = {
    "list": (measure.ListOptions, "list_:run_list"),
    "explain": (measure.ExplainOptions, "explain:run_explain"),
    "verify": (measure.VerifyOptions, "verify:run_verify"),
    "bench": (measure.BenchOptions, "bench:run_bench"),
    "frontier": (measure.FrontierOptions, "frontier:run_frontier"),
    "diff": (measure.DiffOptions, "diff:run_diff"),
    "train": (train.TrainOptions, "train:run_train"),
    "compare": (train.CompareOptions, "compare:run_compare"),
    "plan": (train.PlanOptions, "plan:run_plan"),
    "sweep": (train.SweepOptions, "sweep:run_sweep"),
    "report": (measure.ReportOptions, "report:run_report"),
    "claims": (measure.ClaimsOptions, "claims:run_claims"),
    "doctor": (measure.DoctorOptions, "doctor:run_doctor"),
    "data list": (measure.DataListOptions, "data:run_list"),
    "data check": (measure.DataCheckOptions, "data:run_check"),
}
"""By name: its options, whose docstring is the help, and the function of `harness.cli` for them."""
TYPES: dict[str, Any] = {"one": str, "many": list[str], "pair": tuple[str, str], "flag": bool}


def command(options: type, run: str) -> Callable[..., None]:
    """What typer calls for a command of `COMMANDS`: it reads the options, ends with the exit code.

    The function that does it is imported when it is called.
    """

    def call(**given: Any) -> None:
        asked: Any = read(options, given)
        _tell_replaced(getattr(asked, "given", ()))
        module, _, function = run.partition(":")
        raise typer.Exit(getattr(importlib.import_module(f"harness.cli.{module}"), function)(asked))

    call.__doc__ = options.__doc__
    parameters = [_parameter(field, one) for field, one in declared(options)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _tell_replaced(given: Sequence[str]) -> None:
    """A line for each of ``--with`` that has the name of another mechanism: it is not that."""
    if not given:
        return
    from harness.registry import Registry  # --help needs none

    for name in Registry(given).replaced:
        print(f"attnbench: {name} is what --with gives, not attnbench's own", file=sys.stderr)


def _parameter(name: str, one: Option) -> inspect.Parameter:
    given = TYPES[one.kind] if one.required or one.kind == "flag" else TYPES[one.kind] | None
    shown: dict[str, Any] = {"metavar": one.shown or None, "help": one.help}
    about = typer.Option(one.flag, **shown) if one.flag else typer.Argument(**shown)
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if one.required else one.default,
        annotation=Annotated[given, about],
    )


for path, (options, run_command) in COMMANDS.items():
    group, _, name = path.rpartition(" ")
    (data if group else app).command(name)(command(options, run_command))

_ClickError: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of all usage errors; newer typer carries its own click, so it is not click's."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 fine, 1 the answer is no, 2 usage or bad input.

    130: it was stopped, by ctrl-C or, as `timeout` and cluster schedulers do, by SIGTERM.
    """
    if threading.current_thread() is threading.main_thread():
        # What was begun is put away as after ctrl-C: nothing goes on or stays behind.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a sign that a terminal lacks loses no result
    try:
        result = app(args=arguments, standalone_mode=False)
    except (UsageError, NotVerified) as error:
        print(f"attnbench: {' '.join(str(error).splitlines())}", file=sys.stderr)
        return 1 if isinstance(error, NotVerified) else 2
    except _ClickError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if message:  # none when only the help was shown
            print(f"attnbench: {message.rstrip('.')}; see --help", file=sys.stderr)
        return 2
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"attnbench: can't write: {error.strerror}; free some space", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("attnbench: stopped", file=sys.stderr)
        return 130
    if result == 130:  # newer typer turns ctrl-C into its exit code
        print("attnbench: stopped", file=sys.stderr)
    return result if isinstance(result, int) else 0
