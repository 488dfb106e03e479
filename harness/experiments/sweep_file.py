"""Sweeps from a TOML file.

The keys of the file are what a sweep crosses; with ``[[part]]`` tables each part is a sweep of its
own, one after the other, for which the keys above them hold where it has none of its own (a part's
``recipe`` comes on top of the one above)::

    models = ["mtsa", "multi_head", "mtsa[scale_t=identity]"]
    seeds = 5                       # or which: [3, 7, 11]
    recipe = ["epochs=10", "mtsa:rate=2e-3"]

    [[part]]
    tasks = ["trec", "sick_relatedness"]

    [[part]]
    tasks = ["cr"]
    folds = true
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.replicates import LARGEST_SEED, MOST_SEEDS
from harness.experiments.sweep import Part

KEYS = ("models", "tasks", "seeds", "folds", "recipe", "choose", "vectors")
"""Of a part."""
_LISTS = {"tasks": "trec", "recipe": "epochs=10", "with": "my_package.attention:Mean"}
_EXAMPLES = (("folds", bool, "true"), ("choose", str, '"dev"'), ("vectors", str, '"none"'))


def read_file(path: Path) -> tuple[list[Part], list[str]]:
    """Parts of a sweep, and what ``with`` names (mechanisms of one's own).

    Raises
    ------
    UsageError
        If the file can't be read, or a key or a value is not one of a sweep.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"can't read the sweep {path}: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    given = _texts(path, "with", content.pop("with", []))
    tables = content.pop("part", None)
    if tables is None:
        return [_part(path, content)], given
    if not (isinstance(tables, list) and tables and all(isinstance(t, dict) for t in tables)):
        raise UsageError(f"{path}: part is no table of its own; write [[part]]")
    # The last of several settings of one name counts.
    above = _texts(path, "recipe", content.pop("recipe", []))
    return [
        _part(path, {**content, **t, "recipe": above + _texts(path, "recipe", t.get("recipe", []))})
        for t in tables
    ], given


def _part(path: Path, table: Mapping[str, Any]) -> Part:
    unknown = [name for name in table if name not in KEYS]
    if unknown:
        raise UsageError(
            f"{path}: unknown key {unknown[0]!r}; a sweep has {', '.join(KEYS)}, with, and "
            "[[part]] tables"
        )
    for name in ("models", "tasks"):
        if name not in table:
            raise UsageError(f"{path}: no {name}; give {name} = [...]")
    for name, kind, example in _EXAMPLES:
        if name in table and not isinstance(table[name], kind):
            raise UsageError(f"{path}: {name} = {table[name]!r}; expected e.g. {example}")
    recipe = _texts(path, "recipe", table.get("recipe", []))
    if "choose" in table:
        recipe = [*recipe, f"choose={table['choose']}"]
    return Part(
        models=tuple(_texts(path, "models", table["models"])),
        tasks=tuple(_texts(path, "tasks", table["tasks"])),
        seeds=_seeds(path, table["seeds"]) if "seeds" in table else None,
        folds=table.get("folds", False),
        recipe=tuple(recipe),
        vectors=table.get("vectors"),
    )


def _texts(path: Path, name: str, value: Any) -> list[str]:
    if not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        example = _LISTS.get(name, "mtsa")
        raise UsageError(
            f'{path}: {name} = {value!r}; expected a list of texts, e.g. ["{example}"]'
        )
    return value


def _seeds(path: Path, value: Any) -> tuple[int, ...]:
    count = type(value) is int and 1 <= value <= MOST_SEEDS
    which = isinstance(value, list) and all(
        type(seed) is int and 0 <= seed <= LARGEST_SEED for seed in value
    )
    if not (count or which):
        raise UsageError(
            f"{path}: seeds = {value!r}; expected how many (at most {MOST_SEEDS}), or which, "
            "e.g. [3, 7]"
        )
    return tuple(range(value)) if count else tuple(value)
