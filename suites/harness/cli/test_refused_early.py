"""What can't be done is refused before anything is trained; and help texts are shown whole."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from harness.cli import app, run
from harness.errors import UsageError
from harness.experiments.conclusion import conclude
from harness.experiments.design import Surroundings, make_design
from harness.experiments.model import check_read, meaning, one_sided, parse_model
from harness.experiments.sweep import Part, make_sweep
from harness.registry import Registry
from harness.train.task import task
from suites.support.command_line import TOY, here

MISTAKES = """
train mtsa --task trec --recipe highway=true
    highway is read for classification of pairs alone, and of trec none is
compare mtsa multi_head --task TASK --recipe policy_steps=3
    only a mechanism with a policy reads policy_steps, and of mtsa.fused, multi_head.sdpa
compare mtsa none --task trec --recipe layers=2
    layers is read for translation alone, and of trec none is
compare mtsa none --task multi30k --recipe word_width=7
    word_width is read for words without vectors (--vectors none) alone, and of multi30k none
compare mtsa none --task trec --recipe word_width=7
    word_width is read for words without vectors (--vectors none) alone, and of trec none
sweep --models mtsa,resa --tasks TASK --recipe mtsa:policy_steps=3
    only a mechanism with a policy reads policy_steps, and of mtsa.fused none has one
sweep --models mtsa --tasks trec --recipe word_width=7 --vectors sick_840B_300d --dry-run
    word_width is read for words without vectors
sweep --models none --tasks TASK --vectors /no/such/file --dry-run
    --vectors: TASK draw their own data; leave it out
sweep --models mtsa[foo=1] --tasks TASK --dry-run
    mtsa.fused[foo=1] on TASK can't be built:
sweep plan.toml
    can't read the sweep plan.toml
sweep --models mtsa --tasks trek
    unknown task 'trek'; did you mean
sweep --models mtsa,mtsb --tasks trec
    unknown mechanism 'mtsb'
sweep --models mtsa --tasks mirrored_summation --data .
    --data: mirrored_summation draw their own data
sweep --models mtsa --tasks mirrored_summation --per-gpu 2
    --per-gpu: this sweep is on the CPU
bench --only mtza
    unknown mechanism 'mtza'; did you mean mtsa
bench --only mtsa.fused@2 --heads 4
    --heads: given 4 beside mtsa.fused@2; give one
frontier mtsa@2 --heads 2
    --heads: given 2 beside mtsa@2; give one
train multi_head --task trec --look --save-attention a.npz
    --save-attention: a look trains if it must and keeps no scores; leave one out
train multi_head --task trec --look --again
    --again: a look trains if it must and keeps no scores; leave one out
compare --with harness.cli:run --with harness.json_file:write_json
    --with gives run, write_json; name two of them to compare, or all against one: --baseline mult
compare --with harness.cli:run mtsa multi_head
    --with gives run, and mtsa, multi_head names none of it; name it too, or leave --with out
compare --with harness.cli:run mtsa --baseline multi_head
    --with gives run, and mtsa, multi_head names none of it; name it too, or leave --with out
bench --dry-run --with harness.cli:run --only mtsa.fused@2
    --with gives run, and mtsa.fused names none of it; name it too, or leave --with out
verify mtsa[scale_t=identity] --with harness.cli:run
    --with gives run, and mtsa[scale_t=identity] names none of it; name it too, or leave --with out
verify --stress mtsa --with harness.cli:run
    --with gives run, and mtsa names none of it; name it too, or leave --with out
sweep --models mtsa --tasks trec --with harness.cli:run --dry-run
    --with gives run, and mtsa names none of it; name it too, or leave --with out
bench --only mtsa[heads=4]@2
    mtsa.plain[heads=4]: how many heads a case has is no option of it; write mtsa.plain@4
bench --only mtsa@3 --width 300x600
    even number
bench --only mtsa@²
    given 'mtsa@²'; expected a number of heads after '@'
bench --dry-run --only mtsa.plain[scale_t=bogus]
    mtsa.plain[scale_t=bogus] can't be built: scale_t='bogus'; expected 'log_sigmoid' or 'identity'
bench --dry-run --only bi_lstm.packed --option forget=1
    bi_lstm.packed[forget=1] can't be built:
frontier mtsa.plain[bogus=1]
    mtsa.plain[bogus=1] can't be built: mtsa has no option 'bogus'
train mtsa --recipe rate=inf
    rate=inf; expected a number below 2**63
train mtsa --recipe weight_decay=inf
    weight_decay=inf; expected a number below 2**63
train mtsa --recipe width=100000000000000000000
    width=100000000000000000000; expected a number below 2**63
train mtsa --recipe epochs=٣
    epochs=٣; expected a whole number
verify bi_lstm --large --device cpu
    --large: large shapes say nothing of these on cpu; expected e.g. mtsa.fused_tiled
verify --large --stress --exact
    given --large --stress --exact; each is a run of its own, give one
bench --nonsense
    No such option: --nonsense
verify mtza
    did you mean mtsa
verify --with no_such_package:thing
    no module 'no_such_package'
frontier mtsa --memory 900TiB
    are free and at most 90% of them are used
frontier mtsa@3
    even number
compare mtsa multi_hed
    unknown mechanism 'multi_hed'; did you mean
compare mtsa mtsa
    compared with itself; give two different models
compare mtsa mtsa[scale_t=log_sigmoid] --task TASK
    compared with itself, as which mtsa.fused[scale_t=log_sigmoid] is the same; give two
compare mtsa multi_head --baseline multi_head
    compared with itself
compare mtsa disa bi_lstm
    given 3 models; expected two, e.g. compare mtsa multi_head, or all against one: --baseline bi
compare --baseline disa --all multi_head
    --all BASELINE compares every mechanism
compare mtsa mtsa[scale_t=log_sigmoid] disa --baseline multi_head
    expected each model once
compare mtsa multi_head --task TASK --recipe heads=5
    is not divisible by 5 heads; give a multiple (--recipe width=... heads=...)
compare --task trek
    unknown task 'trek'; did you mean trec?
compare --task trec
    set --data DIR or ATTNBENCH_DATA
compare --task trec --task trec --data .
    --task: given trec, trec
compare --data .
    --data: task mirrored_summation draws its own data
compare --vectors none
    --vectors: task mirrored_summation draws its own
compare --seeds 0
    expected at least one
compare --seeds 1,1
    each of them once
compare --margin trec:1%
    'trec' is not compared; the tasks are mirrored_summation
compare --margin 1 --margin 2
    --margin: given 1 and 2 for mirrored_summation
compare --task trec --data . --margin 2
    one point of accuracy is
compare --task mirrored_summation --task sick_relatedness --margin 1
    have different metrics; give one each
compare --recipe choose=last
    choose='last'; expected dev or best-on-test
compare --recipe disa:rate=1
    names 'disa'; the models are mtsa, mtsa.fus
train mtsa[scale_t=identity,scale_t=log_sigmoid] --task TASK
    option: given scale_t twice; expected each option once
train mtsa --save-attention a
    scores need a sentence; none was given
compare mtsa --task cr --data . --unpaired
    --unpaired: cr is judged by 10 folds, which both models share
compare --all multi_head --unpaired
    --unpaired is for two models on one task
compare mtsa --task trec --task mr --data . --unpaired
    --unpaired is for two models on one task
train mtsa --save-attention a --sentence b
    has no sentences
train mtsa --look
    has no sentences; use a text task
train none --task cr --vectors none --data hub
    no data set of the hub gives the rows of cr
train mtsa --task trec --data hub
    'top10k_100d_int8' are a table of a data directory
"""
NO_DEVICE = """
nonsense
    No such command 'nonsense'
explain mtza
    unknown mechanism 'mtza'; did you mean mtsa
explain mtsa.nosuch
    mtsa has no implementation 'nosuch'; it has
list --with no_such_package:thing
    no module 'no_such_package'
list --with suites.support.misbehaving.exits:Mean
    importing suites.support.misbehaving.exits failed: SystemExit: 0
list --with harness.cli:run --with harness.cli.app:run
    'run' is the name of two that --with gives: harness.cli:run, harness.cli.app:run; rename one
plan --effect 1e-9 --sd 1
    more than 10,000,000 are needed
plan --from . --models mtsa multi_head --task trec --effect 0.5%
    0 seeds were trained with both
plan --from . --models mtsa mult --task trec --effect 1%
    unknown mechanism 'mult'
plan --effect 1
    give --sd, or --from DIR --models A B --task T
plan --effect 0.5% --sd 0.8
    expected both with % or both without
plan --effect 0.5 --sd 0.8%
    given --effect 0.5, --sd 0.8%; expected
plan --effect 1 --sd 1 --alpha 1e-16
    given --alpha 1e-16 and --comparisons 1; expected 1e-09 or more for each comparison
plan --effect 1 --sd 1 --comparisons 9223372036854775807
    given --alpha 0.05 and --comparisons 9,223,372,036,854,775,807; expected 1e-09 or more
plan --effect 1 --sd 1 --alpha 0.9
    expected the power larger
plan --effect 1 --sd 1 --unpaired --correlation 0
    --correlation is of pairs
plan --effect 1 --sd 1 --task trec
    --task is for --from DIR
plan --effect 1 --sd 1 --with a:b
    --with is for --from DIR
plan --effect 1 --sd 1 --from .
    --sd is estimated with --from
plan --effect 1 --from .
    --from needs --models A B and --task T
compare mtsa --all none
    compares every mechanism; name no others
sweep
    no --models; expected e.g. sweep --models mtsa,multi_head --tasks
sweep --models mtsa
    no --tasks; expected e.g. sweep
sweep a.toml --models mtsa
    --models beside a.toml: write it into the file
sweep --executor ray --jobs 2
    --jobs is for --executor local
sweep --gpus-per-run 1
    --gpus-per-run is for --executor ray; leave it out
verify --golden . --dtypes bf16 --option heads=3
    --dtypes --option: golden files say themselves how; leave it out
verify mtsa --exact --dtypes f64
    --dtypes: exact claims say themselves how; leave it out
verify mtsa --exact --resume
    --resume: exact claims say themselves how; leave it out
verify --golden . --stress
    given --stress --golden; each is a run of its own, give one
report --docs --like a.toml
    --like is of your own report; leave it out beside --docs
report --check
    --check is for --docs
verify mtsa --option bias=1 --option bias=0
    option: given bias twice; expected each option once
bench --only mtsa.fused[bias=1] --option bias=0
    option: given bias twice; expected each option once
verify --stress --jobs 2
    --jobs: given 2; --stress runs one child
train mtsa --sentence 'a b'
    --sentence is for --look or --save-attention
bench mtsa
    given 'mtsa'; expected nothing there; to choose use --only mtsa
frontier --memory 1KiB
    --memory: given '1KiB'; expected at least 16MiB
compare --seeds 20000
    expected at most 10000 seeds, each up to 4294967295
data check
    set --data DIR or ATTNBENCH_DATA
data check --data nowhere
    'nowhere', which is no folder
data check trec --data hub
    from there is checked when it is loaded
data check trek --data .
    unknown corpus 'trek'; there are cr, mpqa
data check --data .
    none of 30 files is there; expected cr/all.tsv.gz
data list --data nowhere
    'nowhere', which is no folder
data list trek
    unknown corpus 'trek'
"""


def pairs(table: str) -> list[tuple[str, str]]:
    """Command lines, and below each what is said of it."""
    lines = table.strip().splitlines()
    return list(zip(lines[::2], (line[4:] for line in lines[1::2]), strict=True))


@pytest.mark.parametrize(
    ("line", "says"),
    [(f"{line} --device cpu", says) for line, says in pairs(MISTAKES)] + pairs(NO_DEVICE),
)
def test_a_mistake_is_told_before_anything_is_done(
    line: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATTNBENCH_DATA", raising=False)
    done = here(line.replace("TASK", TOY), cwd=tmp_path, code=2)
    assert says.replace("TASK", TOY) in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full is here")
def test_a_disk_that_is_full_when_a_table_is_printed_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(["list"]) == 2
        monkeypatch.undo()
    assert capsys.readouterr().err == (
        "attnbench: can't write: No space left on device; free some space\n"
    )


@pytest.mark.parametrize(
    ("text", "model", "name", "says"),
    [
        ("mtsa:degree_loss=squared", "mtsa", TOY, "degree_loss is read for relatedness alone"),
        ("activation=elu", "mtsa", TOY, "activation is read for classification of pairs alone"),
        ("bi_lstm:heads=3", "bi_lstm", TOY, "of bi_lstm.packed none has any; leave it"),
        ("none:attention_dropout=0.2", "none", TOY, "a mechanism with attention dropout reads"),
        ("additive:width=8", "additive", TOY, "a mechanism with a width of its own reads width"),
        ("mtsa:heads=4", "mtsa[heads=2]", TOY, r"mtsa.fused\[heads=2\] say heads themselves"),
        ("word_width=7", "mtsa", TOY, "alone, and of mirrored"),
        ("degree_loss=squared", "mtsa", "trec", "of trec none is; leave it out"),
    ],
)
def test_what_no_run_reads_is_refused(text: str, model: str, name: str, says: str) -> None:
    registry = Registry()
    with pytest.raises(UsageError, match=says):
        check_read([text], [parse_model(model, registry)], [task(name)], registry)


@pytest.mark.parametrize(
    ("text", "model", "name"),
    [
        ("policy_steps=3", "resa", "trec"),
        ("policy_steps=3", "resan", "sick_relatedness"),
        ("degree_loss=squared", "mtsa", "trec sick_relatedness"),
        ("highway=true", "mtsa", "snli"),
        ("activation=elu", "mtsa", "sick_entailment"),
        ("paper", "mtsa", "trec"),
        ("epochs=3", "none", "mirrored_summation"),
        ("heads=3", "bi_lstm", "trec"),
        ("attention_dropout=0.2", "none", "trec"),
        ("width=8", "additive", "trec"),
        ("heads=4", "mtsa[heads=2]", "trec"),
        ("resan:width=8", "resan", "trec"),
        ("paper", "mtsa[attention_dropout=0.1]", "cr"),
        ("resa:heads=3", "mtsa", "trec"),
    ],
)
def test_what_a_run_reads_is_taken(text: str, model: str, name: str) -> None:
    registry = Registry()
    tasks = [task(one) for one in name.split()]
    check_read([text], [parse_model(model, registry)], tasks, registry)


@pytest.mark.parametrize(
    "command",
    [
        "train mtsa --task trec",
        "compare mtsa none --task trec",
        "sweep --models mtsa --tasks trec --dry-run",
    ],
)
def test_a_width_of_words_is_taken_where_no_table_gives_one(command: str, tmp_path: Path) -> None:
    # What is refused then is the data directory, which is looked for after the recipe.
    options = "--recipe word_width=7 --vectors none --data nowhere --device cpu"
    done = here(f"{command} {options}", cwd=tmp_path, code=2)
    assert "nowhere" in done.stderr
    assert "word_width" not in done.stderr


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


def test_of_what_is_given_one_name_is_enough(own: Registry) -> None:
    own.refuse_unnamed([])
    own.refuse_unnamed(["mtsa.fused@2", "Own.module[scale=2.0]"])
    with pytest.raises(UsageError, match="--with gives Own, and Owner names none of it"):
        own.refuse_unnamed(["Owner"])


def test_heads_may_be_read_by_a_mechanism_of_the_users_own(own: Registry) -> None:
    models, tasks = [parse_model("Own", own)], [task("trec")]
    check_read(["Own:heads=3"], models, tasks, own)
    with pytest.raises(UsageError, match="only a mechanism with attention dropout reads"):
        check_read(["Own:attention_dropout=0.1"], models, tasks, own)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("Own[scale=1]", "Own.module"),
        ("Own[note=none]", "Own.module"),
        ("Own[scale=2.0]", "Own.module[scale=2]"),
        ("Own[scale=true]", "Own.module[scale=True]"),
        # The recipe says how many heads there are, whatever the factory does without one; and
        # of an option that its signature does not name nothing is known.
        ("Own[heads=2]", "Own.module[heads=2]"),
        ("Own[other=2.0]", "Own.module[other=2.0]"),
    ],
)
def test_a_mechanism_of_the_users_own_is_asked_for_its_defaults(
    text: str, means: str, own: Registry
) -> None:
    assert meaning(parse_model(text, own), own) == means


def _one_sided(first: str, second: str, **changes: Any) -> tuple[str, ...]:
    registry, recipe = Registry(), replace(task("cr").recipe, **changes)
    models = [parse_model(first, registry), parse_model(second, registry)]
    return one_sided(models, task("cr"), [recipe, recipe], registry)


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
        (
            "mtsa[scale_s=log_sigmoid,scale_t=identity]",
            "mtsa.fused[scale_s='log_sigmoid',scale_t='identity']",
        ),
        (
            "mtsa[scale_t=identity,scale_s=log_sigmoid]",
            "mtsa.fused[scale_s='log_sigmoid',scale_t='identity']",
        ),
        ("mtsa_released[directional=true]", "mtsa_released.fused"),
        ("mtsa_released[directional=1]", "mtsa_released.fused[directional=1]"),
        (
            "multi_scale_transformer[alpha=.5,layers=3]",
            "multi_scale_transformer.windowed[layers=3]",
        ),
        ("mtsa[masks=forward;none]", "mtsa.fused[masks=['forward', 'none']]"),
        ("multi_scale_transformer[alpha=1]", "multi_scale_transformer.windowed[alpha=1]"),
        ("multi_scale_transformer[alpha=1.0]", "multi_scale_transformer.windowed[alpha=1]"),
        ("multi_scale_transformer[alpha=0.250]", "multi_scale_transformer.windowed[alpha=0.25]"),
        ("msmsa[scales=1.0;3;n/4]", "msmsa.windowed[scales=[1, 3, 'n/4']]"),
        ("kim_cnn[kernel_sizes=3;4;5]", "kim_cnn.conv"),
        # What the recipe sets counts where nothing is given.
        ("mtsa[attention_dropout=0]", "mtsa.fused[attention_dropout=0]"),
        (
            "transformer[preset=mirrored_transformer,layers=1]",
            "transformer.sdpa[layers=1,preset='mirrored_transformer']",
        ),
        (
            "transformer[preset=mirrored_transformer,layers=2]",
            "transformer.sdpa[preset='mirrored_transformer']",
        ),
    ],
)
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
        "mtsa.fused",
        "mtsa.fused[scale_t=identity]",
    ]


def test_one_question_asked_in_two_spellings_is_one() -> None:
    around = Surroundings(Registry(), {"device": "cpu"})
    recipes = [task("trec").recipe] * 2

    def asked(*names: str) -> str:
        models = [parse_model(name, around.registry) for name in names]
        return make_design(models, task("trec"), recipes, (0, 1, 2), around).record["question"]

    assert asked("mtsa", "multi_head") == asked("multi_head", "mtsa[scale_t=log_sigmoid]")
    assert asked("mtsa", "multi_head") != asked("mtsa[scale_t=identity]", "multi_head")


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
