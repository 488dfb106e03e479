"""A comparison as a user asks for it; as the family that is declared; and that it was seen.

One may be declared in a file, ``plans/*.toml``, before there are results::

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

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.buildable import NotBuildable, match_parameters, not_buildable
from harness.experiments.conclusion import Conclusion
from harness.experiments.design import Family, Surroundings, make_design, surroundings
from harness.experiments.model import Model, meaning, parse_model, recipes_of
from harness.experiments.queue import trained_elsewhere
from harness.experiments.replicates import SHARE, unit_of
from harness.experiments.sweep import file_told, seeds_of
from harness.experiments.warnings import VOIDS
from harness.json_file import plain, read_toml
from harness.measure.device import device_fingerprint, environment
from harness.options.declare import declared
from harness.options.readers import Amount
from harness.options.train import CompareOptions
from harness.records import journal, schema
from harness.registry import Registry
from harness.train.task import Task, tasks_named
from harness.train.task import task as find_task

BASELINE = "multi_head"
SUBJECT = "mtsa"
SEEDS, FOLD_SEEDS = 5, 1
"""How many seeds unless others are given, without and with folds."""

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
    for name in (*ASKED, "all", "choose", "tiny"):
        field = _OPTIONS.get(name, name)
        if getattr(options, field) != getattr(unsaid, field):
            raise UsageError(f"{of_field[field].name} beside {path}: only the file may say it")
        if name in found:
            changed[field] = _value(path, name, found[name], of_field[field])
    told = {
        **file_told(path, content),
        **{name: str(found[name]) for name in SAID},
        "hours": float(found["hours"]),
        "void": list(found.get("void", [])),
    }
    return replace(options, **changed), told


def _read(path: Path) -> tuple[bytes, Mapping[str, Any]]:
    content, found = read_toml(path, "design")
    if "part" in found:
        raise UsageError(f"{path} is a sweep, which declares nothing; give attnbench sweep {path}")
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


def read_tasks(names: Sequence[str]) -> list[Task]:
    """The tasks; of a name that stands for several, all of them.

    Raises
    ------
    UsageError
        If one is unknown, or there twice.
    """
    tasks = [task for name in names for task in tasks_named(name)]
    known = [task.name for task in tasks]
    if len(set(known)) < len(known):
        raise UsageError(f"--task: given {', '.join(known)}; expected each once")
    return tasks


def read_models(options: CompareOptions, registry: Registry) -> list[Model]:
    """The models, the baseline last, each once by what it is.

    By default MTSA, or what ``--with`` gave, and multi-head attention.

    Raises
    ------
    UsageError
        If there are more than two and no baseline is named, or one is unknown.
    """
    names, own = options.names, registry.given_names
    tokens = any(task.asks_tokens for task in read_tasks(options.tasks))
    if options.all is not None:
        baseline = parse_model(options.all, registry)
        others = [parse_model(name, registry) for name in registry.mechanisms]
        same = meaning(baseline, registry, tokens)
        return [*(m for m in others if meaning(m, registry, tokens) != same), baseline]
    if options.baseline is not None:
        names = (*(names or own or [SUBJECT]), options.baseline)
    elif len(own) > 1 and len(names) < 2 and not {*own} & {*names}:
        raise UsageError(
            f"--with gives {', '.join(own)}; name two of them to compare, or all against one: "
            f"--baseline {BASELINE}"
        )
    elif not names:
        names = (own[0] if own else SUBJECT, BASELINE)
    elif len(names) == 1:
        names = (own[0], names[0]) if own and names[0] not in own else (names[0], BASELINE)
    elif len(names) > 2:
        raise UsageError(
            f"given {len(names)} models; expected two, e.g. compare mtsa multi_head, or all "
            f"against one: --baseline {names[-1]}"
        )
    registry.refuse_unnamed(names)
    models = [parse_model(name, registry) for name in names]
    meant = [meaning(model, registry, tokens) for model in models[:-1]]
    if len(set(meant)) < len(meant):
        raise UsageError(f"given {', '.join(map(str, models[:-1]))}; expected each model once")
    return models


def read_margins(
    given: Sequence[tuple[str, Amount]], tasks: Sequence[Task]
) -> dict[str, float | None]:
    """The margin of each task: ``1%`` for all of them, ``trec:1%`` for one.

    Raises
    ------
    UsageError
        For a task that is not compared, one margin for tasks of unlike metrics, two for one task,
        or one point of accuracy and more.
    """
    found: dict[str, Amount] = {}
    for name, margin in given:
        typed = f"{name}:{margin.text}" if name else margin.text
        if name and name not in {task.name for task in tasks}:
            known = ", ".join(task.name for task in tasks)
            raise UsageError(f"--margin {typed}: {name!r} is not compared; the tasks are {known}")
        if not name and len({task.metric for task in tasks}) > 1:
            raise UsageError(
                f"--margin {typed}: the tasks have different metrics; give one each, e.g. "
                f"--margin {tasks[0].name}:{typed}"
            )
        for task in tasks:
            if name and task.name != name:
                continue
            if task.name in found:
                before = found[task.name].text
                raise UsageError(f"--margin: given {before} and {margin.text} for {task.name}")
            if unit_of(task.metric) is SHARE and margin.value >= 1:
                raise UsageError(
                    f"--margin: given {margin.text}; one point of accuracy is 0.01 or 1%"
                )
            found[task.name] = margin
    return {t.name: found[t.name].value if t.name in found else None for t in tasks}


def places_of(
    tasks: Sequence[Task], registry: Registry, options: CompareOptions
) -> dict[str, Surroundings]:
    """Data and vectors of each task; ``--data`` is for those that read files.

    Raises
    ------
    UsageError
        If none does, and as `surroundings`.
    """
    fingerprint = cache(partial(device_fingerprint, options.device))
    without = replace(options, data=None, vectors=None)
    reading = any(task.files for task in tasks)
    return {
        task.name: surroundings(
            task, registry, options if task.files or not reading else without, fingerprint
        )
        for task in tasks
    }


def declare(
    options: CompareOptions,
    models: Sequence[Model],
    tasks: Sequence[Task],
    margins: Mapping[str, float | None],
    places: Mapping[str, Surroundings],
    plan: Mapping[str, Any] | None = None,
) -> Family:
    """Each model against the last one, on each task; as a design file says, if there is one.

    Such a file goes on where another machine stopped: what the journal has of it from there,
    replicate by replicate, is not trained again.

    Raises
    ------
    UsageError
        For what can't be compared: see `make_design`.
    """
    *others, baseline = models
    designs = []
    read = plan is not None and journal.exists(options.journal)
    found = journal.read(options.journal) if read else journal.Journal()
    for task in tasks:
        around, seeds = places[task.name], options.seeds
        recipes = recipes_of(task, models, options.changes)
        if options.match == "parameters":
            recipes = match_parameters(models, task, recipes, around)
        if seeds is None:
            seeds = tuple(range(FOLD_SEEDS if task.folds else SEEDS))
        sides, elsewhere = list(zip(models, recipes, strict=True)), {}
        if plan is not None:
            elsewhere = trained_elsewhere(found, plan, task, sides, seeds, around)
        designs += [
            make_design(
                [model, baseline],
                task,
                [recipe, recipes[-1]],
                seeds,
                around,
                margins[task.name],
                options.match,
                not options.unpaired,
                elsewhere,
            )
            for model, recipe in zip(others, recipes, strict=False)
        ]
    return Family(tuple(designs), plan)


def left_out(
    models: Sequence[Model],
    tasks: Sequence[Task],
    places: Mapping[str, Surroundings],
    changes: Sequence[str],
) -> dict[Model, NotBuildable]:
    """Those of many models that the recipe of a task can't build, and why.

    Raises
    ------
    UsageError
        If ``--recipe`` changes something of one of them: that would be read by nobody.
    """
    refused: dict[Model, NotBuildable] = {}
    for task in tasks:
        recipes = recipes_of(task, models, changes)
        refused |= not_buildable(models, task, recipes, places[task.name])
    for model, why in refused.items():
        for text in changes:
            if any(text.startswith(f"{name}:") for name in model.names):
                raise UsageError(f"--recipe {text}: {model} is left out: {why.reason}")
    return refused


def refuse_unbuildable(family: Family, places: Mapping[str, Surroundings]) -> None:
    """Refuse a family of which a task's recipe can't build a model.

    Raises
    ------
    NotBuildable
        Of the first one.
    """
    for name in family.tasks:
        recipes = {
            model: recipe
            for d in family.designs
            if d.task.name == name
            for model, recipe in zip(d.models, d.recipes, strict=True)
        }
        refused = not_buildable(
            list(recipes), find_task(name), list(recipes.values()), places[name]
        )
        for why in refused.values():
            raise why


def note_seen(
    conclusion: Conclusion,
    fingerprint: Mapping[str, Any],
    folder: Path,
    records: Sequence[Mapping[str, Any]],
) -> None:
    """Write down that these results have been seen: later seeds are then added after looking."""
    seen: dict[str, Any]
    if conclusion.is_pair:
        (one,) = conclusion.comparisons
        done: Any = one.finished
        difference = None if one.difference is None else plain(asdict(one.difference))
        seen = {"verdict": one.verdict, "sentence": one.sentence, "difference": difference}
    else:
        done = [c.finished for c in conclusion.comparisons]
        designs = [c.key for c in conclusion.comparisons]
        seen = {"designs": designs, "verdict": conclusion.sentences[0]}
    key = schema.digest(["verdict", conclusion.key, done])
    if any(r.get("key") == key for r in records):
        return
    first = {"environment": environment(), "purpose": "verdict", "fingerprint": dict(fingerprint)}
    record = {"kind": "verdict", "status": "ok", "key": key, "design": conclusion.key, **seen}
    with journal.Writer(folder, first) as writer:
        writer.append({**record, "warnings": list(conclusion.warnings)})
