"""How a model is trained: one record, recorded with every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from harness.errors import UsageError

CHOICES = ("dev", "best-on-test")
"""How the epoch is chosen whose test metric counts."""


@dataclass(frozen=True)
class Recipe:
    """Everything about a training run but model, task and seed.

    Attributes
    ----------
    width : int
        Features out of the context fusion, all heads together.
    heads : int
        Passed to mechanisms that have heads.
    hidden : int
        Features of the head's relu layer.
    dropout : float
        On token features, sentence features and the hidden layer.
    rate, weight_decay : float
        Of AdamW (decoupled decay, weights and biases alike).
    clip : float
        Largest norm of the gradient; 0 for no limit.
    batch : int
        Examples per step.
    epochs, patience : int
        At most so many epochs; it ends when the chosen metric has not improved for `patience` of
        them.
    word_width : int
        Width of word vectors where no table gives one.
    choose : {"dev", "best-on-test"}
        The epoch whose test metric counts: the best on the dev split (the test set is then looked
        at once), or the best on the test set itself, as the papers report it.
    tuning_trials : int
        How many other recipes were tried before this one was settled on: unequal numbers for two
        models are named in a comparison.
    """

    width: int
    heads: int
    hidden: int
    dropout: float
    rate: float
    weight_decay: float
    clip: float
    batch: int
    epochs: int
    patience: int
    word_width: int = 100
    choose: str = "dev"
    tuning_trials: int = 0

    def __post_init__(self) -> None:
        for name in ("width", "heads", "hidden", "batch", "epochs", "patience", "word_width"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}; expected at least 1")
        for name in ("weight_decay", "clip", "tuning_trials"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name}={getattr(self, name)}; expected at least 0")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout={self.dropout}; expected 0 or more, and less than 1")
        if not self.rate > 0:
            raise UsageError(f"rate={self.rate}; expected a positive number")
        if self.choose not in CHOICES:
            raise UsageError(f"choose={self.choose!r}; expected {' or '.join(CHOICES)}")

    def as_dict(self) -> dict[str, Any]:
        """As it stands in records."""
        return asdict(self)


def changed(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """A recipe with some fields replaced, from their texts.

    Raises
    ------
    UsageError
        For an unknown field or a text that is not of its type.
    """
    kinds = {f.name: type(getattr(recipe, f.name)) for f in fields(recipe)}
    values = {}
    for name, text in settings.items():
        if name not in kinds:
            raise UsageError(f"a recipe has no {name!r}; it has {', '.join(kinds)}")
        try:
            values[name] = kinds[name](text)
        except ValueError:
            raise UsageError(f"{name}={text}; expected {kinds[name].__name__}") from None
    return replace(recipe, **values)


def parse_settings(texts: Sequence[str], models: Sequence[Sequence[str]]) -> list[dict[str, str]]:
    """Read ``NAME=VALUE`` (for all models) and ``MODEL:NAME=VALUE``; one mapping per model.

    Parameters
    ----------
    texts : sequence of str
    models : sequence of sequence of str
        The names of each model, the shortest first; a name of several means all of them.

    Raises
    ------
    UsageError
        For a text of another form, or a model that is not compared.
    """
    out: list[dict[str, str]] = [{} for _ in models]
    for text in texts:
        left, equals, value = text.rpartition("=")
        model, colon, name = left.rpartition(":")
        if not (equals and name):
            raise UsageError(f"given {text!r}; expected NAME=VALUE or MODEL:NAME=VALUE")
        if colon and not any(model in names for names in models):
            known = ", ".join(dict.fromkeys(name for names in models for name in names))
            raise UsageError(f"{text!r} names {model!r}; the models are {known}")
        for settings, names in zip(out, models, strict=True):
            if not colon or model in names:
                settings[name] = value
    return out
