"""How a model is trained: one record, recorded with every run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from harness.errors import UsageError

CHOICES = ("dev", "best-on-test")
"""How the epoch is chosen whose test metric counts."""
SHARES = ("text", "released")
"""What a policy's reward penalises: the mean share that it selects, or the product of both."""


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
    policy_steps, policy_epochs : int
        Only for a mechanism with a policy, which is trained when the base model's `epochs` are
        over: steps of the policy alone (released: 5,000 on SNLI, 500 on SICK), then at most so
        many epochs of both, again with `patience`.
    policy_rate, policy_weight_decay : float
        Of the policy's own Adam; the decay is an L2 penalty.
    policy_penalty : float
        Of the selected share in the reward (released: .02 on SNLI, .006 on SICK).
    policy_share : {"text", "released"}
        That share: mean of heads' and dependents', or their product.
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
    policy_steps: int = 500
    policy_epochs: int = 10
    policy_rate: float = 1e-3
    policy_weight_decay: float = 1e-4
    policy_penalty: float = 0.006
    policy_share: str = "text"

    def __post_init__(self) -> None:
        positive = ("width", "heads", "hidden", "batch", "epochs", "patience", "word_width")
        for name in (*positive, "policy_epochs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name}={getattr(self, name)}; expected at least 1")
        decays = ("weight_decay", "policy_weight_decay", "policy_penalty")
        for name in (*decays, "clip", "tuning_trials", "policy_steps"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name}={getattr(self, name)}; expected at least 0")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout={self.dropout}; expected 0 or more, and less than 1")
        for name in ("rate", "policy_rate"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)}; expected a positive number")
        if self.choose not in CHOICES:
            raise UsageError(f"choose={self.choose!r}; expected {' or '.join(CHOICES)}")
        if self.policy_share not in SHARES:
            raise UsageError(f"policy_share={self.policy_share!r}; expected {' or '.join(SHARES)}")

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
