"""How an option is declared: once, as a field of a frozen dataclass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from harness.errors import UsageError

T = TypeVar("T")
Kind = Literal["one", "many", "pair", "flag"]
DECLARED = "declared"
"""Key of a field's metadata."""


class Expected(ValueError):
    """A text that can't be read, where more can be said than what its reader expects."""


@dataclass(frozen=True)
class Reader:
    """From the text that a user gave to a value."""

    # Raises ValueError where the text can't be read, `Expected` to say what is in its place.
    read: Callable[[str], Any]
    expected: str  # what a text must be: ``a positive whole number``
    shown: str = "<str>"  # how ``--help`` names such a text


@dataclass(frozen=True)
class Option:
    """What is said of an option, once."""

    help: str
    reader: Reader  # of its text, or of each of its texts
    flag: str  # as it is typed, ``--dry-run``, ``--paired/--unpaired``; empty for an argument
    name: str  # what a message calls it: the flag, or an argument's word in capitals
    shown: str  # how ``--help`` names the value
    kind: Kind
    default: str | bool | None  # what ``--help`` shows as default
    required: bool

    def value(self, given: Any) -> Any:
        """The value of what was given: a text, or texts where there may be several.

        Raises
        ------
        UsageError
            Naming the option, what was given and what is expected.
        """
        if self.kind == "flag":
            return bool(given)
        if self.kind == "one":
            return self._read(given)
        return tuple(self._read(text) for text in given)

    def _read(self, text: str) -> Any:
        try:
            return self.reader.read(text)
        except ValueError as error:
            expected = error if isinstance(error, Expected) else self.reader.expected
            raise UsageError(f"{self.name}: given {text!r}; expected {expected}") from None


def option(
    help: str,
    reader: Reader,
    flag: str,
    *,
    shown: str = "",
    kind: Kind = "one",
    default: str | None = None,
    absent: Any = None,
    required: bool = False,
) -> Any:
    """Declare an option.

    Parameters
    ----------
    default : str, optional
        As it would be typed, and is shown by ``--help``.
    absent : object, optional
        The value where there is neither a text nor a default; of many an empty tuple.
    """
    one = Option(help, reader, flag, flag, shown or reader.shown, kind, default, required)
    return _field(one, absent)


def switch(help: str, flag: str, *, default: bool = False) -> Any:
    """Declare an option without a value."""
    one = Option(help, TEXT, flag, flag, "", "flag", default, False)
    return field(default=default, metadata={DECLARED: one})


def argument(
    help: str, reader: Reader, name: str, *, kind: Kind = "one", required: bool = False
) -> Any:
    """Declare what is given without an option's name."""
    return _field(Option(help, reader, "", name, name, kind, None, required), None)


def _field(declared: Option, absent: Any) -> Any:
    metadata = {DECLARED: declared}
    if declared.required:
        return field(metadata=metadata)
    if (text := declared.default) is not None:
        return field(default_factory=lambda: declared.value(text), metadata=metadata)
    return field(default=() if declared.kind == "many" else absent, metadata=metadata)


TEXT = Reader(str, "a text")


def declared(command: type) -> Iterator[tuple[str, Option]]:
    """Fields of a command with what is declared of them: its own first, then those it shares."""
    own = {f.name: f.metadata[DECLARED] for f in fields(command) if DECLARED in f.metadata}
    order = [n for cls in command.__mro__ for n in getattr(cls, "__annotations__", {}) if n in own]
    for name in dict.fromkeys(order):
        yield name, own[name]


def read(command: type[T], given: Mapping[str, Any]) -> T:
    """Options from what a user typed, by field; what is None or missing is left at its default.

    Raises
    ------
    UsageError
        For a text that can't be read, or options that do not go together.
    """
    values = {
        name: one.value(given[name])
        for name, one in declared(command)
        if given.get(name) is not None
    }
    return command(**values)


def options_for_pytest(command: type) -> Iterator[tuple[str, dict[str, Any]]]:
    """Flags with the keywords of pytest's ``addoption``; switches and arguments are left out."""
    for name, one in declared(command):
        if one.flag and one.kind in ("one", "many"):
            shown = "" if one.default is None else f" [default: {one.default}]"
            keywords: dict[str, Any] = {"dest": name, "help": one.help + shown}
            keywords["metavar"] = one.shown.strip("<>").upper()
            keywords["action"] = "append" if one.kind == "many" else "store"
            yield one.flag, keywords
