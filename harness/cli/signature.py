"""Commands of typer from declared options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from harness.options.declare import Option, declared, read

T = TypeVar("T")
TYPES: dict[str, Any] = {
    "one": str | None,
    "many": list[str] | None,
    "pair": tuple[str, str] | None,
    "flag": bool,
}


def command(app: typer.Typer, name: str, options: type[T]) -> Callable[[Callable[[T], int]], Any]:
    """Make a command of a function from options to an exit code; its docstring is the help."""

    def register(run: Callable[[T], int]) -> Callable[[T], int]:
        def call(**given: Any) -> None:
            raise typer.Exit(run(read(options, given)))

        call.__doc__ = run.__doc__
        parameters = [_parameter(field, one) for field, one in declared(options)]
        # Those of arguments first that must be given; all are keywords.
        call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        app.command(name)(call)
        return run

    return register


def _parameter(name: str, one: Option) -> inspect.Parameter:
    annotation = list[str] if one.required and one.kind == "many" else TYPES[one.kind]
    if one.required and one.kind == "one":
        annotation = str
    about: Any
    if not one.flag:
        about = typer.Argument(metavar=one.shown, help=one.help)
    elif one.kind == "flag":
        about = typer.Option(one.flag, help=one.help)
    else:
        about = typer.Option(one.flag, metavar=one.shown, help=one.help)
    default = inspect.Parameter.empty if one.required else one.default
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[annotation, about],
    )
