"""Recipes: named ones, the papers' numbers, and what their settings do in a run."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from harness.build import literal
from harness.errors import UsageError
from harness.experiments.model import parse_model, recipes_of
from harness.registry import Registry
from harness.train.data import corpora
from harness.train.data.corpora import unlike
from harness.train.encoder import parameters
from harness.train.objective import objective_of
from harness.train.recipe import Recipe, changed, changes, identity, parse_settings
from harness.train.task import Data, Split, by_common_recipe, load, task, tasks, trained_by
from harness.train.trainer import is_bias, make_optimiser
from harness.verify import golden
from reference_impls.golden_encoders import HEAD
from reference_impls.models.encoders import PairClassifier
from reports.claims.printed import at, number
from reports.claims.printed import load as printed_tables
from suites.support.oracles import GOLDEN
from suites.support.training import loaded, losses, small, train, trained

MODELS = (("mtsa", "mtsa.algorithm1"), ("multi_head", "multi_head.sdpa"))


def named(name: str, recipe: str, mechanism: str = "mtsa") -> Recipe:
    """What a mechanism is trained by with ``--recipe paper``."""
    (found,) = recipes_of(task(name), [parse_model(mechanism, Registry())], [recipe])
    return found


# Reading them.


def test_a_named_recipe_stands_for_all_its_settings() -> None:
    record = task("trec")
    paper = named("trec", "paper")
    one, two = parse_settings(["paper"], MODELS, record.recipes)
    assert changed(record.recipe_for("mtsa"), one) == paper
    assert changed(record.recipe, two) == replace(paper, heads=8)
    one, two = parse_settings(["paper", "multi_head:heads=4", "epochs=3"], MODELS, record.recipes)
    assert changed(record.recipe, one) == replace(paper, epochs=3)
    assert changed(record.recipe, two) == replace(paper, epochs=3, heads=4)
    one, two = parse_settings(["epochs=3", "mtsa:paper"], MODELS, record.recipes)
    assert changed(record.recipe, one) == paper
    assert changed(record.recipe, two) == replace(record.recipe, epochs=3)


def test_a_recipe_of_one_form_of_a_mechanism_can_be_named() -> None:
    names = [("mtsa", "mtsa.algorithm1[scale_t=identity]"), ("disa",)]
    texts = ["mtsa.algorithm1[scale_t=identity]:paper"]
    one, two = parse_settings(texts, names, task("trec").recipes)
    assert one["optimiser"] == "adadelta"
    assert not two


def test_every_setting_comes_back_from_its_text() -> None:
    for record in tasks().values():
        papers = [r.recipe_for(m) for r in record.recipes.values() for m in ("mtsa", *r.rows)]
        for recipe in (record.recipe, *papers):
            texts = [f"{key}={value}" for key, value in recipe.as_dict().items()]
            assert changed(record.recipe, parse_settings(texts, [("mtsa",)])[0]) == recipe


@pytest.mark.parametrize(
    ("text", "name", "says"),
    [
        ("papr", "trec", "given 'papr'; .* or MODEL:NAME=VALUE; trec has the recipes paper"),
        ("disa:paper", "trec", "names 'disa'; the models are mtsa, mtsa.algorithm1"),
        ("=3", "trec", "expected NAME=VALUE"),
        ("paper", "mr", "given 'paper'; .*; mr has no recipe with a name"),
    ],
)
def test_an_unknown_recipe_is_told(text: str, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_settings([text], MODELS, task(name).recipes, name)


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("optimiser=sgd", "optimiser='sgd'; expected adamw or adam or adadelta"),
        ("precision=f16", "precision='f16'; expected f32 or bf16"),
        ("activation=tanh", "activation='tanh'; expected relu or elu"),
        ("attention_dropout=1", "attention_dropout=1.0; expected 0 or more"),
        ("compile=yes", "compile=yes; expected true or false"),
        ("epochs=2.5", "epochs=2.5; expected a whole number"),
        ("colour=red", "a recipe has no 'colour'; it has width, heads"),
        ("batch=0", "batch=0; expected at least 1"),
        ("rate=0", "rate=0.0; expected a positive number"),
        ("policy_epochs=0", "policy_epochs=0; expected at least 1"),
        ("characters=-1", "characters=-1; expected at least 0"),
        ("policy_steps=-1", "policy_steps=-1; expected at least 0"),
        ("policy_rate=0", "policy_rate=0.0; expected a positive"),
        ("policy_penalty=nan", "policy_penalty=nan; expected at least 0"),
        ("policy_weight_decay=-1", "policy_weight_decay=-1.0"),
        ("policy_share=mean", "policy_share='mean'; expected text or released"),
    ],
)
def test_a_wrong_setting_is_told(setting: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        changed(task("trec").recipe, parse_settings([setting], [("mtsa",)])[0])


@pytest.mark.parametrize(
    ("names", "name", "value"),
    [
        (("characters", "crf"), "crf", True),
        (("layers", "smoothing", "warmup", "averaged", "beta2"), "warmup", 10),
    ],
)
def test_a_field_that_older_recipes_lack_changes_no_key_until_it_is_set(
    names: tuple[str, ...], name: str, value: Any
) -> None:
    recipe = task("trec").recipe.as_dict()
    old = {k: v for k, v in recipe.items() if k not in names}
    assert identity(recipe) == identity(old)
    assert identity({**recipe, name: value}) == {**identity(old), name: value}
    common = task("wnut17").recipe
    assert changes({**common.as_dict(), "crf": False}, common) == ["crf=False"]


def test_semicolons_make_a_list_of_a_mechanisms_option() -> None:
    assert literal("forward;none") == ["forward", "none"]
    assert literal("1;0.5;n/16") == [1, 0.5, "n/16"]
    assert literal("3;") == [3]
    model = parse_model("multi_scale_transformer[layers=3,candidates=n/8;]", Registry())
    assert str(parse_model(str(model), Registry())) == str(model)


# What the papers say (their recipes as handed down: table and read-me).


PAPERS = [
    # keep, attention keep, decay, optimiser, rate, batch, steps, examples of ours
    ("trec", "paper", 0.5, 1, 1e-4, "adadelta", 0.5, 32, 80_000, 4907),
    ("trec", "released", 0.5, 1, 5e-5, "adadelta", 0.5, 32, 99_000, 4907),
    ("sst5_phrases", "paper", 0.7, 1, 1e-4, "adadelta", 0.5, 128, 120_000, 159_274),
    ("cr", "paper", 0.5, 0.8, 1e-4, "adam", 1e-3, 64, 1000, 3055),
    ("cr", "released", 0.475, 0.81, 1e-4, "adam", 1e-3, 64, 1000, 3055),
    ("mpqa", "paper", 0.5, 0.8, 1e-4, "adam", 1e-3, 64, 1000, 8588),
    ("mpqa", "released", 0.55, 1, 1e-4, "adam", 1e-3, 64, 1000, 8588),
    ("subj", "paper", 0.5, 1, 1e-4, "adam", 1e-3, 64, 1000, 8100),
    ("subj", "released", 0.55, 0.81, 1e-4, "adam", 1e-3, 64, 1000, 8100),
    ("sick_relatedness", "paper", 0.7, 1, 1e-4, "adadelta", 0.5, 128, 25_000, 4500),
    ("snli", "paper", 0.65, 1, 5e-5, "adadelta", 0.5, 128, 600_000, 549_367),
]


@pytest.mark.parametrize("row", PAPERS, ids=lambda row: f"{row[0]}-{row[1]}")
def test_the_papers_recipes_have_their_numbers(row: tuple) -> None:
    name, which, keep, attention, decay, optimiser, rate, batch, steps, examples = row
    recipe = named(name, which)
    assert recipe.dropout == pytest.approx(1 - keep)
    assert recipe.attention_dropout == pytest.approx(1 - attention)
    assert (recipe.weight_decay, recipe.optimiser) == (decay, optimiser)
    assert (recipe.rate, recipe.batch) == (rate, batch)
    assert (recipe.width, recipe.heads, recipe.hidden) == (600, 2, 300)
    assert recipe.epochs == recipe.patience
    assert recipe.epochs * math.ceil(examples / batch) == pytest.approx(steps, rel=0.06)
    by_test = name in ("trec", "cr", "mpqa", "subj")
    assert recipe.choose == ("best-on-test" if by_test else "dev")
    snli = name == "snli"
    assert (recipe.activation, recipe.highway) == ("elu" if snli else "relu", snli)


# Mechanism: heads, width and highway layer on SNLI (MTSA section 4; Table 1's printed parameters).
ROWS = {
    **dict.fromkeys(("mtsa", "mtsa_released", "none", "resan"), (2, 600, True)),
    **dict.fromkeys(("hrchy_cnn", "hrchy_cnn_released"), (2, 300, True)),
    **dict.fromkeys(("multi_head", "multi_head_released", "multi_head_relu"), (8, 600, False)),
    **dict.fromkeys(("disa", "disan", "bi_lstm", "bi_gru", "bi_gru_released"), (2, 600, False)),
    **dict.fromkeys(("multi_cnn", "kim_cnn", "kim_cnn_released"), (2, 600, False)),
    **dict.fromkeys(("biblosa", "biblosa_released"), (2, 600, False)),
}


def test_each_mechanism_has_the_row_that_the_papers_gave_it() -> None:
    mtsa = named("snli", "paper")
    for mechanism, (heads, width, highway) in ROWS.items():
        recipe = named("snli", "paper", mechanism)
        assert recipe == replace(mtsa, heads=heads, width=width, highway=highway)
        assert recipe.tuning_trials == 0, "the budget is the papers', not ours"
        for name, which in (
            ("trec", "released"),
            ("cr", "paper"),
            ("sick_relatedness", "released"),
        ):
            recipe = named(name, which, mechanism)
            assert (recipe.heads, recipe.width, recipe.highway) == (heads, width, False)


def test_the_rows_are_of_mechanisms_that_there_are() -> None:
    known = Registry().mechanisms
    for record in tasks().values():
        for recipe in record.recipes.values():
            assert set(recipe.rows) <= set(known)
        # Unlike a paper's, the common recipe is one for all.
        common = identity(record.recipe.as_dict())
        assert all(identity(record.recipe_for(m).as_dict()) == common for m in known)


@pytest.mark.parametrize(
    ("name", "which", "examples", "steps", "policy"),
    [
        # The base model's steps, the policy's alone, and those of both (ReSAN's program).
        ("snli", "paper", 549_367, (600_000, 5000, 195_000), (0.02, 5e-5, "text")),
        ("sick_relatedness", "paper", 4500, (6000, 500, 18_500), (0.006, 1e-4, "text")),
        ("sick_relatedness", "released", 4500, (6000, 500, 18_500), (0.006, 1e-4, "released")),
    ],
)
@pytest.mark.parametrize("mechanism", ["resa", "resan", "resan_no_fusion"])
def test_a_policy_is_trained_as_resans(
    mechanism: str, name: str, which: str, examples: int, steps: tuple, policy: tuple
) -> None:
    recipe = named(name, which, mechanism)
    base, alone, both = steps
    a_pass = math.ceil(examples / recipe.batch)
    assert recipe.epochs * a_pass == pytest.approx(base, rel=0.01)
    assert recipe.policy_steps == alone
    assert recipe.policy_epochs * a_pass == pytest.approx(both, rel=0.01)
    assert recipe.patience >= max(recipe.epochs, recipe.policy_epochs)
    assert (recipe.policy_penalty, recipe.policy_weight_decay, recipe.policy_share) == policy


@pytest.mark.parametrize("mechanism", ["multi_head", "hrchy_cnn"])
def test_a_papers_row_can_be_built(folder: Path, mechanism: str) -> None:
    record, recipe = task("trec"), named("trec", "paper", mechanism)
    made = load(record, recipe, str(folder), record.vectors, 0)
    # The table decides how wide word vectors are, whatever the recipe says.
    assert made.width == 20 != recipe.word_width == 300
    objective_of(record.kind).build(record, mechanism, {}, made, recipe, Registry(), 0)


# Optimisers.


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([[1.0, -2.0], [0.5, 3.0]]))
        self.b = nn.Parameter(torch.tensor([0.5, -0.5]))
        self.s_b = nn.Parameter(torch.tensor([[2.0], [1.0]]))


def steps(optimiser: str, count: int = 3, decay: float = 0.1) -> tuple[Layer, dict[str, Any]]:
    """Weights after some steps with gradients 1, 2, ... times the first weights."""
    layer = Layer()
    first = {name: p.detach().clone() for name, p in layer.named_parameters()}
    recipe = replace(task("trec").recipe, optimiser=optimiser, rate=0.5, weight_decay=decay)
    made = make_optimiser(layer.named_parameters(), recipe)
    for step in range(1, count + 1):
        for name, p in layer.named_parameters():
            p.grad = step * first[name]
        made.step()
    return layer, first


def test_adadelta_by_hand() -> None:
    layer, first = steps("adadelta")
    rho, eps, rate = 0.95, 1e-8, 0.5
    for name, p in layer.named_parameters():
        x = first[name].double()
        square, update = torch.zeros_like(x), torch.zeros_like(x)
        for step in range(1, 4):
            gradient = step * first[name].double() + (0.1 * x if name == "w" else 0)
            square = rho * square + (1 - rho) * gradient**2
            change = (update + eps).sqrt() / (square + eps).sqrt() * gradient
            update = rho * update + (1 - rho) * change**2
            x = x - rate * change
        torch.testing.assert_close(p.detach(), x.float(), rtol=1e-5, atol=1e-7)


def test_adam_has_a_penalty_on_weights_alone() -> None:
    with_decay, first = steps("adam", 1)
    without, _ = steps("adam", 1, decay=0.0)
    for name in ("b", "s_b"):
        assert torch.equal(with_decay.get_parameter(name), without.get_parameter(name))
    gradient = first["w"] * 1.1  # g + decay * w
    expected = first["w"] - 0.5 * gradient / (gradient.abs() + 1e-8)
    torch.testing.assert_close(with_decay.w.detach(), expected)


def test_adamw_takes_its_decay_apart_from_the_gradient() -> None:
    layer, first = steps("adamw", 1)
    for name, p in layer.named_parameters():
        expected = first[name] * (1 - 0.5 * 0.1) - 0.5 * first[name].sign()
        torch.testing.assert_close(p.detach(), expected)


def test_what_is_a_bias(folder: Path) -> None:
    names = ("hidden.b", "fusion.s1_b", "lstm.bias_hh_l0", "map_b", "b3", "l0_ln1_scale")
    assert all(is_bias(name) for name in names)
    others = ("hidden.w", "embedding.words.weight", "fusion.b_w", "lstm.weight_ih_l0")
    assert not any(is_bias(name) for name in others)
    # In the mechanisms here what starts as one and the same number is a bias.
    record = task("trec")
    made, recipe = loaded(folder, record.name), small(record.name)
    for model in Registry().mechanisms:
        module = objective_of(record.kind).build(record, model, {}, made, recipe, Registry(), 0)
        for name, p in module.named_parameters():
            if bool((p == p.flatten()[0]).all()) and (p.numel() > 1 or not p.any()):
                assert is_bias(name), (model, name)
            elif "bias" not in name and p.numel() > 1:
                assert not is_bias(name), (model, name)


# Other settings.


def test_attention_dropout_reaches_what_has_it(folder: Path) -> None:
    record = task("trec")
    made = loaded(folder, record.name)
    recipe = small(record.name, attention_dropout=0.2)

    def fusion(model: str, **options: str) -> Any:
        module = objective_of(record.kind).build(
            record, model, options, made, recipe, Registry(), 0
        )
        return module.get_submodule("encoder.fusion")

    assert fusion("mtsa").attention_dropout == 0.2
    assert fusion("mtsa_released").attention_dropout == 0.2
    assert fusion("mtsa", attention_dropout="0.4").attention_dropout == 0.4
    assert not hasattr(fusion("multi_head"), "attention_dropout")
    assert losses(train(folder, attention_dropout=0.2)) != losses(trained(folder))


def test_the_head_of_pairs_is_the_recipes(folder: Path) -> None:
    record = task("sick_entailment")
    made = loaded(folder, record.name)
    for activation, highway in (("relu", False), ("elu", True)):
        recipe = small(record.name, activation=activation, highway=highway)
        module = objective_of(record.kind).build(record, "mtsa", {}, made, recipe, Registry(), 0)
        assert isinstance(module, PairClassifier)
        assert (module.highway is not None) is highway
        value = torch.tensor([-1.0])
        assert float(module.activation(value)) == pytest.approx(
            0.0 if activation == "relu" else math.exp(-1) - 1
        )


def test_half_precision_is_for_products_alone(folder: Path) -> None:
    objective = objective_of("classification")
    with patch.object(objective, "losses", wraps=objective.losses) as asked:
        half = train(folder, "multi_head", precision="bf16")
    full = trained(folder, "multi_head")
    assert {one.args[1].dtype for one in asked.call_args_list} == {torch.float32}
    assert losses(half) != losses(full)
    assert losses(half) == pytest.approx(losses(full), rel=0.05)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_compiled_step_gives_about_the_same(folder: Path) -> None:
    recipe: dict[str, Any] = {"dropout": 0.0, "epochs": 1}
    compiled = train(folder, "multi_head", compile=True, **recipe)
    assert losses(compiled) == pytest.approx(
        losses(train(folder, "multi_head", **recipe)), rel=1e-3
    )


def test_a_policy_is_not_compiled(folder: Path) -> None:
    with pytest.raises(UsageError, match="policy can't be compiled"):
        train(folder, "resa", compile=True)


def test_tuning_budgets_are_equal() -> None:
    assert task("trec").recipe_for("no such mechanism").tuning_trials == 0
    # A recipe that was tuned on one task is no less tuned on another.
    for name in ("trec", "sst5", "sst5_phrases", "cr", "mpqa", "subj", "mr", "snli"):
        assert task(name).tuned == task("trec").tuned, name
    assert task("sick_entailment").tuned == task("sick_relatedness").tuned
    # Equal: ten each on TREC, fourteen on SICK; nothing is said to be tuned that was not.
    published = "none multi_head mtsa mtsa_released disa bi_lstm multi_cnn msmsa resa"
    forms = " multi_head[positions=none] multi_head_relu multi_head_released"
    transformers = " transformer multi_scale_transformer"
    parts = "".join(
        f" mtsa_released[{one}=false]" for one in ("directional", "token2token", "source2token")
    )
    ablations = f"{parts} disa[direction=diagonal] additive resa[policy=iterative]"
    for name, models, count in (
        ("trec", f"{published}{forms} biblosa_released{transformers}{ablations}", 10),
        ("sick_relatedness", published + forms + parts, 14),
    ):
        assert task(name).tuned == dict.fromkeys(models.split(), count)
    assert task("mirrored_summation").tuned == {}


def record(recipe: Recipe, epochs: int, both: int = 0) -> dict[str, Any]:
    """Of a run that took so many epochs, and with a policy so many more of both."""
    stages = ["base" if both else None] * epochs + ["both"] * both
    rows = [{"epoch": i, "stage": s} if s else {"epoch": i} for i, s in enumerate(stages, start=1)]
    return {"task": "trec", "recipe": recipe.as_dict(), "epochs": rows}


@pytest.mark.parametrize(
    ("changed", "epochs", "both", "same"),
    [
        ({}, 100, 0, True),
        ({"epochs": 25}, 24, 0, True),
        ({"epochs": 25}, 25, 0, False),
        ({"epochs": 200}, 100, 0, False),
        ({"epochs": 200}, 99, 0, True),
        ({"epochs": 25, "rate": 0.5}, 12, 0, False),
        ({"epochs": 25, "policy_epochs": 10}, 12, 9, True),
        ({"epochs": 25, "policy_epochs": 10}, 12, 10, False),
        ({"epochs": 25, "policy_epochs": 10}, 25, 9, False),
    ],
)
def test_a_ceiling_below_which_patience_ended_a_run_is_no_other_training(
    changed: dict[str, Any], epochs: int, both: int, same: bool
) -> None:
    common = task("trec").recipe
    assert (common.epochs, common.policy_epochs) == (100, 100)
    run = record(replace(common, **changed), epochs, both)
    assert trained_by(run, common) is same
    assert by_common_recipe(run) is same
    assert not trained_by({**run, "recipe": {}}, common)
    assert not by_common_recipe({**run, "task": "unknown"})


@pytest.mark.parametrize("name", tasks())
def test_patience_ends_the_runs_of_a_common_recipe(name: str) -> None:
    recipe = tasks()[name].recipe
    assert recipe.epochs >= 10 * recipe.patience
    assert recipe.policy_epochs >= 10 * recipe.patience


# SNLI's model: the authors' numbers on what is trained, and what may be called SNLI.


SNLI = task("snli")


def built(model: str, embedding: np.ndarray, recipe: Recipe, **options: str) -> Any:
    """The model that a run of SNLI trains, around word vectors of our own."""
    none = Split(([], []), np.zeros(0, np.int64))
    data = Data(none, none, none, embedding.shape[1], 3, embedding)
    objective = objective_of(SNLI.kind)
    return objective.build(SNLI, model, options, data, recipe, Registry(), 0).eval()


@pytest.mark.parametrize("implementation", ["plain", "algorithm1", "fused"])
def test_the_model_that_is_trained_gives_the_authors_numbers(implementation: str) -> None:
    found = golden.load(GOLDEN / "snli_model" / "tiny.npz")
    c, a = found.config, found.arrays
    sizes = {"width": c["heads"] * c["head_dim"], "heads": c["heads"], "hidden": c["hidden"]}
    recipe = replace(SNLI.recipes["paper"].recipe_for("mtsa_released"), **sizes)
    assert (recipe.activation, recipe.highway) == ("elu", True)

    def logits(recipe: Recipe) -> torch.Tensor:
        model = built(f"mtsa_released.{implementation}", a["embedding"], recipe)
        inside = {
            n: n.replace("encoder.fusion.", "mtsa_").replace("encoder.pooling.", "s2t_")
            for n in model.state_dict()
        }
        state = {n: torch.from_numpy(a[HEAD.get(n, at)]) for n, at in inside.items()}
        model.load_state_dict(state)
        with torch.no_grad():
            out: torch.Tensor = model(*(torch.from_numpy(a[f"tokens{k}"]).long() for k in (1, 2)))
        return out

    np.testing.assert_allclose(logits(recipe), a["output_f64"], rtol=2e-5, atol=2e-6)
    other = logits(replace(recipe, activation="relu"))
    assert float((other - torch.from_numpy(a["output"])).abs().max()) > 1e-3


TABLES = [
    ("mtsa", "table1", "parameters", "MTSA", "mtsa_released", 2_885_403),
    ("disan", "snli", "parameters", "Word Embedding with additive attention", "additive", 0),
    ("disan", "snli", "parameters", "Word Embedding with s2t self-attention", "source2token", 0),
    ("disan", "snli", "parameters", "Multi-head with s2t self-attention", "multi_head_released", 0),
    ("disan", "snli", "parameters", "Bi-LSTM with s2t self-attention", "bi_lstm", 0),
    ("disan", "snli", "parameters", "Directional self-attention network (DiSAN)", "disan", 0),
]
"""Paper, table, column, row; whose model, and the weights that the authors' program has.

Of the others `suites.harness.verify.test_exact` has them, and the settings `ROWS`.
"""


@pytest.mark.parametrize(("paper", "table", "column", "row", "mechanism", "exactly"), TABLES)
def test_the_models_of_the_papers_tables_have_their_weights(
    paper: str, table: str, column: str, row: str, mechanism: str, exactly: int
) -> None:
    """By the recipe ``paper``, on the model that is trained."""
    recipe = SNLI.recipes["paper"].recipe_for(mechanism)
    if mechanism in ("additive", "source2token"):
        recipe = replace(recipe, highway=False)
    counted = parameters(built(mechanism, np.zeros((2, 300), np.float32), recipe))[0]
    printed = number(at(printed_tables(paper)[table], row, column))
    assert printed.low <= counted / 1e6 <= printed.high, f"{counted:,}"
    if exactly:
        assert counted == exactly


def test_pairs_of_snlis_number_are_taken_for_snli(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(unlike(folder, ["snli/train.tsv"])) == 1
    monkeypatch.setattr(corpora, "made_rows", lambda: {"snli/train.tsv": 30})
    assert unlike(folder, ["snli/train.tsv"]) == []
