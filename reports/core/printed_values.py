"""Published numbers that are shown beside measured ones, and what each is compared with."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from harness.experiments.replicates import Unit
from harness.records.ratios import Row
from harness.stats import Interval, Summary, ratio_text
from harness.train.task import tasks
from reports.claims.printed import PrintedNumber, at, cell, load, number
from reports.core.sizes import padded
from reports.core.sweeps import label_of

TABLE5_TASKS: Mapping[str, str] = {
    "cr": "CR",
    "mpqa": "MPQA",
    "subj": "SUBJ",
    "trec": "TREC",
    "sst5": "SST-5",
    "sst5_phrases": "SST-5",
}
"""Column of MTSA's Table 5 by task."""
TABLE5_MODELS: Mapping[str, str] = {
    "mtsa": "MTSA",
    "multi_head": "Multi-head",
    "disa": "DiSA",
    "biblosa": "Bi-BloSA",
    "bi_lstm": "Bi-LSTM",
}
"""Row of it by mechanism; the released program's form of one is in the same row."""
TABLE3_MODELS: Mapping[str, str] = {
    "resan": "ReSAN",
    "resa": "ReSAN",
    "disan": "DiSAN",
    "disa": "DiSAN",
    "multi_head": "Multi-head",
    "bi_lstm": "Bi-LSTM",
    "bi_gru": "Bi-GRU",
    "multi_cnn": "Multi-window CNN",
    "hrchy_cnn": "Hierarchical CNN",
}
"""Row of ReSAN's Table 3 by mechanism."""
TABLE1_MODELS: Mapping[str, str] = {
    **TABLE5_MODELS,
    "bi_gru": "Bi-GRU",
    "multi_cnn": "Multi-CNN",
    "hrchy_cnn": "Hrchy-CNN",
}
BASE = "Multi-head"
SIZE = {"batch": 64, "length": 64}
"""Of Table 1's memory; its inference times are of SNLI's sentences, of 12 words on average."""
COSTS = (
    ("memory, training", "memory", "training"),
    ("time, inference", "inference", "forward"),
)
"""What is compared, its column in Table 1, and the pass that was measured."""


class Accuracies(NamedTuple):
    """A table of accuracies in `reports.claims.printed`: its columns by task and metric, its rows
    by mechanism, as many digits as it prints, and whether tasks are its rows and models its
    columns.
    """

    paper: str
    table: str
    place: str
    columns: Mapping[tuple[str, str], str]
    rows: Mapping[str, str]
    digits: int
    turned: bool = False

    def printed(self, row: str, column: str) -> str:
        """A cell as it is printed, of a model's and a task's name in the table."""
        place = (column, row) if self.turned else (row, column)
        return at(_table(self.paper, self.table), *place)


SST = {(task, "accuracy"): "test" for task, column in TABLE5_TASKS.items() if column == "SST-5"}
MTL16 = {
    (f"mtl16[domain={domain}]", "accuracy"): {"imdb": "IMDB", "dvd": "DVD"}.get(
        domain, domain.partition("_")[0].capitalize() if domain != "MR" else domain
    )
    for domain in tasks()["mtl16"].choices["domain"]
}
"""Row of Table 3 by domain."""
ACCURACIES = (
    Accuracies(
        "mtsa",
        "table5",
        "MTSA, Table 5",
        {(task, "accuracy"): column for task, column in TABLE5_TASKS.items()},
        {**TABLE5_MODELS, "kim_cnn": "CNNs"},
        1,
    ),
    Accuracies(
        "resan",
        "table3",
        "ReSAN, Table 3",
        {("sick_relatedness", metric): metric for metric in ("pearson", "spearman", "mse")},
        TABLE3_MODELS,
        4,
    ),
    Accuracies(
        "multi_scale",
        "table2",
        "Multi-Scale, Table 2",
        SST,
        {"transformer": "Transformer", "multi_scale_transformer": "Multi-Scale Transformer"},
        1,
    ),
    Accuracies(
        "multi_scale",
        "table3",
        "Multi-Scale, Table 3",
        {("mtl16", "accuracy"): "Average", **MTL16},
        {"transformer": "Transformer", "multi_scale_transformer": "MS-Trans", "bi_lstm": "BiLSTM"},
        2,
        turned=True,
    ),
    Accuracies(
        "disan",
        "sst",
        "DiSAN, slides",
        SST,
        {"disan": "DiSAN", "none": "Word Embedding with s2t self-attention"},
        2,
    ),
)
"""Of a model in several the first counts."""


def printed_accuracy(task: str, metric: str, mechanism: str) -> PrintedAccuracy | None:
    """What a paper prints for a mechanism on a task; None where no paper does."""
    for one in ACCURACIES:
        column, row = one.columns.get((task, metric)), one.rows.get(row_of(mechanism))
        if column is None or row is None:
            continue
        table = _table(one.paper, one.table)
        known = cell(one.printed(row, column))
        if known is not None:
            count = table.get("replicates", {}).get(column, 1)
            setup = {
                name: value.get(row, value.get(column, value.get("others")))
                if isinstance(value, Mapping)
                else value
                for name, value in table.get("setup", {}).items()
            }
            of_all = column == table.get("average")
            note = _unlike_its_numbers(one, row, column, known[0]) if of_all else ""
            return PrintedAccuracy(one.place, Summary(*known, count), one.digits, setup, note)
    return None


def _unlike_its_numbers(one: Accuracies, row: str, column: str, printed: float) -> str:
    """Of a printed average that is not that of the numbers beside it, which that is."""
    others = [cell(one.printed(row, other)) for other in one.columns.values() if other != column]
    found = statistics.fmean(known[0] for known in others if known is not None)
    if abs(found - printed) <= 0.5 * 10**-one.digits:
        return ""
    return f" (its {len(others)} numbers average {found:.{one.digits + 1}f})"


def row_of(mechanism: str) -> str:
    """The mechanism in whose row a released form of it stands."""
    return mechanism.removesuffix("_released").removesuffix("_relu")


@cache
def _table(paper: str, name: str) -> Mapping[str, Any]:
    table: Mapping[str, Any] = load(paper)[name]
    return table


@dataclass(frozen=True)
class PrintedAccuracy:
    """A printed mean in the paper's unit, its deviation nan where none is printed.

    `setup` is how it was trained, as far as that is known: ``vectors`` (their components or names),
    ``width``, ``heads``, ``layers``, ``optimiser``, ``steps``, ``examples``, ``choose``; None for
    what is not.
    """

    place: str
    summary: Summary
    digits: int
    setup: Mapping[str, Any]
    note: str = ""  # what is to be known of the number itself

    @property
    def text(self) -> str:
        """``95.3 (0.3)``."""
        sd = self.summary.sd
        spread = "" if math.isnan(sd) else f" ({sd:.{self.digits}f})"
        return f"{self.summary.mean:.{self.digits}f}{spread}"

    def gap(self, mean: float, unit: Unit) -> float:
        """What is reached less what is printed, in the paper's unit: points, of accuracies."""
        return unit.scale * mean - self.summary.mean


@dataclass(frozen=True)
class PrintedCost:
    """A ratio to multi-head attention, printed with what rounding leaves open, and measured."""

    what: str
    label: str
    printed: PrintedNumber
    measured: Row

    @property
    def printed_text(self) -> str:
        """``1.07x``, with the span that rounding leaves where it is wide."""
        value, low, high = self.printed.value, self.printed.low, self.printed.high
        if high - low < 0.02 * value:
            return ratio_text(value)
        return f"{ratio_text(value)} ({ratio_text(low)} to {ratio_text(high)})"

    @property
    def time(self) -> Interval | None:
        """None of memory."""
        return None if self.what.startswith("memory") else self.measured.time

    @property
    def measured_text(self) -> str:
        """``1.20x [1.10, 1.30]``."""
        return str(self.time or ratio_text(self.measured.memory_ratio))

    @property
    def numbers(self) -> dict[str, Any]:
        """For the CSV."""
        t = self.time or Interval(self.measured.memory_ratio, math.nan, math.nan, 0)
        return {
            "what": self.what,
            "implementation": self.label,
            "printed_ratio": self.printed.value,
            "printed_low_by_rounding": self.printed.low,
            "printed_high_by_rounding": self.printed.high,
            "measured_ratio": t.ratio,
            "measured_low": t.low,
            "measured_high": t.high,
        }


def printed_costs(rows: Sequence[Row]) -> list[PrintedCost]:
    """Table 1's costs beside those measured at batch 64 and N = 64 in float32."""
    table = load("mtsa")["table1"]
    found = []
    for what, column, phase in COSTS:
        base = number(at(table, BASE, column))
        wanted = (SIZE["batch"], SIZE["length"], "f32", phase)
        for row in rows:
            c = row.columns
            name = TABLE1_MODELS.get(row_of(str(c["mechanism"])))
            fits = (c["batch"], c["length"], c["dtype"], c["phase"]) == wanted
            # The paper's costs are of whole models: a variant has none, nor have padded batches.
            fits = fits and "[" not in str(c["name"]) and not padded(str(c["settings"]))
            known = row.time is not None if column != "memory" else row.memory_ratio > 0
            if name in (None, BASE) or not (fits and known) or row.verdict == "baseline":
                continue
            settings = f", {c['settings']}" if c["settings"] != "eager" else ""
            printed = number(at(table, str(name), column)).over(base)
            found.append(PrintedCost(what, f"{label_of(row)}{settings}", printed, row))
    return found
