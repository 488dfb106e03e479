"""Spans of tagged words: where each begins and ends, and of which type it is."""

from __future__ import annotations

from collections.abc import Sequence

Span = tuple[str, int, int]
"""Type, first word, word behind the last."""


def spans_of(tags: Sequence[str]) -> set[Span]:
    """Spans of BIO tags, by the rules of CoNLL-2000's ``conlleval``.

    A span begins with B-X, and with an I-X that does not go on: behind O, or behind another type.

    Parameters
    ----------
    tags : sequence of str
        ``O``, ``B-X`` and ``I-X``; a tag without a hyphen is O.

    Examples
    --------
    >>> sorted(spans_of(["B-a", "I-a", "I-b", "O", "I-a", "B-a"]))
    [('a', 0, 2), ('a', 4, 5), ('a', 5, 6), ('b', 2, 3)]
    """
    found: set[Span] = set()
    kind, first = "", 0
    for place, tag in enumerate([*tags, "O"]):
        how, _, own = tag.partition("-")
        if kind and (how != "I" or own != kind):
            found.add((kind, first, place))
            kind = ""
        if own and not kind:
            kind, first = own, place
    return found


def has_spans(names: Sequence[str]) -> bool:
    """Whether these are names of BIO tags."""
    return any(name.startswith("B-") for name in names)
