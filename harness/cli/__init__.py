"""The command line. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.errors import UsageError

app = typer.Typer(
    name="attnbench",
    help="Is this self-attention mechanism what its paper says, and should I use it at my size?\n\n"
    "[bold]attnbench bench[/] verifies and measures on whatever device is there; "
    "[bold]attnbench verify[/] checks against independent oracles; "
    "[bold]attnbench list[/] shows what there is.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

GIVEN = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="PKG.MODULE:FACTORY", help="A mechanism of your own; may be repeated."
    ),
]
JSON = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")
]
OPTION = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="For the mechanism's factory; may be repeated."),
]
DEVICE = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]
JOURNAL = Annotated[str, typer.Option(help="Folder of the records.")]


@app.command("list")
def list_(given: GIVEN = None, json_file: JSON = None) -> None:
    """List mechanisms, their implementations and where they come from."""
    from harness.cli.listing import show

    show(given or [], json_file)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Mechanisms or mechanism.implementation; all without any."),
    ] = None,
    dtypes: Annotated[str, typer.Option(help="f64, f32, bf16, f16, joined by commas.")] = "",
    device: DEVICE = "auto",
    golden: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Check the golden .npz files at or below DIR instead."),
    ] = None,
    given: GIVEN = None,
    option: OPTION = None,
    jobs: Annotated[int, typer.Option(help="Children at a time (0: one per core).")] = 0,
    json_file: JSON = None,
) -> None:
    """Check implementations against independent float64 oracles, or golden vectors.

    Values and gradients of input and weights, over dtypes, masks, padding and edge cases. The
    error may be at most twice that of a plain implementation in the same dtype. Exit code 1 when
    anything is over budget.
    """
    from harness.cli.verifying import verify_golden, verify_oracles

    if golden is not None:
        code = verify_golden(golden, names or [], given or [], json_file)
    else:
        code = verify_oracles(
            names or [], dtypes, device, given or [], option or [], jobs, json_file
        )
    raise typer.Exit(code)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def bench(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(help="quick (default), full or paper."),
    ] = None,
    journal: JOURNAL = "results",
    device: DEVICE = "auto",
    given: GIVEN = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this mechanism or mechanism.implementation, @H for its heads, beside the "
            "baseline; may be repeated.",
        ),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, e.g. 16,64,256.")] = "",
    batch: Annotated[int | None, typer.Option(help="Batch size.")] = None,
    width: Annotated[str, typer.Option(help="Width in and out, e.g. 300x600.")] = "",
    heads: Annotated[int | None, typer.Option(help="Number of heads.")] = None,
    dtypes: Annotated[str, typer.Option(help="f64, f32, bf16, f16, joined by commas.")] = "",
    passes: Annotated[str, typer.Option(help="forward, training, joined by a comma.")] = "",
    settings: Annotated[
        str,
        typer.Option(
            help="eager, 1-thread, compiled, graphed, tf32, ...: joined inside one case by '+', "
            "between cases by ','."
        ),
    ] = "",
    option: OPTION = None,
    blocks: Annotated[
        int | None, typer.Option(help="Fresh interpreters (default: the profile's).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and stop.")] = False,
    json_file: JSON = None,
) -> None:
    """Verify, then measure time and peak memory, and compare with the baseline.

    Killed and started again it goes on where it was. What follows '--' goes to pytest, for
    example [bold]-- --benchmark-json out.json[/] or [bold]-- -k N256[/].
    """
    from harness.cli.benching import run_bench

    values = {
        "profile": profile, "journal": journal, "device": device, "given": given or [],
        "only": only or [], "lengths": lengths, "batch": batch, "width": width, "heads": heads,
        "dtypes": dtypes, "passes": passes, "settings": settings, "option": option or [],
        "blocks": blocks,
    }  # fmt: skip
    raise typer.Exit(run_bench(values, list(context.args), dry_run, json_file))


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
