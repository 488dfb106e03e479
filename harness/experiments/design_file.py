"""A comparison that is declared in a file, ``plans/*.toml``, before there are results::

    question = "Is MTSA better than multi-head attention on TREC's question types?"
    models = ["mtsa"]
    baseline = "multi_head"
    tasks = ["trec"]
    seeds = 18                             # or which: [3, 7, 11]
    margin = ["1%"]
    family = "one comparison"
    stopping = "all 18 pairs, then the verdict; none is looked at before"
    void = ["failed runs"]
    hours = 1.0

``attnbench compare --plan plans/trec.toml`` makes it. Data, device and journal are the command's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.sweep import read_toml, seeds_of
from harness.experiments.warnings import VOIDS
from harness.measure.device import git
from harness.options.declare import declared
from harness.options.train import CompareOptions

SAID = ("question", "family", "stopping")
"""What a reader is told: texts, each needed."""
ASKED = ("models", "baseline", "tasks", "seeds", "margin", "recipe", "match", "unpaired", "vectors")
"""What is compared, as the options of ``compare`` have it."""
KEYS = (*SAID, *ASKED, "void", "hours")
_OPTIONS = {"models": "names", "tasks": "task"}
"""Keys whose option has another name."""
_NEEDED = (*SAID, "models", "tasks", "seeds", "hours")


def planned(options: CompareOptions) -> tuple[CompareOptions, dict[str, Any]]:
    """What a command's design file asks for, and what records tell of the file.

    Returns
    -------
    options : CompareOptions
    plan : dict
        ``file``, ``sha256``, ``committed`` (the commit that has it as it is, or empty), ``hours``,
        ``void``, and the texts of `SAID`.

    Raises
    ------
    UsageError
        If the file can't be read, lacks something, or says what can't be; or if the command says
        beside it what only the file may say.
    """
    path = options.plan
    assert path is not None
    content, found = _read(path)
    changed: dict[str, Any] = {}
    of_field, unsaid = dict(declared(CompareOptions)), CompareOptions()
    for name in (*ASKED, "all", "choose"):
        field = _OPTIONS.get(name, name)
        if getattr(options, field) != getattr(unsaid, field):
            raise UsageError(f"{of_field[field].name} beside {path}: only the file may say it")
        if name in found:
            changed[field] = _value(path, name, found[name], of_field[field])
    told = {
        "file": path.name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "committed": _commit(path),
        **{name: str(found[name]) for name in SAID},
        "hours": float(found["hours"]),
        "void": list(found.get("void", [])),
    }
    return replace(options, **changed), told


def _read(path: Path) -> tuple[bytes, Mapping[str, Any]]:
    content, found = read_toml(path, "design")
    for name in found:
        if name not in KEYS:
            raise UsageError(f"{path}: unknown key {name!r}; a design has {', '.join(KEYS)}")
    for name in _NEEDED:
        if name not in found:
            raise UsageError(f"{path}: no {name}; a design has {', '.join(_NEEDED)}")
    for name in SAID:
        if not (isinstance(found[name], str) and found[name].strip()):
            raise UsageError(f"{path}: {name} = {found[name]!r}; expected a text")
    hours = found["hours"]
    if type(hours) not in (int, float) or not 0 < hours < 1e6:
        raise UsageError(f"{path}: hours = {hours!r}; expected how many the runs may take, e.g. 2")
    void = found.get("void", [])
    if not (isinstance(void, list) and all(name in VOIDS for name in void)):
        raise UsageError(f"{path}: void = {void!r}; expected some of {', '.join(VOIDS)}")
    return content, found


def _value(path: Path, name: str, given: Any, option: Any) -> Any:
    """What is given under a key, read as the option reads its texts."""
    texts = given if isinstance(given, list) else [given]
    if option.kind == "flag":
        if type(given) is not bool:
            raise UsageError(f"{path}: {name} = {given!r}; expected true or false")
        return given
    if name == "seeds":
        return seeds_of(path, given)
    if any(isinstance(text, list | dict | bool) for text in texts) or not texts:
        raise UsageError(f"{path}: {name} = {given!r}; expected {option.reader.expected}")
    try:
        read = tuple(option.reader.read(str(text)) for text in texts)
    except ValueError:
        expected = option.reader.expected
        raise UsageError(f"{path}: {name} = {given!r}; expected {expected}") from None
    if option.kind == "many":
        return read
    if len(read) > 1:
        raise UsageError(f"{path}: {name} = {given!r}; expected one")
    return read[0]


def _commit(path: Path) -> str:
    """The last commit that changed a file, if the file is as that left it; else empty."""
    folder = path.resolve().parent
    if git(folder, "status", "--porcelain", "--", path.name) != "":
        return ""
    return git(folder, "log", "-1", "--format=%H", "--", path.name) or ""
