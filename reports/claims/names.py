"""Names in claims: which cases and models of a journal they stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Name:
    """``mechanism[.implementation][[option=value,...]][@heads]``.

    Attributes
    ----------
    mechanism : str
    implementation : str
        Empty: any.
    options : frozenset of (str, str)
        Exactly these; values as lower-case texts.
    heads : int or None
        None: any.
    """

    mechanism: str
    implementation: str
    options: frozenset[tuple[str, str]]
    heads: int | None

    def fits(self, text: str, heads: int | None = None) -> bool:
        """Whether a recorded name (``mtsa.algorithm1[a=1]``) is one of these."""
        other = parse(text)
        return (
            self.mechanism == other.mechanism
            and self.implementation in ("", other.implementation)
            and self.options == other.options
            and (self.heads is None or heads is None or self.heads == heads)
        )


def parse(text: str) -> Name:
    """Read a name; one that a record holds is never refused."""
    rest, _, heads = text.partition("@") if "@" in text else (text, "", "")
    plain, _, options = rest.partition("[")
    mechanism, _, implementation = plain.partition(".")
    pairs = (part.partition("=") for part in options.rstrip("]").split(",") if part)
    return Name(
        mechanism,
        implementation,
        frozenset((name.strip(), value.strip().lower()) for name, _, value in pairs),
        int(heads) if heads.isdigit() else None,
    )


def alternatives(given: str | Sequence[str]) -> list[str]:
    """One name or several, the preferred one first."""
    return [given] if isinstance(given, str) else list(given)


def same_form(first: str, second: str, asked: str | Sequence[str]) -> bool:
    """Whether the second may stand beside the first, by what the first's side asks for.

    Not where it is another form of the mechanism: an ablation of the paper's form is compared with
    that form, not with the released one.
    """
    other = parse(second).mechanism
    forms = {parse(name).mechanism for name in alternatives(asked)}
    return other not in forms or other == parse(first).mechanism


def first_fitting(given: str | Sequence[str], recorded: Iterable[str]) -> list[str]:
    """Recorded names that a claim's names stand for, the preferred ones first."""
    known = list(dict.fromkeys(recorded))
    return list(
        dict.fromkeys(
            name for text in alternatives(given) for name in known if parse(text).fits(name)
        )
    )
