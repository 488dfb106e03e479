"""The command line. Everything heavy is imported by the command that needs it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from harness.cli.data import app as data_app
from harness.errors import UsageError

app = typer.Typer(
    name="attnbench",
    help="Is this self-attention mechanism what its paper says, and should I use it at my size?\n\n"
    "[bold]attnbench bench[/] verifies and measures on whatever device is there; "
    "[bold]attnbench verify[/] checks against independent oracles; "
    "[bold]attnbench compare[/] trains models and judges them, "
    "[bold]attnbench sweep[/] trains without judging; "
    "[bold]attnbench plan[/] says how many seeds that takes; "
    "[bold]attnbench report[/] draws what was recorded; "
    "[bold]attnbench claims[/] gives the verdict on every published claim; "
    "[bold]attnbench list[/] shows what there is, [bold]attnbench explain[/] what it computes.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)

app.add_typer(data_app, name="data")

GIVEN = Annotated[
    list[str] | None,
    typer.Option(
        "--with", metavar="PKG.MODULE:FACTORY", help="A mechanism of your own; may be repeated."
    ),
]
JSON = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")
]
OPTION = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="For the mechanism's factory; may be repeated."),
]
DEVICE = Annotated[str, typer.Option(help="cpu, cuda, or auto: a GPU if there is one.")]
DEFAULT_TASK = "mirrored_summation"
JOURNAL = Annotated[str, typer.Option(help="Folder of the records.")]


@app.command("list")
def list_(
    given: GIVEN = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the README's table of mechanisms.")
    ] = False,
    json_file: JSON = None,
) -> None:
    """List mechanisms, their implementations and where they come from."""
    if markdown:
        from harness.cli.mechanism_table import markdown as table

        typer.echo(table())
        return
    from harness.cli.listing import show

    show(given or [], json_file)


@app.command()
def explain(
    names: Annotated[list[str], typer.Argument(metavar="MECHANISM...", help="One or more names.")],
    given: GIVEN = None,
    json_file: JSON = None,
) -> None:
    """Equations, source and configurations; where papers and code differ; what is odd."""
    from harness.cli.explaining import show

    show(names, given or [], json_file)


@app.command()
def verify(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Mechanisms or mechanism.implementation; all without any."),
    ] = None,
    dtypes: Annotated[str, typer.Option(help="f64, f32, bf16, f16, joined by commas.")] = "",
    device: DEVICE = "auto",
    stress: Annotated[
        bool,
        typer.Option(
            "--stress",
            help="Record the error over magnitudes of inputs and scores instead, for the report.",
        ),
    ] = False,
    golden: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Check the golden .npz files at or below DIR instead."),
    ] = None,
    given: GIVEN = None,
    option: OPTION = None,
    jobs: Annotated[int, typer.Option(help="Children at a time (0: one per core).")] = 0,
    exact: Annotated[
        bool, typer.Option("--exact", help="Only what the papers claim exactly: a minute.")
    ] = False,
    journal: JOURNAL = "results",
    json_file: JSON = None,
) -> None:
    """Check implementations against independent float64 oracles, or golden vectors.

    Values and gradients of input and weights, over dtypes, masks, padding and edge cases. The
    error may be at most twice that of a plain implementation in the same dtype. Then what the
    papers claim exactly: Algorithm 1 = eq. 13, numbers of weights and heads. All of it is recorded.
    Exit code 1 when anything is over budget or an exact claim fails.
    """
    from harness.cli.verifying import verify_golden, verify_oracles

    if stress:
        from harness.cli.stressing import run_stress

        raise typer.Exit(
            run_stress(
                names or [], dtypes, device, given or [], option or [], jobs, journal, json_file
            )
        )
    if golden is not None:
        code = verify_golden(golden, names or [], given or [], json_file)
    else:
        code = verify_oracles(
            names or [], dtypes, device, given or [], option or [], jobs, exact, journal, json_file
        )
    raise typer.Exit(code)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": False})
def bench(
    context: typer.Context,
    profile: Annotated[
        str | None,
        typer.Option(help="quick (default), full, paper, sweep, models, threads or batch."),
    ] = None,
    journal: JOURNAL = "results",
    device: DEVICE = "auto",
    given: GIVEN = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this mechanism or mechanism.implementation, @H for its heads, beside the "
            "baseline; may be repeated.",
        ),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, e.g. 16,64,256.")] = "",
    batch: Annotated[int | None, typer.Option(help="Batch size.")] = None,
    width: Annotated[str, typer.Option(help="Width in and out, e.g. 300x600.")] = "",
    heads: Annotated[int | None, typer.Option(help="Number of heads.")] = None,
    dtypes: Annotated[str, typer.Option(help="f64, f32, bf16, f16, joined by commas.")] = "",
    passes: Annotated[str, typer.Option(help="forward, training, joined by a comma.")] = "",
    settings: Annotated[
        str,
        typer.Option(
            help="eager, 1-thread, compiled, padded, graphed, tf32, ...: joined inside one case "
            "by '+', between cases by ','."
        ),
    ] = "",
    option: OPTION = None,
    blocks: Annotated[
        int | None, typer.Option(help="Fresh interpreters (default: the profile's).")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the cases and stop.")] = False,
    json_file: JSON = None,
) -> None:
    """Verify, then measure time and peak memory, and compare with the baseline.

    Killed and started again it goes on where it was. What follows '--' goes to pytest, for
    example [bold]-- --benchmark-json out.json[/] or [bold]-- -k N256[/].
    """
    from harness.cli.benching import run_bench

    values = {
        "profile": profile, "journal": journal, "device": device, "given": given or [],
        "only": only or [], "lengths": lengths, "batch": batch, "width": width, "heads": heads,
        "dtypes": dtypes, "passes": passes, "settings": settings, "option": option or [],
        "blocks": blocks,
    }  # fmt: skip
    raise typer.Exit(run_bench(values, list(context.args), dry_run, json_file))


@app.command()
def frontier(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            help="Mechanisms or mechanism.implementation, @H for heads; without any the default "
            "implementation of every mechanism."
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option(
            help="Memory limit, e.g. 4GiB; default: half of the machine's, nine tenths of a GPU's."
        ),
    ] = "",
    seconds: Annotated[float, typer.Option(help="Time limit on one pass.")] = 10.0,
    limit: Annotated[int, typer.Option(help="Largest length tried.")] = 2**17,
    journal: JOURNAL = "results",
    device: DEVICE = "auto",
    given: GIVEN = None,
    batch: Annotated[int | None, typer.Option(help="Batch size.")] = None,
    width: Annotated[str, typer.Option(help="Width in and out, e.g. 300x600.")] = "",
    heads: Annotated[int | None, typer.Option(help="Number of heads.")] = None,
    dtypes: Annotated[str, typer.Option(help="f64, f32, bf16, f16, joined by commas.")] = "",
    passes: Annotated[str, typer.Option(help="training (default), forward, or both.")] = "",
    settings: Annotated[str, typer.Option(help="As of attnbench bench.")] = "",
    option: OPTION = None,
    json_file: JSON = None,
) -> None:
    """Find the longest sequence each mechanism can train on within memory and time.

    By bisection, each probe in a process of its own that may run out of memory without harm.
    Killed and started again it goes on where it was.
    """
    from harness.cli.frontier import run_frontier

    values = {
        "only": names or [], "memory": memory, "seconds": seconds, "limit": limit,
        "journal": journal, "device": device, "given": given or [], "batch": batch, "width": width,
        "heads": heads, "dtypes": dtypes, "passes": passes, "settings": settings,
        "option": option or [], "lengths": "", "blocks": None,
    }  # fmt: skip
    raise typer.Exit(run_frontier(values, json_file))


@app.command()
def diff(
    base: Annotated[str, typer.Argument(metavar="BASE", help="A revision, or a journal folder.")],
    head: Annotated[str, typer.Argument(metavar="HEAD", help="What is judged: alike.")],
    profile: Annotated[
        str | None, typer.Option(help="diff (default), quick, full or paper.")
    ] = None,
    journal: JOURNAL = "results",
    device: DEVICE = "auto",
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Only this mechanism or mechanism.implementation; repeatable."
        ),
    ] = None,
    lengths: Annotated[str, typer.Option(help="Sequence lengths, e.g. 16,64,256.")] = "",
    batch: Annotated[int | None, typer.Option(help="Batch size.")] = None,
    width: Annotated[str, typer.Option(help="Width in and out, e.g. 300x600.")] = "",
    heads: Annotated[int | None, typer.Option(help="Number of heads.")] = None,
    dtypes: Annotated[str, typer.Option(help="f64, f32, bf16, f16, joined by commas.")] = "",
    passes: Annotated[str, typer.Option(help="forward, training, joined by a comma.")] = "",
    settings: Annotated[str, typer.Option(help="As for bench.")] = "",
    blocks: Annotated[int | None, typer.Option(help="Blocks (default: 15).")] = None,
    json_file: JSON = None,
) -> None:
    """Measure two git revisions now, side by side: which cases became slower or faster?

    Only the revisions' mechanisms differ; clock and plan are those of this attnbench, and the
    environment too, unless the constraints differ. BASE runs twice: nothing below that noise is
    claimed. It says nothing of correctness: attnbench verify does.

    Given two journal folders instead, only ratios to the baseline are compared. Exit code 1: a
    case is slower, or fails in HEAD alone; 3: nothing comparable was measured.
    """
    from harness.cli.diffing import run_diff

    values = {
        "profile": profile, "journal": journal, "device": device, "only": only or [],
        "lengths": lengths, "batch": batch, "width": width, "heads": heads, "dtypes": dtypes,
        "passes": passes, "settings": settings, "blocks": blocks,
    }  # fmt: skip
    raise typer.Exit(run_diff(base, head, values, json_file))


TASK = Annotated[
    str,
    typer.Option(
        help="What is trained; attnbench list names all tasks. The default needs no data."
    ),
]
DATA = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="Corpora (default: $ATTNBENCH_DATA), or hub; README, Data."
    ),
]
VECTORS = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Word vectors: a GloVe-format file, a table of the data directory, none.",
    ),
]
RECIPE = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[MODEL:]NAME=VALUE",
        help="Change the common recipe, e.g. epochs=5, or name another, e.g. paper; repeatable.",
    ),
]
CHOOSE = Annotated[
    str | None,
    typer.Option(
        help="Whose best epoch is tested: dev (default), or best-on-test, the papers' best over "
        "time on the test set."
    ),
]


@app.command()
def train(
    name: Annotated[
        str,
        typer.Argument(help="mechanism, mechanism.implementation, or either with [OPTION=VALUE]"),
    ],
    task: TASK = DEFAULT_TASK,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1)] = 0,
    fold: Annotated[
        int | None, typer.Option(help="Which fold is tested on, where the task has some.")
    ] = None,
    journal: JOURNAL = "results",
    data: DATA = None,
    vectors: VECTORS = None,
    device: DEVICE = "auto",
    given: GIVEN = None,
    recipe: RECIPE = None,
    choose: CHOOSE = None,
    save_attention: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Scores of the given sentences, .npz; a bare name: by the journal."
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Train even what the journal holds; its record stays."),
    ] = False,
    look: Annotated[
        bool,
        typer.Option("--look", help="Train, and record what the model attends to, for the report."),
    ] = False,
    sentence: Annotated[
        list[str] | None,
        typer.Option(metavar="TEXT", help="For --look, --save-attention; repeatable."),
    ] = None,
    sentences: Annotated[
        str | None, typer.Option(metavar="FILE", help="The same from a file, one per line.")
    ] = None,
    json_file: JSON = None,
) -> None:
    """Train one model with one seed and test it once, at the epoch that was best on dev.

    The same model, task, recipe and seed give the same record, which is kept and not trained again.
    """
    from harness.cli.training import run_train

    values = {
        "name": name, "task": task, "seed": seed, "fold": fold, "journal": journal, "data": data,
        "vectors": vectors, "device": device, "given": given or [], "recipe": recipe or [],
        "choose": choose, "save_attention": save_attention, "look": look, "again": again,
        "sentence": sentence or [], "sentences": sentences,
    }  # fmt: skip
    raise typer.Exit(run_train(values, json_file))


@app.command()
def compare(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIRST] [SECOND]",
            help="Two mechanisms (default: mtsa multi_head), the first is judged; or with "
            "--baseline as many as you like, each is judged.",
        ),
    ] = None,
    task: Annotated[
        list[str] | None,
        typer.Option(
            help="What is trained; attnbench list names all tasks. The default needs no data. "
            "Several are judged together; repeatable."
        ),
    ] = None,
    all_: Annotated[
        str | None,
        typer.Option("--all", metavar="BASELINE", help="Every mechanism against this one."),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(metavar="NAME", help="Each of the named models against this one.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="How many, or which: 10 or 3,7,11 (default: 5; 1 where a task has folds, each of "
            "which is run once per seed)."
        ),
    ] = None,
    journal: JOURNAL = "results",
    data: DATA = None,
    vectors: VECTORS = None,
    device: DEVICE = "auto",
    given: GIVEN = None,
    recipe: RECIPE = None,
    choose: CHOOSE = None,
    margin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TASK:]NUMBER",
            help="Smaller differences do not matter, e.g. 0.01 or 1%: allows practically equal.",
        ),
    ] = None,
    match: Annotated[
        str, typer.Option(help="parameters: narrow the larger models to the smallest one's size.")
    ] = "none",
    unpaired: Annotated[
        bool,
        typer.Option(
            "--unpaired", help="Judge two models as independent groups, by Welch's t: declared."
        ),
    ] = False,
    jobs: Annotated[int, typer.Option(help="Runs at a time (0: one per core).")] = 0,
    json_file: JSON = None,
) -> None:
    """Train models, paired by seed, and say better, worse, practically equal or undecided.

    Two, or many against a baseline ([bold]--all multi_head[/], or [bold]compare mtsa disa bi_lstm
    --baseline multi_head[/]): these are declared together, and judged together by Holm's method.
    Killed and started again it goes on where it was. Without data it compares on a synthetic task;
    [bold]--task trec --data DIR[/] is real text.
    """
    from harness.cli.comparing import run_compare

    values = {
        "names": names or [], "task": task or [DEFAULT_TASK], "all": all_, "baseline": baseline,
        "seeds": seeds, "journal": journal, "data": data, "vectors": vectors, "device": device,
        "given": given or [], "recipe": recipe or [], "choose": choose, "margin": margin or [],
        "match": match, "unpaired": unpaired, "jobs": jobs,
    }  # fmt: skip
    raise typer.Exit(run_compare(values, json_file))


@app.command()
def plan(
    effect: Annotated[
        str, typer.Option(help="The difference that matters, e.g. 0.5, 0.005 or 0.5%.")
    ],
    sd: Annotated[
        str | None,
        typer.Option(
            help="Deviation over seeds: of the paired differences; with --correlation or "
            "--unpaired, of either model's values."
        ),
    ] = None,
    power: Annotated[float, typer.Option(help="Probability of finding it.")] = 0.8,
    alpha: Annotated[float, typer.Option(help="Probability of finding one that is none.")] = 0.05,
    paired: Annotated[
        bool, typer.Option("--paired/--unpaired", help="Whether both models share their seeds.")
    ] = True,
    correlation: Annotated[
        float | None, typer.Option(help="Of both models' values over seeds.")
    ] = None,
    comparisons: Annotated[
        int, typer.Option(help="How many are judged together (Holm or Bonferroni).")
    ] = 1,
    journal: Annotated[
        str | None, typer.Option("--from", metavar="DIR", help="Take sd from these records.")
    ] = None,
    models: Annotated[
        tuple[str, str] | None, typer.Option(metavar="A B", help="Whose, with --from.")
    ] = None,
    task: Annotated[str | None, typer.Option(help="On which task, with --from.")] = None,
    recipe: RECIPE = None,
    given: GIVEN = None,
    json_file: JSON = None,
) -> None:
    """Say how many seeds a comparison needs, before it is made.

    By the exact power of the t-test. The deviation is yours, or is estimated from a journal:
    [bold]attnbench plan --effect 0.5% --from results --models mtsa multi_head --task trec[/].
    """
    from harness.cli.planning import run_plan

    values = {
        "effect": effect, "sd": sd, "power": power, "alpha": alpha, "paired": paired,
        "correlation": correlation, "comparisons": comparisons, "from": journal, "models": models,
        "task": task, "recipe": recipe or [], "given": given or [],
    }  # fmt: skip
    raise typer.Exit(run_plan(values, json_file))


@app.command()
def sweep(
    plan: Annotated[
        str | None,
        typer.Argument(
            metavar="[PLAN.toml]", help="A file instead of the options of what is crossed."
        ),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help=r"Mechanisms, e.g. mtsa,multi_head,mtsa\[scale_t=identity]."),
    ] = None,
    tasks: Annotated[
        str | None, typer.Option(help="What they are trained on, e.g. trec,sick_relatedness.")
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            help="How many, or which: 10 or 3,7,11 (default: 5; 1 on a task with folds, each of "
            "them)."
        ),
    ] = None,
    folds: Annotated[
        bool, typer.Option("--folds", help="Tasks with folds: each fold once, whatever --seeds.")
    ] = False,
    journal: JOURNAL = "results",
    data: DATA = None,
    vectors: VECTORS = None,
    device: DEVICE = "auto",
    given: GIVEN = None,
    recipe: RECIPE = None,
    choose: CHOOSE = None,
    jobs: Annotated[
        int | None, typer.Option(help="Runs at a time (default: one per core; see --per-gpu).")
    ] = None,
    per_gpu: Annotated[
        int | None, typer.Option(help="Runs at a time on each GPU (default: 4).")
    ] = None,
    executor: Annotated[
        str, typer.Option(help="local: this machine; ray: a Ray cluster (extra 'cluster').")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster (default: auto, one on this machine).")
    ] = None,
    cpus_per_run: Annotated[
        float | None, typer.Option(help="What a run takes of a Ray node (default: 1).")
    ] = None,
    gpus_per_run: Annotated[
        float | None,
        typer.Option(help="What a run takes of a Ray node (default: 0.25 on GPUs, else 0)."),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(help="How often a run that dies with its Ray node is tried again (3)."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs, predict the time, and stop.")
    ] = False,
    json_file: JSON = None,
) -> None:
    """Train many models on many tasks with many seeds (or folds): all runs that are missing.

    Task by task, and for each seed all models, so that a sweep that is stopped has pairs. Killed
    and started again it does what is missing; two at once on one journal share the work. No metric
    is shown: [bold]attnbench compare[/] on the same journal finds the runs and judges.
    Exit code 1: a run failed; what failed is listed with the command that repeats it.
    """
    from harness.cli.sweeping import run_sweep

    values = {
        "plan": plan, "models": models, "tasks": tasks, "seeds": seeds, "folds": folds,
        "journal": journal, "data": data, "vectors": vectors, "device": device,
        "given": given or [], "recipe": recipe or [], "choose": choose, "jobs": jobs,
        "per_gpu": per_gpu, "executor": executor, "address": address,
        "cpus_per_run": cpus_per_run, "gpus_per_run": gpus_per_run, "retries": retries,
        "dry_run": dry_run,
    }  # fmt: skip
    raise typer.Exit(run_sweep(values, json_file))


@app.command()
def report(
    journal: JOURNAL = "results",
    out: Annotated[str, typer.Option(metavar="DIR", help="Folder to write.")] = "report",
    like: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Your sizes, TOML: batch, length, heads, width, dtype, setting, mechanism, "
            "baseline, task (default: the papers' size).",
        ),
    ] = "",
    jobs: Annotated[int, typer.Option(help="Notebooks at a time (0: one per core).")] = 0,
    json_file: JSON = None,
) -> None:
    """Execute the notebooks on what was measured and write one folder to open in a browser.

    Its first page says whether to use the mechanism at your size. With an empty journal the
    records published with attnbench are shown.
    """
    from harness.cli.reporting import make_report

    raise typer.Exit(make_report(journal, out, json_file, like, jobs))


@app.command()
def claims(journal: JOURNAL = "results", json_file: JSON = None) -> None:
    """Every published claim with its verdict: reproduced, not reproduced, undecided, not testable.

    From the journal's records, and for audits from the papers' printed numbers alone; without a
    journal from the records published with attnbench. Exit code 1 if an exact claim (equality,
    numbers of weights and heads) fails.
    """
    from harness.cli.claiming import show_claims

    raise typer.Exit(show_claims(journal, json_file))


_ClickError: type[Exception] = typer.BadParameter.__mro__[2]
"""Base of all usage errors; newer typer carries its own click, so it is not click's."""


def run(arguments: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0 fine, 1 the answer is no, 2 usage or bad input."""
    try:
        result = app(args=arguments, standalone_mode=False)
    except UsageError as error:
        print(f"attnbench: {error}", file=sys.stderr)
        return 2
    except _ClickError as error:
        message = error.format_message()  # type: ignore[attr-defined]
        if message:  # none when only the help was shown
            print(f"attnbench: {message.rstrip('.')}; see --help", file=sys.stderr)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        print("attnbench: stopped", file=sys.stderr)
        return 130
    if result == 130:  # newer typer turns ctrl-C into its exit code
        print("attnbench: stopped", file=sys.stderr)
    return result if isinstance(result, int) else 0
