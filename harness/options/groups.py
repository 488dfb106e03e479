"""Options that several commands share."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from harness.case import each_once
from harness.options import readers as r
from harness.options.declare import TEXT, option, switch

TINY_ROWS, TINY_EPOCHS = 100, 2
"""What ``--tiny`` leaves of a split, and of training."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """Mechanisms that are not built in."""

    given: tuple[str, ...] = option(
        "A mechanism of your own; may be repeated.", r.DOTTED, "--with", kind="many"
    )


@dataclass(frozen=True, kw_only=True)
class JsonOutput:
    """Where a result goes beside the terminal."""

    json_file: str | None = option("Also write the result as JSON.", r.JSON, "--json")


@dataclass(frozen=True, kw_only=True)
class JournalFolder:
    """Where records are."""

    journal: Path = option(
        "Folder of the records.", r.FOLDER, "--journal", shown="<str>", default="results"
    )


@dataclass(frozen=True, kw_only=True)
class Where(JournalFolder):
    """Where it runs, and where that is recorded."""

    device: str = option(
        "cpu, cuda, or auto: a GPU if there is one.", r.DEVICE, "--device", default="auto"
    )


@dataclass(frozen=True, kw_only=True)
class Factory:
    """What the factory of a mechanism is given."""

    option: tuple[tuple[str, str], ...] = option(
        "For the mechanism's factory; may be repeated.", r.PAIR, "--option", kind="many"
    )

    def __post_init__(self) -> None:
        """Refuse an option that is given twice."""
        each_once(self.option)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of what is measured, and how it is run."""

    batch: int | None = option("Batch size.", r.POSITIVE, "--batch")
    width: tuple[int, int] | None = option("Width in and out, e.g. 300x600.", r.WIDTH, "--width")
    heads: int | None = option("Number of heads.", r.POSITIVE, "--heads")
    dtypes: tuple[str, ...] = option(
        "f64, f32, bf16, f16, joined by commas.", r.DTYPE_NAMES, "--dtypes", absent=()
    )
    passes: tuple[str, ...] = option(
        "forward, training, joined by a comma.", r.PASS_NAMES, "--passes", absent=()
    )
    settings: tuple[str, ...] = option(
        "eager, 1-thread, compiled, padded, graphed, tf32, ...: joined inside one case by '+', "
        "between cases by ','.",
        r.SETTINGS,
        "--settings",
        absent=(),
    )


@dataclass(frozen=True, kw_only=True)
class Narrowed(Sizes):
    """What of a profile is measured; empty means: as the profile says."""

    only: tuple[str, ...] = option(
        "Only this mechanism or mechanism.implementation, @H for its heads, beside the baseline; "
        "may be repeated.",
        TEXT,
        "--only",
        shown="NAME",
        kind="many",
    )
    lengths: tuple[int, ...] = option(
        "Sequence lengths, e.g. 16,64,256.", r.LENGTHS, "--lengths", absent=()
    )
    blocks: int | None = option(
        "Fresh interpreters (default: the profile's).", r.BLOCKS, "--blocks"
    )


@dataclass(frozen=True, kw_only=True)
class Selection(Factory, Narrowed):
    """What narrows a profile."""


def selection_of(options: Sizes) -> Selection:
    """What a command's options say of cases, the rest as a profile has it."""
    return Selection(
        **{f.name: getattr(options, f.name) for f in fields(Selection) if hasattr(options, f.name)}
    )


@dataclass(frozen=True, kw_only=True)
class Measuring(Where, Given, Selection):
    """What a session is made of: of ``attnbench bench`` and of ``pytest suites/bench``."""

    profile: str | None = option(
        "quick (default), full, paper, sweep, models, threads or batch.", r.PROFILE, "--profile"
    )


@dataclass(frozen=True, kw_only=True)
class Training(Where, Given):
    """What every command that trains is told of data and recipe."""

    data: str | None = option(
        "Corpora (default: $ATTNBENCH_DATA), or hub; see docs/data.md.",
        r.PLACE,
        "--data",
        shown="DIR",
    )
    vectors: str | None = option(
        "Word vectors: a GloVe-format file, a table of the data directory, two joined by &, none.",
        r.PLACE,
        "--vectors",
        shown="FILE",
    )
    recipe: tuple[str, ...] = option(
        "Change the common recipe, e.g. epochs=5, or name another, e.g. paper; repeatable.",
        TEXT,
        "--recipe",
        shown="[MODEL:]NAME=VALUE",
        kind="many",
    )
    choose: str | None = option(
        "Whose best epoch is tested: dev (default), or best-on-test, the papers' best over time on "
        "the test set.",
        r.one_of("dev", "best-on-test"),
        "--choose",
    )

    tiny: bool = switch(
        f"Only {TINY_ROWS} examples a split and {TINY_EPOCHS} epochs, to see that it works.",
        "--tiny",
    )

    @property
    def changes(self) -> tuple[str, ...]:
        """What of the recipe is changed, ``--choose`` and ``--tiny`` with the rest."""
        own = any(text.rpartition(":")[2].startswith("epochs=") for text in self.recipe)
        few = (f"epochs={TINY_EPOCHS}",) if self.tiny and not own else ()
        chosen = () if self.choose is None else (f"choose={self.choose}",)
        return (*self.recipe, *few, *chosen)  # a named recipe sets every field

    def sized(self, task: str) -> str:
        """A task's name, with ``--tiny`` that of its first examples."""
        if not self.tiny or "rows=" in task:
            return task
        name, _, options = task.removesuffix("]").partition("[")
        return f"{name}[{options}{',' if options else ''}rows={TINY_ROWS}]"
