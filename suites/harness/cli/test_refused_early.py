"""What can't be done is refused before anything is trained; and help texts are shown whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from harness.cli import app
from harness.cli import run as cli
from harness.errors import UsageError
from harness.experiments.conclusion import conclude
from harness.experiments.design import Surroundings, make_design
from harness.experiments.model import check_read, meaning, one_sided, parse_model
from harness.experiments.sweep import Part, make_sweep
from harness.registry import Registry
from harness.train.task import task

MIRRORED = ("--models", "mtsa", "--tasks", "mirrored_summation")
TASK = "mirrored_summation[length=4,width=4,k=2,train=200,test=100]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "mtsa", "--task", TASK, "--json", "no/such.json"),
         "can't write --json no/such.json"),
        (("train", "mtsa", "--task", TASK, "--recipe", "paper"),
         f"given 'paper'; expected NAME=VALUE or MODEL:NAME=VALUE; {TASK} has no recipe with a"),
        (("train", "mtsa", "--task", TASK, "--recipe", "highway=true"),
         "--recipe highway=true: highway is read for classification of pairs alone, and of"),
        (("train", "mtsa", "--task", TASK, "--recipe", "mtsa:degree_loss=squared"),
         "degree_loss is read for relatedness alone"),
        (("compare", "mtsa", "multi_head", "--task", TASK, "--recipe", "policy_steps=3"),
         "only a mechanism with a policy reads policy_steps, and of mtsa.fused, multi_head.sdpa"),
        (("sweep", "--models", "mtsa,resa", "--tasks", TASK, "--recipe", "mtsa:policy_steps=3"),
         "only a mechanism with a policy reads policy_steps, and of mtsa.fused none has one"),
        (("train", "bi_lstm", "--task", TASK, "--recipe", "bi_lstm:heads=3"),
         "only a mechanism with heads reads heads, and of bi_lstm.packed none has any; leave it"),
        (("compare", "mtsa", "none", "--task", TASK, "--recipe", "none:attention_dropout=0.2"),
         "only a mechanism with attention dropout reads attention_dropout, and of none.fused none"),
        (("train", "additive", "--task", TASK, "--recipe", "additive:width=8"),
         "only a mechanism with a width of its own reads width, and of additive.direct none has"),
        (("train", "mtsa[heads=2]", "--task", TASK, "--recipe", "mtsa:heads=4"),
         "mtsa:heads=4: the options of mtsa.fused[heads=2] say heads themselves; leave out one"),
        (("train", "mtsa", "--task", TASK, "--recipe", "word_width=7"),
         "word_width is read for words without vectors (--vectors none) alone, and of mirrored"),
        (("compare", "mtsa", "none", "--task", "trec", "--recipe", "word_width=7"),
         "word_width is read for words without vectors (--vectors none) alone, and of trec none"),
        (("sweep", "--models", "mtsa", "--tasks", "trec", "--recipe", "word_width=7", "--vectors",
          "sick_840B_300d", "--dry-run"), "word_width is read for words without vectors"),
        (("compare", "mtsa", "mtsa[scale_t=log_sigmoid]", "--task", TASK),
         "compared with itself, as which mtsa.fused[scale_t=log_sigmoid] is the same; give two"),
        (("train", "mtsa[scale_t=identity,scale_t=log_sigmoid]", "--task", TASK),
         "with scale_t twice; expected each option once"),
        (("sweep", "--models", "mtsa", "--tasks", TASK, "--recipe", "activation=elu", "--dry-run"),
         "activation is read for classification of pairs alone"),
        (("train", "mtsa", "--task", "trec", "--recipe", "highway=true"),
         "highway is read for classification of pairs alone, and of trec none is"),
        (("sweep", "--models", "none", "--tasks", TASK, "--vectors", "/no/such/file", "--dry-run"),
         "--vectors: "),
        (("sweep", "--models", "mtsa[foo=1]", "--tasks", TASK, "--dry-run"),
         f"mtsa.fused[foo=1] on {TASK} can't be built: "),
        (("bench", "--only", "mtza"), "unknown mechanism 'mtza'; did you mean mtsa"),
        (("bench", "--only", "mtsa@3", "--width", "300x600"), "even number"),
        (("bench", "--nonsense"), "No such option: --nonsense"),
        (("verify", "mtza"), "did you mean mtsa"),
        (("verify", "--with", "no_such_package:thing"), "no module 'no_such_package'"),
        (("frontier", "mtza"), "did you mean mtsa"),
        (("frontier", "mtsa", "--memory", "900TiB"), "are free and at most 90% of them are used"),
        (("frontier", "mtsa@3"), "even number"),
        (("compare", "mtsa", "multi_hed"), "unknown mechanism 'multi_hed'; did you mean"),
        (("compare", "mtsa", "mtsa"), "compared with itself; give two different models"),
        (("compare", "mtsa", "disa", "bi_lstm"), "given 3 models; expected two"),
        (("compare", "--task", "trek"), "unknown task 'trek'; did you mean trec?"),
        (("compare", "--task", "trec"), "set --data DIR or ATTNBENCH_DATA"),
        (("compare", "--seeds", "0"), "expected at least one"),
        (("compare", "--seeds", "²"), "--seeds: given '²'; expected a number of seeds"),
        (("compare", "multi_cnn", "bi_lstm", "--recipe", "width=64"), "(--recipe width=... heads"),
        (("compare", "--seeds", "1,1"), "each of them once"),
        (("compare", "--margin", "inf"), "--margin: given 'inf'; expected a positive number"),
        (("compare", "--margin", "nan"), "--margin: given 'nan'; expected a positive number"),
        (("compare", "--task", "trec", "--data", ".", "--margin", "2"), "one point of accuracy is"),
        (("compare", "--recipe", "choose=last"), "choose='last'; expected dev or best-on-test"),
        (("compare", "--recipe", "lr=1"), "a recipe has no 'lr'; it has width"),
        (("compare", "--recipe", "disa:rate=1"), "names 'disa'; the models are mtsa, mtsa.fus"),
        (("compare", "--recipe", "epochs=1.5"), "epochs=1.5; expected int"),
        (("compare", "--recipe", "heads"), "expected NAME=VALUE or MODEL:NAME=VALUE"),
        (("compare", "--vectors", "none"), "--vectors: task mirrored_summation draws its own"),
        (("compare", "--data", "."), "--data: task mirrored_summation draws its own data"),
        (("compare", "mtsa[scale_t=tanh]", "multi_head", "--seeds", "1"), "scale_t='tanh'"),
        (("train", "mtsa", "--save-attention", "a"), "needs sentences"),
        (("train", "mtsa", "--save-attention", "a", "--sentence", "b"), "has no sentences"),
        (("sweep", "plan.toml"), "can't read the sweep plan.toml"),
        (("sweep", "--models", "mtsa", "--tasks", "trek"), "unknown task 'trek'; did you mean"),
        (("sweep", "--models", "mtsa,mtsb", "--tasks", "trec"), "unknown mechanism 'mtsb'"),
        (("sweep", *MIRRORED, "--folds"), "none of mirrored_summation is a task with folds"),
        (("sweep", *MIRRORED, "--data", "."), "--data: mirrored_summation draw their own data"),
        (("sweep", *MIRRORED, "--per-gpu", "2"), "--per-gpu: this sweep is on the CPU"),
        (("sweep", *MIRRORED, "--recipe", "lr=1"), "a recipe has no 'lr'"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_done(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ATTNBENCH_DATA", raising=False)
    assert cli([*arguments, "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("explain", "mtza"), "unknown mechanism 'mtza'; did you mean mtsa"),
        (("list", "--with", "no_such_package:thing"), "no module 'no_such_package'"),
    ],
)
def test_a_command_without_a_device_refuses_in_one_line(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli([*arguments]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "model", "name"),
    [
        ("policy_steps=3", "resa", "trec"), ("policy_steps=3", "resan", "sick_relatedness"),
        ("degree_loss=squared", "mtsa", "sick_relatedness"), ("highway=true", "mtsa", "snli"),
        ("activation=elu", "mtsa", "sick_entailment"),
        ("paper", "mtsa", "trec"), ("epochs=3", "none", "mirrored_summation"),
        ("heads=3", "bi_lstm", "trec"), ("attention_dropout=0.2", "none", "trec"),
        ("width=8", "additive", "trec"), ("heads=4", "mtsa[heads=2]", "trec"),
        ("resan:width=8", "resan", "trec"), ("paper", "mtsa[attention_dropout=0.1]", "cr"),
        ("resa:heads=3", "mtsa", "trec"),
    ],
)  # fmt: skip
def test_what_a_run_reads_is_taken(text: str, model: str, name: str) -> None:
    registry = Registry()
    check_read([text], [parse_model(model, registry)], [task(name)], registry)


@pytest.mark.parametrize("command", ["train", "compare", "sweep"])
def test_a_width_of_words_is_taken_where_no_table_gives_one(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    # What is refused then is the data directory, which is looked for after the recipe.
    given = {
        "train": ("mtsa", "--task", "trec"),
        "compare": ("mtsa", "none", "--task", "trec"),
        "sweep": ("--models", "mtsa", "--tasks", "trec", "--dry-run"),
    }[command]
    monkeypatch.chdir(tmp_path)
    options = ("--recipe", "word_width=7", "--vectors", "none", "--data", "nowhere")
    assert cli([command, *given, *options, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "nowhere" in said
    assert "word_width" not in said


OWN = """
class Own:
    def __init__(self, d_in, d_out, *, heads=2, scale=1.0, note=None):
        pass
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    (tmp_path / "own_unread.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    return Registry(["own_unread:Own"])


def test_heads_may_be_read_by_a_mechanism_of_the_users_own(own: Registry) -> None:
    models, tasks = [parse_model("Own", own)], [task("trec")]
    check_read(["Own:heads=3"], models, tasks, own)
    with pytest.raises(UsageError, match="only a mechanism with attention dropout reads"):
        check_read(["Own:attention_dropout=0.1"], models, tasks, own)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("Own[scale=1]", "Own.module"), ("Own[note=none]", "Own.module"),
        ("Own[scale=2.0]", "Own.module[scale=2]"), ("Own[scale=true]", "Own.module[scale=True]"),
        # The recipe says how many heads there are, whatever the factory does without one; and
        # of an option that its signature does not name nothing is known.
        ("Own[heads=2]", "Own.module[heads=2]"), ("Own[other=2.0]", "Own.module[other=2.0]"),
    ],
)  # fmt: skip
def test_a_mechanism_of_the_users_own_is_asked_for_its_defaults(
    text: str, means: str, own: Registry
) -> None:
    assert meaning(parse_model(text, own), own) == means


def _one_sided(first: str, second: str, name: str = "cr", **changes: Any) -> tuple[str, ...]:
    registry, recipe = Registry(), replace(task(name).recipe, **changes)
    models = [parse_model(first, registry), parse_model(second, registry)]
    return one_sided(models, task(name), [recipe, recipe], registry)


def test_what_only_one_of_two_models_reads_is_told() -> None:
    assert _one_sided("mtsa", "multi_head", attention_dropout=0.2) == (
        "attention_dropout=0.2 is read by mtsa.fused alone, not by multi_head.sdpa",
    )
    assert _one_sided("resa", "mtsa", attention_dropout=0.2, heads=3, rate=0.1, policy_steps=7) == (
        "policy_steps=7 is read by resa.gathered alone, not by mtsa.fused",
        "heads=3, attention_dropout=0.2 are read by mtsa.fused alone, not by resa.gathered",
    )
    assert _one_sided("mtsa[attention_dropout=0.1]", "mtsa", attention_dropout=0.2) == (
        "attention_dropout=0.2 is read by mtsa.fused alone, not by "
        "mtsa.fused[attention_dropout=0.1]",
    )
    # What both read, neither, or is the common recipe's is nothing to tell.
    assert not _one_sided("mtsa", "mtsa_released", attention_dropout=0.2, heads=3)
    assert not _one_sided("resa", "bi_lstm", attention_dropout=0.2)
    assert not _one_sided("mtsa", "bi_lstm")


def test_a_comparison_warns_of_what_only_one_model_reads() -> None:
    around = Surroundings(Registry(), {"device": "cpu"})
    models = [parse_model(name, around.registry) for name in ("mtsa", "multi_head")]
    recipe = replace(task("trec").recipe, attention_dropout=0.2)
    design = make_design(models, task("trec"), [recipe, recipe], (0, 1, 2), around).record
    says = "attention_dropout=0.2 is read by mtsa.fused alone, not by multi_head.sdpa"
    assert says in conclude(design, [design]).warnings
    usual = [task("trec").recipe] * 2
    plain = make_design(models, task("trec"), usual, (0, 1, 2), around).record
    assert not [text for text in conclude(plain, [plain]).warnings if " alone, " in text]


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("mtsa", "mtsa.fused"),
        ("mtsa[scale_t=log_sigmoid]", "mtsa.fused"),
        ("mtsa[scale_s=identity,scale_t=identity]", "mtsa.fused[scale_t='identity']"),
        ("mtsa[scale_s=log_sigmoid,scale_t=identity]",
         "mtsa.fused[scale_s='log_sigmoid',scale_t='identity']"),
        ("mtsa[scale_t=identity,scale_s=log_sigmoid]",
         "mtsa.fused[scale_s='log_sigmoid',scale_t='identity']"),
        ("mtsa_released[directional=true]", "mtsa_released.fused"),
        ("mtsa_released[directional=1]", "mtsa_released.fused[directional=1]"),
        ("multi_scale_transformer[alpha=.5,layers=3]",
         "multi_scale_transformer.windowed[layers=3]"),
        ("mtsa[masks=forward;none]", "mtsa.fused[masks=['forward', 'none']]"),
        ("multi_scale_transformer[alpha=1]", "multi_scale_transformer.windowed[alpha=1]"),
        ("multi_scale_transformer[alpha=1.0]", "multi_scale_transformer.windowed[alpha=1]"),
        ("multi_scale_transformer[alpha=0.250]", "multi_scale_transformer.windowed[alpha=0.25]"),
        ("msmsa[scales=1.0;3;n/4]", "msmsa.windowed[scales=[1, 3, 'n/4']]"),
        ("kim_cnn[kernel_sizes=3;4;5]", "kim_cnn.conv"),
        # What the recipe sets counts where nothing is given.
        ("mtsa[attention_dropout=0]", "mtsa.fused[attention_dropout=0]"),
        ("transformer[preset=mirrored_transformer,layers=1]",
         "transformer.sdpa[layers=1,preset='mirrored_transformer']"),
        ("transformer[preset=mirrored_transformer,layers=2]",
         "transformer.sdpa[preset='mirrored_transformer']"),
    ],
)  # fmt: skip
def test_a_model_is_what_it_is_however_it_was_typed(text: str, means: str) -> None:
    registry = Registry()
    assert meaning(parse_model(text, registry), registry) == means


def test_one_model_typed_in_two_ways_is_one_run() -> None:
    around = Surroundings(Registry(), {"device": "cpu"})
    part = Part(
        ("mtsa", "mtsa[scale_t=log_sigmoid]", "mtsa[scale_t=identity]"),
        ("mirrored_summation",),
        (0,),
    )
    entries = make_sweep([part], around.registry, lambda _task, _vectors: around).entries
    assert [str(entry.run.model) for entry in entries] == [
        "mtsa.fused", "mtsa.fused[scale_t=identity]"
    ]  # fmt: skip


def test_one_question_asked_in_two_spellings_is_one() -> None:
    around = Surroundings(Registry(), {"device": "cpu"})
    recipes = [task("trec").recipe] * 2

    def asked(*names: str) -> str:
        models = [parse_model(name, around.registry) for name in names]
        return make_design(models, task("trec"), recipes, (0, 1, 2), around).record["question"]

    assert asked("mtsa", "multi_head") == asked("multi_head", "mtsa[scale_t=log_sigmoid]")
    assert asked("mtsa", "multi_head") != asked("mtsa[scale_t=identity]", "multi_head")


def test_a_field_that_one_of_several_tasks_reads_is_taken() -> None:
    registry = Registry()
    models, tasks = [parse_model("mtsa", registry)], [task("trec"), task("sick_relatedness")]
    check_read(["degree_loss=squared"], models, tasks, registry)
    with pytest.raises(UsageError, match=r"of trec none is; leave it out"):
        check_read(["degree_loss=squared"], models, tasks[:1], registry)


def _helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    for text in (command.help, *(getattr(p, "help", None) for p in command.params)):
        if text:
            yield path, text
    for name, one in getattr(command, "commands", {}).items():
        yield from _helps(one, f"{path} {name}")


def test_no_example_in_a_help_text_is_taken_for_markup() -> None:
    helps = list(_helps(typer.main.get_command(app), "attnbench"))
    assert len(helps) > 100
    for path, text in helps:
        shown = Text.from_markup(text).plain
        written = re.sub(r"\[/?(bold)?\]", "", text).replace("\\[", "[")
        assert shown == written, path
