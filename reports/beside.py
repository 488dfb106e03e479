"""Published numbers that are shown beside measured ones, and what each is compared with."""

from __future__ import annotations

from collections.abc import Mapping

from harness.stats import Summary
from reports.printed import load, summaries

TABLE5_TASKS: Mapping[str, str] = {
    "cr": "CR", "mpqa": "MPQA", "subj": "SUBJ", "trec": "TREC", "sst5": "SST-5",
    "sst5_phrases": "SST-5",
}  # fmt: skip
"""Column of MTSA's Table 5 by task."""
TABLE5_MODELS: Mapping[str, str] = {
    "mtsa": "MTSA", "mtsa_released": "MTSA", "multi_head": "Multi-head",
    "multi_head_released": "Multi-head", "disa": "DiSA", "biblosa": "Bi-BloSA",
    "bi_lstm": "Bi-LSTM",
}  # fmt: skip
"""Row of it by mechanism."""


def table5() -> dict[str, dict[str, Summary]]:
    """MTSA's Table 5, by column and row."""
    return summaries(load("mtsa")["table5"])
