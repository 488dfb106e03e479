"""Options: a wrong value names the option, what was given and what is expected; right ones read."""

from __future__ import annotations

import contextlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.cli import run
from harness.cli.app import COMMANDS
from harness.errors import UsageError
from harness.options import readers
from harness.options.declare import TEXT, Option, declared, options_for_pytest, read
from harness.options.groups import Measuring
from harness.options.measure import BenchOptions
from harness.options.readers import Amount
from suites.support.command_line import environment

NEEDED = {
    "explain": "mtsa",
    "diff": "HEAD HEAD",
    "train": "mtsa",
    "plan": "--effect 1 --sd 1",
    "sweep": "--models mtsa --tasks trec",
}
"""Without which a command is refused whatever else it is given."""
WRONG = {
    "<int>": "-1", "<float>": "2x", readers.DEVICE: "tpu", readers.DTYPE_NAMES: "f32,f8",
    readers.PASS_NAMES: "sideways", readers.SETTINGS: "padded+warp", readers.LENGTHS: "4,0",
    readers.WIDTH: "1x2x3", readers.PAIR: "name", readers.PROFILE: "slow", readers.DOTTED: "own",
    readers.BYTES: "4 GiBs", readers.SEEDS: "-1", readers.NAMES: "mtsa,", readers.AMOUNT: "-1%",
    readers.MARGIN: "trec:much", readers.FOLDER: __file__, readers.THERE: "nowhere",
    readers.SENTENCE: " ", readers.JSON: "no/such.json",
}  # fmt: skip
NAMES_FOR_LATER = (TEXT, readers.FILE, readers.PLACE)
"""What only a registry, a task or a file can judge: tried in the tests of each command."""


def refusals() -> Iterator[Any]:
    for command, (cls, _) in COMMANDS.items():
        for _, one in declared(cls):
            if one.flag and one.kind != "flag" and one.reader not in NAMES_FOR_LATER:
                wrong = WRONG.get(one.reader) or WRONG.get(one.shown) or "neither"
                line = f"{command} {NEEDED.get(command, '')} {one.flag}"
                yield pytest.param(line.split(), one, wrong, id=f"{command}{one.flag}")


@pytest.mark.parametrize(("command", "one", "wrong"), list(refusals()))
def test_a_wrong_value_names_the_option_what_was_given_and_what_is_expected(
    command: list[str], one: Option, wrong: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert run([*command, wrong]) == 2
    said = capsys.readouterr().err
    assert said.startswith("attnbench: ")
    assert said.count("\n") == 1
    for part in (one.flag, wrong):
        assert part in said
    assert "; expected " in said or "no such folder" in said
    assert list(tmp_path.iterdir()) == []


NUMBERS = ("", " ", ",", "²", "٣", "nan", "-inf", "1e400", "1_0", "9" * 5000, "GiB", "-4GiB")
NAMES = ("", " ", "\n")
PATHS = (*NAMES, "x" * 300, "~nobody_at_all/there")
READERS = {one.reader: one.flag for cls, _ in COMMANDS.values() for _, one in declared(cls)}
OF_NAMES = {
    TEXT: (), readers.NAMES: (*NAMES, ","), readers.SENTENCE: NAMES, readers.PYTEST: NUMBERS[:5],
    readers.FOLDER: PATHS, readers.THERE: PATHS, readers.FILE: PATHS, readers.JSON: PATHS,
    readers.PLACE: PATHS,
}  # fmt: skip
"""What names something takes anything that can be a name."""


@pytest.mark.parametrize("reader", READERS, ids=READERS.get)
def test_nothing_reads_an_empty_text_or_what_is_no_number(
    reader: readers.Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    read = []
    for text in OF_NAMES.get(reader, NUMBERS):
        with contextlib.suppress(ValueError):
            read.append((text[:9], reader.read(text)))
    assert read == []


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bench --lengths 1e20", "positive whole numbers joined by commas"),
        (f"bench --lengths 8,{10**20}", "expected at most 9223372036854775807"),
        (f"bench --width {10**20}", "expected at most 9223372036854775807"),
        (f"bench --blocks {10**20}", "expected at most 10000"),
        (f"bench --settings {10**10}-threads", "K-threads"),
        (f"frontier --limit {10**20}", "expected at most 9223372036854775807"),
        (f"frontier --memory {10**9}TiB", "expected at most 9223372036854775807 bytes"),
        ("frontier --memory " + 400 * "9" + "GiB", "expected at most 9223372036854775807 bytes"),
        ("report --out ~nobody_at_all/there", "expected a path: "),
        (f"list --json {300 * 'x'}", "expected a path: File name too long"),
        ("bench 'one\ntwo'", "expected nothing there"),
    ],
)
def test_what_no_machine_can_count_or_name_is_refused(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(shlex.split(line)) == 2
    said = capsys.readouterr().err
    assert says in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("reader", "text", "value"),
    [
        (readers.BYTES, "4GiB", 4 * 2**30), (readers.BYTES, "256 MiB", 256 * 2**20),
        (readers.BYTES, "1.5gb", 1_500_000_000), (readers.WIDTH, "300", (300, 300)),
        (readers.WIDTH, "300X600", (300, 600)), (readers.LENGTHS, "16, 64", (16, 64)),
        (readers.SEEDS, "3", (0, 1, 2)), (readers.SEEDS, "3,7", (3, 7)),
        (readers.NAMES, "mtsa[a=1,b=2], disa", ("mtsa[a=1,b=2]", "disa")),
        (readers.AMOUNT, "0.5%", Amount(0.005, "0.5%")), (readers.PAIR, "a=b=c", ("a", "b=c")),
        (readers.MARGIN, "trec[a=1]:1%", ("trec[a=1]", Amount(0.01, "1%"))),
        (readers.SETTINGS, "eager,padded+2-threads", ("eager", "padded+2-threads")),
    ],
)  # fmt: skip
def test_texts_become_values(reader: readers.Reader, text: str, value: Any) -> None:
    assert reader.read(text) == value


def test_what_is_not_given_is_left_at_its_default() -> None:
    found = read(BenchOptions, {"lengths": None, "given": ["a:b"], "blocks": "3"})
    assert found == BenchOptions(given=("a:b",), blocks=3)
    assert (found.lengths, found.device, found.journal) == ((), "auto", Path("results"))
    with pytest.raises(UsageError, match=r"--blocks: given 'x'; expected a positive whole number"):
        read(BenchOptions, {"blocks": "x"})


def test_pytest_is_told_of_the_same_options() -> None:
    flags = dict(options_for_pytest(Measuring))
    assert set(flags) == {one.flag for _, one in declared(Measuring)}
    assert flags["--with"]["action"] == "append"
    assert flags["--with"]["dest"] == "given"
    assert flags["--lengths"]["help"] == "Sequence lengths, e.g. 16,64,256."


def test_what_only_lists_shows_or_starts_others_does_not_load_torch() -> None:
    code = (
        "import sys, harness.isolate, reports.pages.bench, reports.execute, reports.site;"
        "from harness.registry import Registry; Registry();"
        "from harness.cli import run;"
        "codes = [run(line.split()) for line in ('--help', 'compare --help', 'list', '--version')];"
        "sys.exit(any(codes) or 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    versions = done.stdout.splitlines()[-1]
    assert versions.startswith("attnbench 0")
    assert f"Python {sys.version.split()[0]}" in versions
    assert ", torch 2" in versions
