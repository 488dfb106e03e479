"""How a model is trained: one record, recorded with every run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from harness.errors import UsageError

LARGEST = 2**63
"""No integer of torch reaches it; an infinite number is none that trains."""


EVALUATION_BATCH = 128
"""Examples at a time; as many as where the Multi-Scale Transformer's paper times a test batch."""


@dataclass(frozen=True)
class Recipe:
    """Everything about a training run but model, task and seed."""

    width: int  # features out of the context fusion, all heads together
    heads: int  # passed to mechanisms that have heads
    # Features of the head's first layer; of translation those inside feed-forward blocks.
    hidden: int
    # On token features, sentence features and the hidden layer; on what a Transformer adds.
    dropout: float
    rate: float  # rate, weight_decay, beta2: of the optimiser; the last one of Adam and AdamW
    weight_decay: float
    clip: float  # largest norm of the gradient; 0 for no limit
    batch: int  # examples per step; of translation tokens, both sides with their padding
    # epochs, patience: at most so many epochs; it ends when the chosen metric has not improved for
    # `patience` of them.
    epochs: int
    patience: int
    word_width: int = 100  # width of word vectors where no table gives one
    # {"dev", "best-on-test"}: the epoch whose test metric counts: the best on the dev split (the
    # test set is then looked at once), or the best on the test set itself, as the papers report it.
    choose: str = "dev"
    # How many recipes were tried, itself among them, before this one was settled on: unequal
    # numbers for two models are named in a comparison.
    tuning_trials: int = 0
    # {"adamw", "adam", "adadelta"}: AdamW has a decoupled decay, of weights and biases alike. The
    # others have an L2 penalty on weights, not on biases, and the constants of TensorFlow, as the
    # papers' programs have them.
    optimiser: str = "adamw"
    # Of the mechanisms that have such an option (MTSA, appendix A.3); no effect on others.
    attention_dropout: float = 0.0
    # {"distribution", "squared"}: of relatedness: cross entropy with the distribution whose mean is
    # the degree (Tai et al. 2015), or half the squared error of the expected degree, as the ReSAN
    # program has it.
    degree_loss: str = "distribution"
    # activation, highway: of models for classes of pairs: their activation (in the head, the
    # pooling, and mechanisms that have none of their own), and whether the head has a highway
    # layer.
    activation: str = "relu"
    highway: bool = False
    # {"f32", "bf16"}: bf16: products under autocast; weights, optimiser, loss and metrics stay in
    # float32.
    precision: str = "f32"
    # Whether the training step's forward pass is compiled, for lengths of any size.
    compile: bool = False
    # policy_steps, policy_epochs: only for a mechanism with a policy, when the base model's
    # `epochs` are over: steps of the policy alone (released: 5,000 on SNLI, 500 on SICK), then
    # epochs of both, with `patience`.
    policy_steps: int = 500
    policy_epochs: int = 10
    # policy_rate, policy_weight_decay: of the policy's own Adam; the decay is an L2 penalty.
    policy_rate: float = 1e-3
    policy_weight_decay: float = 1e-4
    # Of the selected share in the reward (released: .02 on SNLI, .006 on SICK).
    policy_penalty: float = 0.006
    # {"text", "released"}: that share: mean of heads' and dependents', or their product.
    policy_share: str = "text"
    # Of tagging: filters over the characters of a word, whose largest values stand beside its
    # vector; 0 for none.
    characters: int = 0
    # Of tagging: whether the tags of a sentence are chosen together, by a linear chain.
    crf: bool = False
    # layers, smoothing: of translation: layers on either side; share of the target that all tokens
    # have alike.
    layers: int = 1
    smoothing: float = 0.0
    # Steps in which the rate grows, to fall with their root from then on; 0: it is constant.
    warmup: int = 0
    averaged: int = 1  # after an epoch the mean of the weights of so many last ones counts
    beta2: float = 0.999

    def __post_init__(self) -> None:
        for expected, allowed, names in _ALLOWED:
            for name in names.split():
                value = getattr(self, name)
                if not allowed(value):
                    raise UsageError(f"{name}={value!r}; expected {expected}")
        for name, value in self.as_dict().items():
            if isinstance(value, float | int) and not abs(value) < LARGEST:
                raise UsageError(f"{name}={value!r}; expected a number below 2**63")

    def as_dict(self) -> dict[str, Any]:
        """As it stands in records."""
        return dict(vars(self))  # no field holds anything that could change


def _one_of(name: str, *texts: str) -> tuple[str, Callable[[Any], bool], str]:
    return " or ".join(texts), lambda value: value in texts, name


_SHARES = "dropout attention_dropout smoothing beta2"
_ALLOWED: Sequence[tuple[str, Callable[[Any], bool], str]] = (
    (
        "at least 1",
        lambda value: value >= 1,
        "width heads hidden batch epochs patience word_width policy_epochs layers averaged",
    ),
    (
        "at least 0",
        lambda value: value >= 0,
        "weight_decay policy_weight_decay policy_penalty clip tuning_trials policy_steps warmup "
        "characters",
    ),
    ("0 or more, and less than 1", lambda value: 0 <= value < 1, _SHARES),
    ("a positive number", lambda value: value > 0, "rate policy_rate"),
    _one_of("choose", "dev", "best-on-test"),
    _one_of("policy_share", "text", "released"),
    _one_of("optimiser", "adamw", "adam", "adadelta"),
    _one_of("precision", "f32", "bf16"),
    _one_of("degree_loss", "distribution", "squared"),
    _one_of("activation", "relu", "elu", "selu"),
)
"""What is expected of a field, whether a value is that, and the fields."""


@dataclass(frozen=True)
class NamedRecipe:
    """A recipe with a name, and what the rows of some mechanisms had instead.

    The common recipe is one for all mechanisms; a paper's is not.
    """

    usual: Recipe  # of every mechanism that has no row
    # Changed fields by mechanism.
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def recipe_for(self, mechanism: str) -> Recipe:
        """That of its row."""
        return replace(self.usual, **self.rows.get(mechanism, {}))


_CALLED = {bool: "true or false", int: "a whole number", float: "a number"}


def typed(name: str, text: str, like: Any) -> Any:
    """The value of a setting from its text, of the type of another value.

    Raises
    ------
    UsageError
        If it is not of that type.
    """
    kind = type(like)
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        if kind is not str and not text.isascii():
            raise ValueError(text)
        return kind(text)
    except (ValueError, KeyError):
        raise UsageError(f"{name}={text}; expected {_CALLED[kind]}") from None


def changed(recipe: Recipe, settings: Mapping[str, str]) -> Recipe:
    """A recipe with some fields replaced, from their texts.

    Raises
    ------
    UsageError
        For an unknown field or a text that is not of its type.
    """
    current = recipe.as_dict()
    for name in settings:
        if name not in current:
            raise UsageError(f"a recipe has no {name!r}; it has {', '.join(current)}")
    return replace(
        recipe, **{name: typed(name, text, current[name]) for name, text in settings.items()}
    )


HOW_FOUND = ("tuning_trials",)
"""What says how a recipe was found, not what it is."""
CEILINGS = ("epochs", "policy_epochs")
"""What a run that patience ended did not come to."""
_LATER = ("characters", "crf", "layers", "smoothing", "warmup", "averaged", "beta2")
ADDED = MappingProxyType({f.name: f.default for f in fields(Recipe) if f.name in _LATER})
"""Fields that older recipes have not, with what those did."""


def identity(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """What a run does by a recipe, as it stands in a record, however the recipe was found.

    Keys of runs, questions of designs and kinds of durations are made of it: a recipe that has been
    tuned further since, and stayed, gives the same run. What was added counts if it is set.
    """
    same = {name for name, value in ADDED.items() if recipe.get(name) == value}
    return {k: value for k, value in recipe.items() if k not in HOW_FOUND and k not in same}


def without_ceilings(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The same without `CEILINGS`: what was tried, or trained by, whatever ended the run."""
    return {name: value for name, value in identity(recipe).items() if name not in CEILINGS}


def changes(recipe: Mapping[str, Any], common: Recipe) -> list[str]:
    """What a recipe, as it stands in a record, changes of a common one: ``rate=0.002``.

    How it was found counts for nothing, and neither does what the record does not know.
    """
    usual = common.as_dict()
    return [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in recipe.items()
        if name not in HOW_FOUND and usual.get(name) != value
    ]


def parse_settings(
    texts: Sequence[str],
    models: Sequence[Sequence[str]],
    named: Mapping[str, NamedRecipe] = MappingProxyType({}),
    task: str = "",
) -> list[dict[str, str]]:
    """Read what ``--recipe`` says; one mapping of settings per model.

    Parameters
    ----------
    texts : sequence of str
        ``NAME=VALUE`` (for all models) or ``MODEL:NAME=VALUE``; or, in place of ``NAME=VALUE``, the
        name of a recipe, which stands for all of its settings. Of several the last one counts.
    models : sequence of sequence of str
        The names of each model, its mechanism's first; a name of several means all of them.
    named : mapping
        The task's other recipes by name; each model gets its mechanism's row.
    task : str
        Its name, for errors.

    Raises
    ------
    UsageError
        For a text of another form, an unknown recipe, or a model that is not compared.
    """
    out: list[dict[str, str]] = [{} for _ in models]
    for text in texts:
        model, colon, name = text.rpartition(":")
        recipe = named.get(name)
        if recipe is None:
            left, equals, value = text.rpartition("=")
            model, colon, name = left.rpartition(":")
            if not (equals and name):
                has = f"the recipes {', '.join(named)}" if named else "no recipe with a name"
                raise UsageError(
                    f"given {text!r}; expected NAME=VALUE or MODEL:NAME=VALUE; "
                    f"{task or 'the task'} has {has}"
                )
        if colon and not any(model in names for names in models):
            known = ", ".join(dict.fromkeys(name for names in models for name in names))
            raise UsageError(f"{text!r} names {model!r}; the models are {known}")
        for found, names in zip(out, models, strict=True):
            if colon and model not in names:
                continue
            if recipe is None:
                found[name] = value
            else:
                own = recipe.recipe_for(names[0]).as_dict()
                found |= {setting: str(value) for setting, value in own.items()}
    return out
