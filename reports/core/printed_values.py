"""Published numbers that are shown beside measured ones, and what each is compared with."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.records.ratios import Row
from harness.stats import Summary, ratio_text
from reports.claims.printed import at, load, number, summaries
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
    "mtsa_released": "MTSA",
    "multi_head": "Multi-head",
    "multi_head_released": "Multi-head",
    "disa": "DiSA",
    "biblosa": "Bi-BloSA",
    "biblosa_released": "Bi-BloSA",
    "bi_lstm": "Bi-LSTM",
}
"""Row of it by mechanism."""
RELATEDNESS = "sick_relatedness"
TABLE3_MODELS: Mapping[str, str] = {
    "resan": "ReSAN",
    "resa": "ReSAN",
    "disan": "DiSAN",
    "disa": "DiSAN",
    "multi_head": "Multi-head",
    "multi_head_released": "Multi-head",
    "bi_lstm": "Bi-LSTM",
}
"""Row of ReSAN's Table 3 by mechanism."""
TABLE1_MODELS: Mapping[str, str] = {
    **TABLE5_MODELS,
    "bi_gru": "Bi-GRU",
    "bi_gru_released": "Bi-GRU",
    "multi_cnn": "Multi-CNN",
    "hrchy_cnn": "Hrchy-CNN",
    "hrchy_cnn_released": "Hrchy-CNN",
}
BASE = "Multi-head"
SIZE = {"batch": 64, "length": 64}
"""Of Table 1's memory; its inference times are of SNLI's sentences, of 12 words on average."""
COSTS = (
    ("memory, training", "memory", "training"),
    ("time, inference", "inference", "forward"),
)
"""What is compared, its column in Table 1, and the pass that was measured."""


def printed_accuracy(task: str, metric: str, mechanism: str) -> PrintedAccuracy | None:
    """What a paper prints for a mechanism on a task; None where no paper does.

    MTSA's Table 5 has accuracies in percent, ReSAN's Table 3 what SICK is judged by.
    """
    if task == RELATEDNESS:
        found = summaries(load("resan")["table3"]).get(metric, {})
        one = found.get(TABLE3_MODELS.get(mechanism, ""))
        return None if one is None else PrintedAccuracy("ReSAN, Table 3", one, 4)
    found = summaries(load("mtsa")["table5"]).get(TABLE5_TASKS.get(task, ""), {})
    one = found.get(TABLE5_MODELS.get(mechanism, ""))
    return None if one is None else PrintedAccuracy("MTSA, Table 5", one, 1)


@dataclass(frozen=True)
class PrintedAccuracy:
    """A printed mean and where it stands.

    Attributes
    ----------
    place : str
    summary : Summary
        In the paper's unit.
    digits : int
        As many as the paper prints.
    """

    place: str
    summary: Summary
    digits: int

    @property
    def text(self) -> str:
        """``95.3 (0.3)``."""
        return f"{self.summary.mean:.{self.digits}f} ({self.summary.sd:.{self.digits}f})"


@dataclass(frozen=True)
class PrintedCost:
    """A ratio to multi-head attention, printed and measured.

    Attributes
    ----------
    what, label : str
    printed, printed_low, printed_high : float
        With what rounding leaves open.
    measured : Row
    """

    what: str
    label: str
    printed: float
    printed_low: float
    printed_high: float
    measured: Row

    @property
    def printed_text(self) -> str:
        """``1.07x``, with the span that rounding leaves where it is wide."""
        if self.printed_high - self.printed_low < 0.02 * self.printed:
            return ratio_text(self.printed)
        ends = f"{ratio_text(self.printed_low)} to {ratio_text(self.printed_high)}"
        return f"{ratio_text(self.printed)} ({ends})"

    @property
    def measured_text(self) -> str:
        """``1.20x [1.10, 1.30]``."""
        if self.what.startswith("memory"):
            return ratio_text(self.measured.memory_ratio)
        return str(self.measured.time)

    @property
    def numbers(self) -> dict[str, Any]:
        """For the CSV."""
        t = self.measured.time
        time = not self.what.startswith("memory") and t is not None
        return {
            "what": self.what,
            "implementation": self.label,
            "printed_ratio": self.printed,
            "printed_low_by_rounding": self.printed_low,
            "printed_high_by_rounding": self.printed_high,
            "measured_ratio": t.ratio if time and t else self.measured.memory_ratio,
            "measured_low": t.low if time and t else math.nan,
            "measured_high": t.high if time and t else math.nan,
        }


def printed_costs(rows: Sequence[Row]) -> list[PrintedCost]:
    """Table 1's costs beside those measured at batch 64 and N = 64 in float32."""
    table = load("mtsa")["table1"]
    found = []
    for what, column, phase in COSTS:
        base = number(at(table, BASE, column))
        for row in rows:
            c = row.columns
            name = TABLE1_MODELS.get(str(c["mechanism"]))
            fits = (c["batch"], c["length"], c["dtype"], c["phase"]) == (
                SIZE["batch"],
                SIZE["length"],
                "f32",
                phase,
            )
            # The paper's costs are of whole models: a variant has none, nor have padded batches.
            fits = fits and "[" not in str(c["name"]) and not padded(str(c["settings"]))
            known = row.time is not None if column != "memory" else row.memory_ratio > 0
            if name in (None, BASE) or not (fits and known) or row.verdict == "baseline":
                continue
            mine = number(at(table, str(name), column))
            settings = f", {c['settings']}" if c["settings"] != "eager" else ""
            found.append(
                PrintedCost(
                    what,
                    f"{label_of(row)}{settings}",
                    mine.value / base.value,
                    mine.low / base.high,
                    mine.high / base.low,
                    row,
                )
            )
    return found
