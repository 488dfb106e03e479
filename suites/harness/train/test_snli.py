"""SNLI's model: the authors' numbers on what is trained, and what may be called SNLI."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.records import journal
from harness.registry import Registry
from harness.train.data import corpora
from harness.train.data.corpora import unlike
from harness.train.encoder import parameters
from harness.train.objective import objective_of
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, task
from harness.verify import golden
from reference_impls.golden_encoders import HEAD
from reports.claims.printed import at, load, number
from suites.support.command_line import ROOT, here

GOLDEN = ROOT / "suites" / "harness" / "verify" / "golden" / "snli_model" / "tiny.npz"
SNLI = task("snli")


def built(model: str, embedding: np.ndarray, recipe: Recipe, **options: str) -> Any:
    """The model that a run of SNLI trains, around word vectors of our own."""
    none = Split(([], []), np.zeros(0, np.int64))
    data = Data(none, none, none, embedding.shape[1], 3, embedding)
    objective = objective_of(SNLI.kind)
    return objective.build(SNLI, model, options, data, recipe, Registry(), 0).eval()


@pytest.mark.parametrize("implementation", ["plain", "algorithm1", "fused"])
def test_the_model_that_is_trained_gives_the_authors_numbers(implementation: str) -> None:
    found = golden.load(GOLDEN)
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
    ("mtsa", "table1", "parameters", "Bi-LSTM", "bi_lstm", 2_884_803),
    ("mtsa", "table1", "parameters", "Bi-GRU", "bi_gru_released", 2_524_203),
    ("mtsa", "table1", "parameters", "Multi-CNN", "kim_cnn_released", 1_441_803),
    ("mtsa", "table1", "parameters", "Hrchy-CNN", "hrchy_cnn_released", 3_424_203),
    ("mtsa", "table1", "parameters", "Multi-head", "multi_head_released", 1_982_403),
    ("mtsa", "table1", "parameters", "DiSA", "disa", 2_345_403),
    ("mtsa", "table1", "parameters", "Bi-BloSA", "biblosa_released", 4_148_403),
    ("resan", "table1", "parameters", "300D ReSAN", "resan", 3_067_205),
    ("disan", "snli", "parameters", "Word Embedding with additive attention", "additive", 0),
    ("disan", "snli", "parameters", "Word Embedding with s2t self-attention", "source2token", 0),
    ("disan", "snli", "parameters", "Multi-head with s2t self-attention", "multi_head_released", 0),
    ("disan", "snli", "parameters", "Bi-LSTM with s2t self-attention", "bi_lstm", 0),
    ("disan", "snli", "parameters", "Directional self-attention network (DiSAN)", "disan", 0),
]
"""Paper, table, column, row; whose model, and the weights that the authors' program has."""


@pytest.mark.parametrize(("paper", "table", "column", "row", "mechanism", "exactly"), TABLES)
def test_the_models_of_the_papers_tables_have_their_weights(
    paper: str, table: str, column: str, row: str, mechanism: str, exactly: int
) -> None:
    """By the recipe ``paper``, on the model that is trained."""
    recipe = SNLI.recipes["paper"].recipe_for(mechanism)
    if mechanism in ("additive", "source2token"):
        recipe = replace(recipe, highway=False)
    counted = parameters(built(mechanism, np.zeros((2, 300), np.float32), recipe))[0]
    printed = number(at(load(paper)[table], row, column))
    assert printed.low <= counted / 1e6 <= printed.high, f"{counted:,}"
    if exactly:
        assert counted == exactly


# Trained end to end, on pairs in SNLI's columns that are not SNLI.


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two models by the paper's recipe made small, compared, and what the command said."""
    place = tmp_path_factory.mktemp("runs")
    small = "width=12 heads=2 hidden=10 epochs=2 batch=10 optimiser=adam rate=1e-2 highway=true"
    line = f"compare mtsa_released multi_head --task snli --seeds 1 --device cpu --data {folder}"
    recipe = [text for one in ("paper", *small.split()) for text in ("--recipe", one)]
    done = here(line, *recipe, "--json", "out.json", cwd=place)
    assert done.returncode == 0, done.stdout + done.stderr
    return place, " ".join((done.stdout + done.stderr).split())


def test_pairs_are_trained_on_by_the_command(trained: tuple[Path, str]) -> None:
    runs = [r for r in journal.read(trained[0] / "results").records if r["kind"] == "run"]
    assert {r["model"] for r in runs} == {"mtsa_released.fused", "multi_head.sdpa"}
    for r in runs:
        assert r["status"] == "ok"
        assert r["examples"] == {"train": 30, "dev": 30, "test": 30}
        assert (r["recipe"]["activation"], r["recipe"]["highway"]) == ("elu", True)
        assert len(r["epochs"]) == 2
        assert 0 <= r["test"]["accuracy"] <= 1


def test_what_is_trained_on_other_data_is_not_called_snli(
    trained: tuple[Path, str], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, said = trained
    assert "snli/train.tsv in" in said
    assert "not snli: trained on 30 examples, snli has 549,367" in said
    conclusion = json.loads((place / "out.json").read_text())
    assert any(w.startswith("not snli: ") for w in conclusion["warnings"])
    (wrong,) = unlike(folder, ["snli/train.tsv"])
    assert "30 examples, expected 549,367; what is trained on it is not SNLI" in wrong.detail
    monkeypatch.setattr(corpora, "made_rows", lambda: {"snli/train.tsv": 30})
    assert unlike(folder, ["snli/train.tsv"]) == []
