"""What a reader of a comparison must be told beside its numbers."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from harness.experiments.allowed import without_keys
from harness.experiments.preregistration import Order, looked
from harness.experiments.replicates import (
    BEST_ON_TEST,
    Measured,
    Pair,
    Record,
    Values,
    by_test,
    is_ok,
    is_paired,
    sides_of,
    unit_of,
)
from harness.experiments.training import (
    Flaw,
    at_equal_steps,
    ended_by_ceiling,
    ended_early,
    training_flaws,
)
from harness.experiments.unequal import unequal_parameters, unequal_recipes
from harness.stats import MeanDifference
from harness.train.data.corpora import is_known, made_examples
from harness.train.task import family_of, known_tasks
from harness.train.tasks.mirrored_summation import knowing_the_sum

DECIDED = ("better", "worse", "practically equal")
"""Verdicts that say something of two models."""
NOT_COUNTED = " (not counted)"
"""Behind such a verdict where one of the models was trained more, or not to its end."""

CORRELATIONS = ("pearson", "spearman")

EVERYTHING = 0.99
"""Share of tokens from which on a policy leaves nothing out that would matter."""

RELATIVE = "relative_mse"
ORDER = 0.95
"""Of what the sum of all tokens alone gives: an error below that share shows that more was used."""


def warnings_of(found: Measured, records: Sequence[Record], order: Order) -> tuple[str, ...]:
    """All warnings of a comparison, one line each.

    Parameters
    ----------
    records : sequence of mapping
        The whole journal: earlier designs of the same question, and what was concluded from them.
    """
    design, pairs = found.design, found.pairs
    flaws = [flaw.said for flaw in flaws_of(found)]
    if said := at_equal_steps(design, pairs):
        flaws[0] += said  # behind what it is about
    told = (
        *_missing(design, pairs),
        *_constant(design, pairs),
        *_selected(design, pairs),
        *without_keys(zip(design["models"], sides_of(pairs), strict=True)),
        *without_order(design["task"], sides_of(pairs)),
        *_folds(design, found.values),
        *_margin(design, found.difference),
        *unequal_parameters(design, pairs),
        *flaws,
        *ended_by_ceiling(design, pairs),
        *ended_early(design, pairs),
        *unequal_recipes(design),
        *_split(design),
        *_corpus(design, pairs),
        *_plan(design, pairs),
        *_machines(pairs),
        *looked(design, records, order),
    )
    return tuple(dict.fromkeys(told))


def _each(design: Record, pairs: Sequence[Pair]) -> list[tuple[str, Record | None]]:
    """Every declared run, with its model as the design calls it."""
    return [one for pair in pairs for one in zip(design["models"], pair, strict=True)]


def _missing(design: Record, pairs: Sequence[Pair]) -> list[str]:
    every, out = _each(design, pairs), []
    failed = Counter((m, run["status"]) for m, run in every if run is not None and not is_ok(run))
    for (model, status), count in failed.items():
        what = "diverged" if status == "diverged" else f"failed ({status})"
        out.append(
            f"{count} of {len(pairs)} runs of {model} {what}: a comparison of the others "
            "flatters it"
        )
    if absent := sum(run is None for _, run in every):
        out.append(f"{absent} of {len(every)} runs are missing")
    good = sum(is_ok(a) and is_ok(b) for a, b in pairs)
    if good < len(pairs) and (is_paired(design) or design.get("folds")):
        out.append(f"{len(pairs) - good} of {len(pairs)} pairs are incomplete and left out")
    return out


def _constant(design: Record, pairs: Sequence[Pair]) -> list[str]:
    """Models that say the same of all test examples; only they have a correlation of exactly 0."""
    metric = design["metric"]
    if metric not in CORRELATIONS:
        return []
    every = [(model, (run or {}).get("test") or {}) for model, run in _each(design, pairs)]
    counts = Counter(model for model, test in every if test.get(metric) == 0.0)
    return [
        f"{count} of {len(pairs)} runs of {model} predict one value for all test examples: their "
        f"{metric} is not defined and counts as 0"
        for model, count in counts.items()
    ]


def _selected(design: Record, pairs: Sequence[Pair]) -> list[str]:
    return selecting_everything(zip(design["models"], sides_of(pairs), strict=True))


def without_order(task: str, sides: Sequence[Sequence[Record]]) -> list[str]:
    """That no model of a mirrored summation shows that it goes by the order of the tokens."""
    of_order = [one for one in known_tasks(task) if RELATIVE in one.metrics]
    tests = [[run["test"] for run in side if is_ok(run)] for side in sides]
    if not of_order or not all(tests) or any(RELATIVE not in t for side in tests for t in side):
        return []
    size, means = of_order[0].options, [statistics.fmean(t[RELATIVE] for t in s) for s in tests]
    alone = knowing_the_sum(size["length"], size["k"])
    if 2 * size["k"] > size["length"] or min(means) < ORDER * alone:
        return []
    told = " and ".join(f"{mean:.2f}" for mean in means)
    return [f"neither shows to use order: {RELATIVE} {told}, by the sum of all tokens {alone:.2f}"]


def _folds(design: Record, values: Values) -> list[str]:
    if not values.folds:
        return []
    out = [
        f"{values.folds} folds of one corpus are no independent seeds: any two share most of their "
        "training examples. Interval and p are corrected for that (Nadeau and Bengio, n_test / "
        f"n_train = 1/{values.folds - 1}, with those that only choose the epoch), which is an "
        "approximation"
    ]
    if not design.get("folds"):
        out.append(
            "the design takes folds for seeds, but its runs are of folds: they are judged as folds"
        )
    if values.units == "repeated folds":
        out.append(
            "all seeds go through the same folds: they are averaged inside each fold, and add no "
            "test examples"
        )
    return out


WIDE_MARGIN = "the margin is no less than the baseline's whole error"
"""Why *practically equal* is then not counted."""


def is_wide(design: Record, d: MeanDifference) -> bool:
    """Of errors, which end at 0: whether all lies within the margin that the baseline leaves."""
    margin = design["margin"]
    return margin is not None and not design["higher_is_better"] and margin >= d.mean_second


def _margin(design: Record, d: MeanDifference | None) -> list[str]:
    if d is None or not is_wide(design, d):
        return []
    unit = unit_of(design["metric"])
    return [
        f"the margin of {unit.size(design['margin'])} is no less than the whole "
        f"{design['metric']} of {design['models'][1]}, {unit.value(d.mean_second)}: without any "
        "error a model would be practically equal to it"
    ]


def _corpus(design: Record, pairs: Sequence[Pair]) -> list[str]:
    runs = [run for pair in pairs for run in pair if run is not None]
    told = {str(run.get("data") or "") for run in runs}
    wanted, name = made_examples(design["task"]), family_of(design["task"]) or design["task"]
    counts = {str((run.get("examples") or {}).get("train")) for run in runs}
    counts -= {"None", str(wanted)}
    if wanted and counts:
        return [
            f"not {name}: trained on {', '.join(sorted(counts))} examples, {name} has "
            f"{wanted:,}; what stands here is of other data, and may not be called so"
        ]
    if all(is_known(design["task"], data) is not False for data in told):
        return []
    return [
        f"this is not the {name} of attnbench data list (attnbench data check names the "
        "file): what others measured on that may not be compared with it"
    ]


def flaws_of(found: Measured) -> list[Flaw]:
    """`training_flaws` of a design's runs, and the warnings that its file lets void the verdict."""
    design, sides = found.design, sides_of(found.pairs)
    metric, higher = design["metric"], design["higher_is_better"]
    flaws = training_flaws(design["models"], sides, metric, higher, design.get("margin"))
    for name in (design.get("plan") or {}).get("void", ()):
        if name in VOIDS:
            flaws += [Flaw(name, said) for said in VOIDS[name](design, found.pairs)]
    return flaws


VOIDS: Mapping[str, Callable[[Record, Sequence[Pair]], list[str]]] = {
    "failed runs": _missing,
    "one value for all": _constant,
    "all tokens selected": _selected,
    "unequal parameters": unequal_parameters,
    "unequal recipes": lambda design, pairs: unequal_recipes(design),
    "another corpus": _corpus,
}
"""Warnings that a design file may name: a verdict with one of them is then not counted."""


def _split(design: Record) -> list[str]:
    out = []
    if by_test(design):
        patient = any(r.get("patience", 0) < r.get("epochs", 0) for r in design["recipes"])
        ended = ", and by it patience ended the runs" * patient
        out.append(
            f"{BEST_ON_TEST}: the epoch was chosen by the number that is reported "
            f"(the papers' way), which is too good{ended}"
        )
    if design["one_test_set"]:
        out.append(
            "all runs are tested on one and the same test set: the interval covers seeds, not the "
            "choice of test examples"
        )
    return out


def _plan(design: Record, pairs: Sequence[Pair]) -> list[str]:
    """What was not as the design's file says."""
    plan = design.get("plan")
    if not plan:
        return []
    out = []
    if not plan.get("committed"):
        out.append(
            f"{plan['file']} was not committed, as it is, when this was declared: only this "
            "machine's clock says that it is older than the runs"
        )
    others = sum(r is not None and r.get("plan") != plan["sha256"] for p in pairs for r in p)
    if others:
        out.append(f"{others} runs were not trained under {plan['file']}, as it is")
    return out


def _machines(pairs: Sequence[Pair]) -> list[str]:
    """What pairs of several machines took is of no single one: see `trained_elsewhere`."""
    where = [{r.get("fingerprint") for r in pair if r is not None} for pair in pairs]
    counts = Counter(one for machines in where for one in machines)
    if len(counts) < 2:
        return []
    each = [str(count) for count in counts.values()]
    told = f"{', '.join(each[:-1])} and {each[-1]} pairs were trained on {len(each)} machines"
    if torn := sum(len(machines) > 1 for machines in where):
        told += f", {torn} of them on more than one"
    return [f"{told}: seconds are medians over all of them"]


def selected_share(runs: Sequence[Record]) -> float | None:
    """Share of the test set's tokens selected, as heads or as dependents: the smaller one's mean.

    None for a model without policies.
    """
    shares = [run["selected"] for run in runs if isinstance(run.get("selected"), Mapping)]
    if not shares:
        return None
    return min(statistics.fmean(float(s[kind]) for s in shares) for kind in ("heads", "dependents"))


def selecting_everything(models: Iterable[tuple[str, Sequence[Record]]]) -> list[str]:
    """Of which models, given with their runs, the policies select about all tokens; a line each."""
    shares = [(model, selected_share(runs)) for model, runs in models]
    return [
        f"{model} selects {100 * share:.1f} % of the tokens: hardly one is left out, so this says "
        "nothing of selecting"
        for model, share in shares
        if share is not None and share >= EVERYTHING
    ]
