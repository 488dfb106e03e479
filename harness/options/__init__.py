"""What a user can ask for: one frozen dataclass a command, its fields declared once.

The command line and pytest's options are made from these declarations (`harness.cli.signature`,
`declare.options_for_pytest`), and `declare.read` makes the typed values from texts. Nothing here
imports torch.
"""

from harness.options.declare import options_for_pytest, read
from harness.options.groups import Measuring, Narrowed, Selection, Training, selection_of
from harness.options.measure import (
    BenchOptions,
    ClaimsOptions,
    DataCheckOptions,
    DataListOptions,
    DataOptions,
    DiffOptions,
    ExplainOptions,
    FrontierOptions,
    ListOptions,
    ReportOptions,
    VerifyOptions,
)
from harness.options.readers import LARGEST_SEED, MOST_SEEDS, Amount
from harness.options.train import CompareOptions, PlanOptions, SweepOptions, TrainOptions

__all__ = [
    "LARGEST_SEED",
    "MOST_SEEDS",
    "Amount",
    "BenchOptions",
    "ClaimsOptions",
    "CompareOptions",
    "DataCheckOptions",
    "DataListOptions",
    "DataOptions",
    "DiffOptions",
    "ExplainOptions",
    "FrontierOptions",
    "ListOptions",
    "Measuring",
    "Narrowed",
    "PlanOptions",
    "ReportOptions",
    "Selection",
    "SweepOptions",
    "TrainOptions",
    "Training",
    "VerifyOptions",
    "options_for_pytest",
    "read",
    "selection_of",
]
