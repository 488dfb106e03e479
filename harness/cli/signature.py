"""Commands of typer from declared options."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from harness.options.declare import Option, declared, read

TYPES: dict[str, Any] = {
    "one": str | None,
    "many": list[str] | None,
    "pair": tuple[str, str] | None,
    "flag": bool,
}


def command(options: type, run: str) -> Callable[..., None]:
    """What typer calls for a command: it reads the options and ends with the exit code.

    Parameters
    ----------
    options : type
        Declared options; the docstring is the command's help.
    run : str
        Function from options to an exit code, ``package.module:function``; imported when called.
    """

    def call(**given: Any) -> None:
        asked: Any = read(options, given)
        module, _, function = run.partition(":")
        raise typer.Exit(getattr(importlib.import_module(module), function)(asked))

    call.__doc__ = options.__doc__
    parameters = [_parameter(field, one) for field, one in declared(options)]
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


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
