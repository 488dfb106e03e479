"""Options of the commands that train, compare and plan."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.options import readers as r
from harness.options.declare import TEXT, argument, option, switch
from harness.options.groups import Given, JsonOutput, Training
from harness.options.readers import Amount

DEFAULT_TASK = "mirrored_summation"


@dataclass(frozen=True, kw_only=True)
class TrainOptions(Training, JsonOutput):
    """Train one model with one seed and test it once, at the epoch that was best on dev.

    The same model, task, recipe and seed give the same record, which is kept and not trained again.
    """

    name: str = argument(
        "mechanism, mechanism.implementation, or either with [OPTION=VALUE]",
        TEXT,
        "name",
        required=True,
    )
    task: str = option(
        "What is trained; attnbench list names all tasks. The default needs no data.",
        TEXT,
        "--task",
        default=DEFAULT_TASK,
    )
    seed: int = option("Of weights, order and dropout.", r.SEED, "--seed", default="0")
    fold: int | None = option(
        "Which fold is tested on, where the task has some.", r.whole(0), "--fold"
    )
    save_attention: str | None = option(
        "Scores of the given sentences, .npz; a bare name: by the journal.",
        r.PLACE,
        "--save-attention",
        shown="FILE",
    )
    again: bool = switch("Train even what the journal holds; its record stays.", "--again")
    look: bool = switch("Train, and record what the model attends to, for the report.", "--look")
    sentence: tuple[str, ...] = option(
        "For --look, --save-attention; repeatable.", r.SENTENCE, "--sentence", kind="many"
    )
    sentences: Path | None = option("The same from a file, one per line.", r.FILE, "--sentences")

    def __post_init__(self) -> None:
        """Refuse sentences that nothing reads."""
        asked = self.sentence or self.sentences is not None
        if asked and not self.look and self.save_attention is None:
            raise UsageError("--sentence is for --look or --save-attention FILE; give that too")
        if self.look and (self.save_attention is not None or self.again):
            other = "--again" if self.save_attention is None else "--save-attention"
            raise UsageError(
                f"{other}: a look trains if it must and keeps no scores; leave one out"
            )


@dataclass(frozen=True, kw_only=True)
class CompareOptions(Training, JsonOutput):
    """Train models, paired by seed, and say better, worse, practically equal or undecided.

    Two, or many against a baseline ([bold]--all multi_head[/], or [bold]compare mtsa disa bi_lstm
    --baseline multi_head[/]): these are declared together, and judged together by Holm's method.
    Killed and started again it goes on where it was. Without data it compares on a synthetic task;
    [bold]--task trec --data DIR[/] is real text.
    """

    names: tuple[str, ...] = argument(
        "Two mechanisms (default: mtsa multi_head), the first is judged; or with --baseline as "
        "many as you like, each is judged.",
        TEXT,
        "[FIRST] [SECOND]",
        kind="many",
    )
    task: tuple[str, ...] = option(
        "What is trained; attnbench list names all tasks. The default needs no data. Several are "
        "judged together; repeatable.",
        TEXT,
        "--task",
        kind="many",
    )
    all: str | None = option("Every mechanism against this one.", TEXT, "--all", shown="BASELINE")
    baseline: str | None = option(
        "Each of the named models against this one.", TEXT, "--baseline", shown="NAME"
    )
    seeds: tuple[int, ...] | None = option(
        "How many, or which: 10 or 3,7,11 (default: 5; 1 where a task has folds, each of which is "
        "run once per seed).",
        r.SEEDS,
        "--seeds",
    )
    margin: tuple[tuple[str, Amount], ...] = option(
        "Smaller differences do not matter, e.g. 0.01 or 1%: allows practically equal.",
        r.MARGIN,
        "--margin",
        kind="many",
    )
    match: str = option(
        "parameters: narrow the larger models to the smallest one's size.",
        r.one_of("none", "parameters"),
        "--match",
        default="none",
    )
    unpaired: bool = switch(
        "Judge two models as independent groups, by Welch's t: declared.", "--unpaired"
    )
    jobs: int = option("Runs at a time (0: one per core).", r.JOBS, "--jobs", default="0")
    plan: Path | None = option(
        "A design file (plans/*.toml, committed first) that says what is compared, and why.",
        r.FILE,
        "--plan",
    )

    def __post_init__(self) -> None:
        """Refuse names beside ``--all``."""
        if self.all is not None and (self.names or self.baseline):
            raise UsageError("--all BASELINE compares every mechanism; name no others")

    @property
    def tasks(self) -> tuple[str, ...]:
        """What is trained, the default where nothing is named."""
        return tuple(map(self.sized, self.task or (DEFAULT_TASK,)))


@dataclass(frozen=True, kw_only=True)
class PlanOptions(Given, JsonOutput):
    """Say how many seeds a comparison needs, before it is made.

    By the exact power of the t-test. The deviation is yours, or is estimated from a journal:
    [bold]attnbench plan --effect 0.5% --from results --models mtsa multi_head --task trec[/].
    """

    effect: Amount = option(
        "The difference that matters, e.g. 0.5, 0.005 or 0.5%.",
        r.AMOUNT,
        "--effect",
        required=True,
    )
    sd: Amount | None = option(
        "Deviation over seeds: of the paired differences; with --correlation or --unpaired, of "
        "either model's values.",
        r.AMOUNT,
        "--sd",
    )
    power: float = option("Probability of finding it.", r.SHARE, "--power", default="0.8")
    alpha: float = option(
        "Probability of finding one that is none.", r.SHARE, "--alpha", default="0.05"
    )
    paired: bool = switch(
        "Whether both models share their seeds.", "--paired/--unpaired", default=True
    )
    correlation: float | None = option(
        "Of both models' values over seeds.", r.CORRELATION, "--correlation"
    )
    comparisons: int = option(
        "How many are judged together (Holm or Bonferroni).",
        r.POSITIVE,
        "--comparisons",
        default="1",
    )
    records: Path | None = option("Take sd from these records.", r.FOLDER, "--from")
    models: tuple[str, ...] = option(
        "Whose, with --from.", TEXT, "--models", shown="A B", kind="pair", absent=()
    )
    task: str | None = option("On which task, with --from.", TEXT, "--task")
    recipe: tuple[str, ...] = option(
        "Change the common recipe, e.g. epochs=5, or name another, e.g. paper; repeatable.",
        TEXT,
        "--recipe",
        shown="[MODEL:]NAME=VALUE",
        kind="many",
    )

    def __post_init__(self) -> None:
        """Refuse what does not go together, with what to give instead."""
        if self.alpha >= self.power:
            raise UsageError(
                f"given --alpha {self.alpha}, --power {self.power}; expected the power larger"
            )
        if self.correlation is not None and not self.paired:
            raise UsageError("--correlation is of pairs; leave out --unpaired")
        if self.records is not None:
            for name in ("sd", "correlation"):
                if getattr(self, name) is not None:
                    raise UsageError(f"--{name} is estimated with --from; leave one of both out")
            if not self.models or self.task is None:
                raise UsageError("--from needs --models A B and --task T: whose runs, and on what")
            return
        for name in ("models", "task", "recipe", "given"):
            if getattr(self, name):
                flag = "with" if name == "given" else name
                raise UsageError(f"--{flag} is for --from DIR; give that too")
        if self.sd is None:
            raise UsageError("give --sd, or --from DIR --models A B --task T to estimate it")
        if self.effect.percent != self.sd.percent:
            # One of them would be a hundred times the other's unit.
            raise UsageError(
                f"given --effect {self.effect.text}, --sd {self.sd.text}; expected both with % or "
                "both without"
            )


@dataclass(frozen=True, kw_only=True)
class SweepOptions(Training, JsonOutput):
    """Train many models on many tasks with many seeds (or folds): all runs that are missing.

    Task by task, and for each seed all models, so that a sweep that is stopped has pairs. Killed
    and started again it does what is missing; two at once on one journal share the work. No metric
    is shown: [bold]attnbench compare[/] on the same journal finds the runs and judges.
    Exit code 1: a run failed; what failed is listed with the command that repeats it.
    """

    plan: Path | None = argument(
        "A file instead of the options of what is crossed.", r.FILE, "[PLAN.toml]"
    )
    models: tuple[str, ...] = option(
        r"Mechanisms, e.g. mtsa,multi_head,mtsa\[scale_t=identity].",
        r.NAMES,
        "--models",
        absent=(),
    )
    tasks: tuple[str, ...] = option(
        "What they are trained on, e.g. trec,sick_relatedness.", r.NAMES, "--tasks", absent=()
    )
    seeds: tuple[int, ...] | None = option(
        "How many, or which: 10 or 3,7,11 (default: 5; 1 on a task with folds, each of them).",
        r.SEEDS,
        "--seeds",
    )
    folds: bool = switch("Tasks with folds: each fold once, whatever --seeds.", "--folds")
    jobs: int | None = option(
        "Runs at a time (default: one per core; see --per-gpu).", r.JOBS, "--jobs"
    )
    per_gpu: int | None = option(
        "Runs at a time on each GPU (default: 4).", r.POSITIVE, "--per-gpu"
    )
    executor: str = option(
        "local: this machine; ray: a Ray cluster (extra 'cluster').",
        r.one_of("local", "ray"),
        "--executor",
        default="local",
    )
    address: str | None = option(
        "Of the Ray cluster (default: auto, one on this machine).", TEXT, "--address"
    )
    cpus_per_run: float | None = option(
        "What a run takes of a Ray node (default: 1).", r.POSITIVE_NUMBER, "--cpus-per-run"
    )
    gpus_per_run: float | None = option(
        "What a run takes of a Ray node (default: 0.25 on GPUs, else 0).",
        r.NOT_NEGATIVE,
        "--gpus-per-run",
    )
    retries: int | None = option(
        "How often a run that dies with its Ray node is tried again (3).", r.whole(0), "--retries"
    )
    dry_run: bool = switch("List the runs, predict the time, and stop.", "--dry-run")

    def __post_init__(self) -> None:
        """Refuse options of another executor, and what a file says instead."""
        of_ray = ("address", "cpus_per_run", "gpus_per_run", "retries")
        for name in ("jobs", "per_gpu") if self.executor == "ray" else of_ray:
            if getattr(self, name) is not None:
                other = "local" if self.executor == "ray" else "ray"
                flag = "--" + name.replace("_", "-")
                raise UsageError(f"{flag} is for --executor {other}; leave it out")
        crossed = ("models", "tasks", "seeds", "folds", "recipe", "choose", "tiny", "vectors")
        if self.plan is not None:
            for name in crossed:
                if getattr(self, name):
                    raise UsageError(
                        f"--{name} beside {self.plan}: write it into the file, or leave out one"
                    )
            return
        for name in ("models", "tasks"):
            if not getattr(self, name):
                raise UsageError(
                    f"no --{name}; expected e.g. sweep --models mtsa,multi_head --tasks "
                    "trec,sick_relatedness, or a TOML file"
                )
