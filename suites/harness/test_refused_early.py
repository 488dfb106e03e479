"""What can't be done is refused before anything is trained; and help texts are shown whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from harness.cli import app
from harness.cli import run as cli
from harness.errors import UsageError
from harness.experiments.design import Surroundings, meaning, parse_model
from harness.experiments.sweep import Part, make_sweep
from harness.experiments.unread import check_read
from harness.registry import Registry
from harness.train.task import task

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
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_done(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli([*arguments, "--device", "cpu"]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "model", "name"),
    [
        ("policy_steps=3", "resa", "trec"), ("policy_steps=3", "resan", "sick_relatedness"),
        ("degree_loss=squared", "mtsa", "sick_relatedness"), ("highway=true", "mtsa", "snli"),
        ("activation=elu", "mtsa", "sick_entailment"),
        ("paper", "mtsa", "trec"), ("epochs=3", "none", "mirrored_summation"),
        ("heads=3", "bi_lstm", "trec"), ("attention_dropout=0.2", "none", "trec"),
    ],
)  # fmt: skip
def test_what_a_run_reads_is_taken(text: str, model: str, name: str) -> None:
    registry = Registry()
    check_read([text], [parse_model(model, registry)], [task(name)], registry)


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
        # What the recipe sets counts where nothing is given; of a preset nothing is so anyway.
        ("mtsa[attention_dropout=0]", "mtsa.fused[attention_dropout=0]"),
        ("transformer[preset=mirrored_transformer,layers=1]",
         "transformer.sdpa[layers=1,preset='mirrored_transformer']"),
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
