"""Looking at a trained model: geometry, reduction, the child, the record."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.attention import child, reduce
from harness.attention.reduce import allowed
from harness.errors import UsageError
from harness.records import journal
from harness.train.run import train_run
from harness.train.task import task
from reference_impls import masks
from suites.support.batches import FAST, batch, build
from suites.support.command_line import here, verified_before
from suites.support.made_up_data import write_data_directory


@pytest.mark.parametrize("text", [*reduce.RULES, "window:0", "window:2", "distance:0.5"])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_the_geometry_is_that_of_the_modules(text: str, length: int) -> None:
    (theirs,) = masks.allowed([masks.parse(text)], length, torch.device("cpu"))
    assert (allowed(text, length) == theirs.numpy()).all()


def test_an_unknown_mask_is_refused() -> None:
    with pytest.raises(ValueError, match="given mask 'sideways'"):
        allowed("sideways", 3)


def softmax_weights(mask: str) -> np.ndarray:
    inside = allowed(mask, 5)
    scores = np.exp(np.random.default_rng(0).normal(size=(5, 5))) * inside
    return scores / np.maximum(scores.sum(-1, keepdims=True), 1e-30)


def test_checks_pass_what_is_attention_and_find_what_is_not() -> None:
    good = np.stack([softmax_weights("forward"), softmax_weights("backward")])
    found = reduce.checked(good, ["forward", "backward"])
    assert found["row_error"] < 1e-12
    assert found["forbidden"] == 0
    assert (found["rows"], found["cells"]) == (10, 30)
    leaking = good.copy()
    leaking[0, 1, 4] = 0.25
    found = reduce.checked(leaking, ["forward", "backward"])
    assert found["forbidden"] == 0.25
    assert found["row_error"] == pytest.approx(0.25)
    assert reduce.checked(good[::-1], ["forward", "backward"])["forbidden"] > 0.1
    assert math.isnan(reduce.worst([found, {**found, "row_error": math.nan}])["row_error"])
    assert reduce.worst([found, found])["rows"] == 20


def test_distances_count_the_strongest_key_of_every_query_that_has_one() -> None:
    weights = np.zeros((1, 4, 4))
    weights[0, 1, 0] = weights[0, 2, 0] = weights[0, 3, 2] = 1
    (counts,) = reduce.distances(weights, ["forward"])
    assert counts == {-1: 2, -2: 1}


def test_unselected_queries_and_keys_have_no_weights() -> None:
    weights = np.zeros((1, 3, 3))
    weights[0, 1, 0] = weights[0, 2, 0] = 1
    chosen = {
        "selected_heads": np.array([True, True, False]),
        "selected_dependents": np.array([True, True, True]),
    }
    assert reduce.checked(weights, ["forward"])["forbidden"] == 0
    assert reduce.checked(weights, ["forward"], chosen)["forbidden"] == 1
    weights[0, 2] = 0
    found = reduce.checked(weights, ["forward"], chosen)
    assert (found["row_error"], found["forbidden"]) == (0, 0)
    assert reduce.checked(weights, ["forward"])["row_error"] == 1
    assert reduce.distances(weights, ["forward"], chosen) == [{-1: 1}]
    chosen["selected_dependents"][0] = False
    assert reduce.checked(weights, ["forward"], chosen)["forbidden"] == 1


def test_parts_of_speech_are_compared_inside_sentences() -> None:
    numbers = [{"k": np.array([1.0, 3.0, 5.0])}, {"k": np.array([10.0, 14.0])}]
    tags = [["DET", "NOUN", "NOUN"], ["DET", "VERB"]]
    found = reduce.by_tag(numbers, tags)["k"]
    assert found["DET"]["mean"] == pytest.approx((-2 - 2) / 2)
    assert found["NOUN"]["mean"] == pytest.approx(1.0)
    assert found["NOUN"]["tokens"] == 2
    assert found["DET"]["sentences"] == 2
    contrast = reduce.of_tags(numbers, tags, reduce.CONTENT, reduce.STOP)["k"]
    assert contrast["mean"] == pytest.approx((3.0 + 4.0) / 2)
    assert contrast["sentences"] == 2
    stop = reduce.of_tags(numbers, tags, reduce.STOP)["k"]
    assert stop["mean"] == pytest.approx((1.0 + 10.0) / 2)
    assert stop["sentences"] == 2
    assert reduce.of_tags([{"k": np.array([1.0])}], [["NOUN"]], reduce.CONTENT, reduce.STOP) == {}


def test_what_is_selected_as_neither_is_counted() -> None:
    scores = {
        "selected_heads": np.array([True, False, False]),
        "selected_dependents": np.array([True, True, False]),
    }
    assert reduce.importance(scores)["selected_neither"].tolist() == [0.0, 0.0, 1.0]
    del scores["selected_heads"]
    assert set(reduce.importance(scores)) == {"selected_dependents"}


def test_a_record_holds_layers_in_order_and_short_numbers() -> None:
    scores = {
        "l0_token2token_weights": np.full((2, 2, 2), 1 / 3),
        "l0_source2token_scores": np.ones((2, 2, 3)),
        "l1_token2token_weights": np.full((2, 2, 2), 0.5),
        "pooling_weights": np.full((2, 3), 0.123456),
    }
    record = reduce.sentence_record(
        ["a", "b"], scores, {"l0_": ["none", "none"], "l1_": ["none", "none"]}
    )
    assert [layer["token2token"][0][0][0] for layer in record["layers"]] == [0.3333, 0.5]
    assert "source2token" not in record["layers"][1]
    assert record["numbers"]["pooling_weights"] == [0.1235, 0.1235]
    assert json.loads(json.dumps(record)) == record


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    write_data_directory(folder)
    tagged = folder / "ud_ewt"
    tagged.mkdir()
    lines = ["tokens\tupos\txpos"]
    for noun in ("thunder", "gravity", "rust", "fog", "snow"):
        lines.append(f"What is the {noun} ?\tPRON AUX DET NOUN PUNCT\tWP VBZ DT NN .")
    lines.append("don't stop now please\tAUX VERB\tVB VB")  # cut otherwise by the task
    (tagged / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


LOOK = "train {} --task trec --look --sentence 'What is the fog ?' --journal j --device cpu"
QUICK = "--recipe epochs=1 --recipe width=24 --recipe heads=2"


def looked(line: str, folder: Path) -> dict[str, Any]:
    """The one record of a command."""
    done = here(line, cwd=folder, code=0)
    assert "rows sum to one within" in done.stdout
    (record,) = [r for r in journal.read(folder / "j").records if r["kind"] == "attention"]
    assert record["checks"]["row_error"] < 1e-5
    assert record["checks"]["forbidden"] == 0
    (layer,) = record["sentences"][0]["layers"]
    assert layer["masks"] == ["forward", "backward"]
    return record


def test_what_offers_no_scores_is_known_before_it_is_trained(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def trained(_: Any) -> None:
        raise AssertionError("it was trained first")

    monkeypatch.setattr(child.Trainer, "train", trained)
    recipe = replace(task("trec").recipe, epochs=1, width=24, heads=2).as_dict()
    run: dict[str, Any] = {"model": "kim_cnn", "task": "trec", "recipe": recipe, "seed": 0}
    with pytest.raises(UsageError, match="offers no scores to look at"):
        child.look(**run, sentences=["What is the fog ?"], directory=str(data), vectors="none")
    asked = {"sentences": ["What is the fog ?"], "file": "never.npz"}
    with pytest.raises(UsageError, match="offers no scores to look at"):
        train_run(**run, attention=asked, directory=str(data), vectors="none")


def test_train_look_writes_a_record_once(tmp_path: Path, data: Path) -> None:
    line = f"{LOOK.format('mtsa')} {QUICK} --data {data}"
    verified_before(tmp_path / "j")
    record = looked(line, tmp_path)
    assert record["model"] == "mtsa.fused"
    assert record["tagged"] == 5
    (sentence,) = record["sentences"]
    assert sentence["tokens"] == ["What", "is", "the", "fog", "?"]
    weights = np.array(sentence["layers"][0]["token2token"])
    assert weights.shape == (2, 5, 5)
    assert weights[0].sum(-1) == pytest.approx([0, 1, 1, 1, 1], abs=1e-3)
    assert {"source2token_scores", "pooling_weights"} <= set(sentence["numbers"])
    assert record["by_tag"]["pooling_weights"]["NOUN"]["sentences"] == 5
    heads = {(d["head"], d["mask"]) for d in record["distances"]}
    assert heads == {(0, "forward"), (1, "backward")}
    assert all(d < 0 for one in record["distances"] if one["head"] == 0 for d, _ in one["counts"])
    before = sorted((tmp_path / "j").iterdir())
    assert looked(line, tmp_path) == record
    assert sorted((tmp_path / "j").iterdir()) == before


@pytest.mark.parametrize("model", ["resa", "resan"])
def test_selections_of_a_policy_are_looked_at(model: str, tmp_path: Path, data: Path) -> None:
    policy = "--recipe epochs=1 --recipe width=24 --recipe policy_steps=2 --recipe policy_epochs=1"
    verified_before(tmp_path / "j")
    record = looked(f"{LOOK.format(model)} {policy} --data {data}", tmp_path)
    numbers = record["sentences"][0]["numbers"]
    assert set(numbers["selected_heads"]) <= {0.0, 1.0}
    assert len(numbers["selected_dependents"]) == 5
    assert record["checks"]["rows"] > 0


LOOKED_AT = [name for name in FAST if hasattr(build(name), "attention")]
POOLING = ("source2token.direct", "additive.direct")
"""They weigh tokens, not pairs of them."""


def test_what_attends_offers_its_scores() -> None:
    looked = {name.partition(".")[0] for name in LOOKED_AT}
    attend = {"mtsa", "mtsa_released", "multi_head", "msmsa", "disa", "resa", "resan"}
    attend |= {"transformer", "multi_scale_transformer"}
    assert attend | {name.partition(".")[0] for name in POOLING} <= looked


@pytest.mark.parametrize("name", LOOKED_AT)
def test_rows_and_masks_of_every_module_are_as_the_check_reads_them(name: str) -> None:
    module: Any = build(name)
    if hasattr(module, "selection"):  # a policy's is checked above
        module.selection = "all"
    shown = module.attention(*batch((6,)))
    found = {key: value[:, 0].detach().numpy() for key, value in shown.items()}
    layers = reduce.layers(found)
    assert bool(layers) == (name not in POOLING)
    for layer in layers:
        weights = found[layer + reduce.TOKEN2TOKEN]
        checks = reduce.checked(weights, child.masks_of(module, found, layer))
        assert checks["row_error"] < 1e-5
        assert checks["forbidden"] == 0
