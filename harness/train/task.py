"""What a task is, and which there are; nothing here imports torch or numpy."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import harness.train.tasks
from harness.case import parse_options
from harness.errors import UsageError
from harness.registry import resolve
from harness.train.recipe import CEILINGS, NamedRecipe, Recipe, changes, typed

if TYPE_CHECKING:
    import numpy as np

    from harness.train.data.vectors import Coverage

LAST_STAGE = "both"
"""Of a run with a policy: in its epochs base model and policy are trained together."""

Kind = Literal["classification", "relatedness", "regression", "tagging", "translation"]

HIGHER_IS_BETTER = MappingProxyType(
    {
        "accuracy": True,
        "pearson": True,
        "spearman": True,
        "tag_accuracy": True,
        "tag_accuracy_unseen": True,
        "span_f1": True,
        "bleu": True,
        "chrf": True,
        "bleu_2017": True,
        "chrf_2017": True,
        "mse": False,
        "relative_mse": False,
    }
)
"""Direction of each metric."""


@dataclass(frozen=True)
class Task:
    """A task: its data, how they are split, what is measured, and its recipes."""

    name: str  # as in ``--task``
    summary: str  # summary, source: one line each
    source: str
    split: str  # how train, dev and test come about, for reports
    # Dotted function ``load(directory, vectors, word_width, seed, **options) -> Data``; with
    # `folds` it is given ``fold`` too.
    load: str
    recipe: Recipe  # the common recipe, the same for all mechanisms
    # {"classification", "relatedness", "regression", "tagging", "translation"}: which model and
    # loss.
    kind: Kind = "classification"
    # The first one decides which epoch is chosen and what is compared.
    metrics: tuple[str, ...] = ("accuracy",)
    # Others by name: the papers', each with its mechanisms' rows. A name is given to ``--recipe``.
    recipes: Mapping[str, NamedRecipe] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)  # for `load`
    free: tuple[str, ...] = ()  # options that a user may change: ``mirrored_summation[k=10]``
    # All that one of these may be, where that is a list.
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # The one of these with choices that has to be given; without it the name stands for all of
    # them, a task each: ``mtl16[domain=books]``, and with all of its domains ``mtl16``.
    each: str = ""
    family: str = ""  # of such a task the name that stands for all of them; empty otherwise
    # Tables it reads below the data directory, without their endings; empty for made-up data.
    files: tuple[str, ...] = ()
    # How the user makes those of the files that can't be handed on.
    supplied: Mapping[str, str] = field(default_factory=dict)
    vectors: str = ""  # the word vectors unless others are given: a table of the data directory
    # How many recipes were tried for a mechanism (another form of it has its options behind the
    # name) before the common one was settled on.
    tuned: Mapping[str, int] = field(default_factory=dict)
    # Common recipes of former times, the oldest first, whose place a better one has taken.
    former: tuple[Recipe, ...] = ()
    pairs: bool = False  # whether an example is two sentences
    one_test_set: bool = False  # whether all seeds are tested on the same examples
    # Of cross-validation, fixed by the corpus alone and shared by all models; 0 for one split.
    folds: int = 0
    # Of each split so many of the first examples, 0 for all; of any task: ``trec[rows=200]``.
    rows: int = 0

    def recipe_for(self, form: str) -> Recipe:
        """The common recipe, with the number of recipes that were tried for this form."""
        return replace(self.recipe, tuning_trials=self.tuned.get(form, 0))

    def with_options(self, texts: Mapping[str, str]) -> Task:
        """This task with other options, which are then part of its name.

        Raises
        ------
        UsageError
            For an option that is not free, or a text that is not of its type or choices.
        """
        rows = typed("rows", texts.get("rows", "0"), 0)
        if rows < 0:
            raise UsageError(f"{self.name}: given rows={rows}; expected 1 or more, 0 for all")
        texts = {name: text for name, text in texts.items() if name != "rows"}
        for name, text in texts.items():
            if name not in self.free:
                raise UsageError(
                    f"task {self.name} has no option {name!r}; it has "
                    f"{', '.join((*self.free, 'rows'))}"
                )
            if text not in self.choices.get(name, (text,)):
                expected = ", ".join(self.choices[name])
                raise UsageError(f"{self.name}: given {name}={text}; expected one of {expected}")
        given = {name: typed(name, text, self.options[name]) for name, text in texts.items()}
        other = {name: value for name, value in given.items() if value != self.options[name]}
        if not (other or rows):
            return self
        # In the order of the record, so that one task has one name.
        said = [f"{name}={other[name]}" for name in self.options if name in other]
        said += [f"rows={rows}"] if rows else []
        shared = [text for text in said if text.partition("=")[0] != self.each]
        return replace(
            self,
            name=_bracketed(self.name, said),
            summary=f"{self.summary}; here {','.join(said)}",
            options={**self.options, **other},
            rows=rows,
            family=_bracketed(self.name, shared) if self.each in other else "",
        )

    @property
    def asks_tokens(self) -> bool:
        """Whether a model has to give tokens, not a sentence vector."""
        return self.kind == "tagging"

    @property
    def metric(self) -> str:
        """The primary metric."""
        return self.metrics[0]

    @property
    def higher_is_better(self) -> bool:
        """Direction of the primary metric."""
        return HIGHER_IS_BETTER[self.metric]


def _bracketed(name: str, options: Sequence[str]) -> str:
    return f"{name}[{','.join(options)}]" if options else name


@dataclass(frozen=True)
class Split:
    """Examples."""

    # One entry per input of the model: lists of word ids, or an array [S, N, D].
    inputs: tuple[Any, ...]
    # ndarray, or list of list of int: class numbers [S] (int64), degrees [S] or vectors [S,
    # outputs] (float32); or a sequence of numbers from 1 on for each example.
    targets: Any
    # What only the metrics of a kind read; what is a list has an entry for each example.
    also: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        """Number of examples."""
        return len(self.targets)

    def first(self, count: int) -> Split:
        """So many of the first examples, of a split that `also` holds as well."""

        def cut(value: Any) -> Any:
            if isinstance(value, Split):
                return value.first(count)
            return value[:count] if isinstance(value, list) else value

        also = {name: cut(value) for name, value in self.also.items()}
        return Split(tuple(x[:count] for x in self.inputs), self.targets[:count], also)


@dataclass(frozen=True)
class Data:
    """What one run trains, chooses and tests on."""

    train: Split
    dev: Split
    test: Split
    width: int  # features of a token
    outputs: int  # classes, degrees, target features or tags
    # ndarray or None: initial word vectors [V, width], row 0 padding, row 1 unknown; None for
    # vector inputs.
    embedding: np.ndarray | None = None
    coverage: Coverage | None = None  # of the word vectors over the corpus
    # encode, tokenise: a text to word ids and to tokens, as the corpus was treated; None for vector
    # inputs.
    encode: Any = None
    tokenise: Any = None
    # Tokens to the numbers of their characters [n, C], where the model is given these too.
    spell: Any = None
    # How many such numbers there are, that of padding (0) among them; 0 without.
    characters: int = 0
    # ndarray of int, shape [S], or None: places of the test examples in the table they come from;
    # None for drawn data.
    test_items: np.ndarray | None = None
    # ndarray of bool, shape [S], or None: whether the text of a test example stands in the training
    # table (the other folds) too.
    seen: np.ndarray | None = None


@cache
def tasks() -> Mapping[str, Task]:
    """All tasks by name, from the ``TASKS`` of each module in `harness.train.tasks`."""
    found: dict[str, Task] = {}
    for info in pkgutil.iter_modules(harness.train.tasks.__path__):
        module = importlib.import_module(f"harness.train.tasks.{info.name}")
        for task in module.TASKS:
            found[task.name] = task
    return MappingProxyType(found)


def check_fold(task: Task, fold: int | None) -> None:
    """Refuse a fold that a task has not, and no fold where it has some.

    Raises
    ------
    UsageError
    """
    if not task.folds and fold is not None:
        raise UsageError(f"fold {fold}: task {task.name} has one split; leave the fold out")
    if task.folds and (fold is None or not 0 <= fold < task.folds):
        given = "no fold" if fold is None else f"fold {fold}"
        raise UsageError(
            f"given {given}; task {task.name} has {task.folds} folds: expected --fold 0 to "
            f"{task.folds - 1}"
        )


_WITH_OPTIONS = re.compile(r"(?P<name>[\w.-]+)\[(?P<options>[^\]]*)\]")


def trained_by(run: Mapping[str, Any], recipe: Recipe) -> bool:
    """Whether a run, by its record, did what it does by a recipe.

    A ceiling of epochs is no part of that where patience ended the run below both. Not so where no
    recipe stands.
    """
    own = run.get("recipe") or {}
    if not own or {text.partition("=")[0] for text in changes(own, recipe)} - set(CEILINGS):
        return False
    stages = Counter(epoch.get("stage") for epoch in run.get("epochs") or ())
    together = stages.pop(LAST_STAGE, 0)
    for name, done in zip(CEILINGS, (max(stages.values(), default=0), together), strict=True):
        mine, other = own.get(name, getattr(recipe, name)), getattr(recipe, name)
        if mine != other and not done < min(mine, other):
            return False
    return True


def by_common_recipe(run: Mapping[str, Any]) -> bool:
    """Whether a run's record says that it was trained by the recipe that its task has for all.

    Not so of a task that this version does not know.
    """
    known = tasks().get(str(run.get("task")).partition("[")[0])
    return known is not None and trained_by(run, known.recipe)


def tasks_named(text: str) -> tuple[Task, ...]:
    """The tasks of a name: ``mirrored_summation[k=10]``, or ``mtl16``, which stands for sixteen.

    Raises
    ------
    UsageError
        Naming close matches and all tasks; or for an option that it has not.
    """
    match = _WITH_OPTIONS.fullmatch(text)
    name, known = match["name"] if match else text, tasks()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"unknown task {name!r}; {hint}there are {', '.join(known)}")
    texts = match["options"].split(",") if match and match["options"] else []
    given, one = dict(parse_options(texts)), known[name]
    if not one.each or one.each in given:
        return (one.with_options(given),)
    return tuple(one.with_options({**given, one.each: value}) for value in one.choices[one.each])


def known_tasks(name: object) -> tuple[Task, ...]:
    """The tasks of a name; none of one that this version does not know."""
    try:
        return tasks_named(str(name))
    except UsageError:
        return ()


def task(text: str) -> Task:
    """The one task of a name.

    Raises
    ------
    UsageError
        As `tasks_named`, and where the name stands for several.
    """
    one, *others = tasks_named(text)
    if others:
        raise UsageError(f"{text} is {len(others) + 1} tasks; expected one, e.g. {one.name}")
    return one


def gathered(names: Sequence[str]) -> tuple[str, ...]:
    """Names of tasks in short: where all of a family are among them, the family's instead.

    Tasks that this version does not know keep their names.
    """
    found = []
    for name in names:
        family = family_of(name)
        whole = family and {one.name for one in tasks_named(family)} <= set(names)
        found.append(family if whole else name)
    return tuple(dict.fromkeys(found))


def family_of(name: str) -> str:
    """`Task.family` of a task, by its name; empty for one that this version does not know."""
    try:
        return task(name).family
    except UsageError:
        return ""


def load(
    task: Task,
    recipe: Recipe,
    directory: str | None,
    vectors: str,
    seed: int,
    fold: int | None = None,
) -> Data:
    """The data of one seed, or of one seed and fold.

    Parameters
    ----------
    directory : str or None
        The data directory.
    vectors : str
        A GloVe-format file, a table of the data directory, or ``none``.
    fold : int, optional
        Which one is tested on; for a task that has folds, and only for such a task.

    Raises
    ------
    UsageError
        If files are missing or wrong, a split is empty, degrees are all the same, or there is no
        such fold.
    """
    check_fold(task, fold)
    place = None if directory is None else Path(directory)
    options = dict(task.options)
    if task.folds:
        options["fold"] = fold
    data: Data = resolve(task.load)(place, vectors, recipe.word_width, seed, **options)
    if task.rows:
        data = replace(
            data,
            **{name: getattr(data, name).first(task.rows) for name in ("train", "dev", "test")},
            test_items=None if data.test_items is None else data.test_items[: task.rows],
            seen=None if data.seen is None else data.seen[: task.rows],
        )
    for name in ("train", "dev", "test"):
        targets = getattr(data, name).targets
        if not len(targets):
            raise UsageError(f"{task.name}: the {name} split has no example; give more data")
        if task.kind == "relatedness" and (targets == targets[0]).all():
            raise UsageError(f"{task.name}: all degrees of {name} are {targets[0]}; no correlation")
        if task.kind == "regression" and (targets == targets[0]).all():
            raise UsageError(f"{task.name}: all targets of {name} are the same; no relative error")
    return data
