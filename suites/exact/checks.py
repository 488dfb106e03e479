"""What is checked exactly, as records. Imports no torch: the checks run in children."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODELS: Mapping[str, Mapping[str, Any]] = {
    "MTSA": {
        "mechanism": "mtsa_released", "options": {"activation": "elu"}, "heads": 2,
        "highway": True, "weights": 2_885_403,
    },
    "MTSA w/o token2token": {
        "mechanism": "mtsa_released", "options": {"activation": "elu", "token2token": False},
        "heads": 2, "highway": True, "weights": 2_525_403,
    },
    "MTSA w/o source2token": {
        "mechanism": "mtsa_released", "options": {"activation": "elu", "source2token": False},
        "heads": 2, "highway": True, "weights": 2_524_203,
    },
    "MTSA w/o fw&bw masks": {
        "mechanism": "mtsa_released", "options": {"activation": "elu", "directional": False},
        "heads": 2, "highway": True, "weights": 2_885_403,
    },
    "MTSA w/o proposed modules": {
        "mechanism": "none", "options": {"activation": "elu"}, "highway": True,
        "weights": 1_803_603,
    },
    "Hrchy-CNN": {
        "mechanism": "hrchy_cnn_released", "width": 300, "highway": True, "weights": 3_424_203,
    },
    "ReSAN": {"mechanism": "resan", "highway": True, "weights": 3_067_205},
    "ReSAN, one RSS": {
        "mechanism": "resan", "options": {"variant": "one_rss"}, "highway": True,
        "weights": 2_796_604,
    },
    "ReSAN w/o hard attention": {
        "mechanism": "resan", "options": {"variant": "no_hard"}, "highway": True,
        "weights": 2_526_003,
    },
    "Bi-LSTM": {"mechanism": "bi_lstm", "highway": False, "weights": 2_884_803},
    "Bi-GRU": {"mechanism": "bi_gru_released", "highway": False, "weights": 2_524_203},
    "Kim CNN": {"mechanism": "kim_cnn_released", "highway": False, "weights": 1_441_803},
    "Multi-head": {
        "mechanism": "multi_head_released", "heads": 8, "highway": False, "weights": 1_982_403,
    },
    "DiSA": {"mechanism": "disa", "highway": False, "weights": 2_345_403},
    "Bi-BloSA": {"mechanism": "biblosa_released", "highway": False, "weights": 4_148_403},
}  # fmt: skip
"""Rows of MTSA's Tables 1 and 3 and of ReSAN's Table 2: the model, and the weights without
embeddings that the authors' own programs have."""

HEADS: Mapping[str, Any] = {
    "alpha": 0.5, "heads": 10, "layers": [[5, 2, 2, 1, 0], [4, 2, 2, 1, 1], [2, 2, 2, 2, 2]],
}  # fmt: skip
"""The example below eq. 12 of the Multi-Scale paper."""


@dataclass(frozen=True)
class Check:
    """One exact check.

    Attributes
    ----------
    name : str
        As claims call it.
    summary : str
        One line.
    call : str
        Dotted function that a child runs; see `suites.exact.run.Result`.
    mechanisms : tuple of str
        Whose code it depends on.
    arguments : mapping
    exact : bool
        Whether a failure means that a claim of equality or of counts does not hold here; the others
        only report.
    """

    name: str
    summary: str
    call: str
    mechanisms: tuple[str, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = True


CHECKS: tuple[Check, ...] = (
    Check(
        "algorithm1", "Algorithm 1 = eq. 13, outputs and gradients",
        "suites.exact.algorithm1:check", ("mtsa",),
    ),
    Check(
        "scale functions", "scores at which Algorithm 1 as printed fails in float32",
        "suites.exact.scales:check", ("mtsa",), exact=False,
    ),
    Check(
        "heads per scale", "eq. 11-12 give the paper's example",
        "suites.exact.heads:check", ("msmsa",), HEADS,
    ),
    Check(
        "weights: translation", "weights that MTSA adds to the Transformer's encoder",
        "suites.exact.weights:translation", ("mtsa_nmt", "multi_head"), {"weights": 199_680},
    ),
    *(
        Check(
            f"weights: {row}", f"weights of the row {row}", "suites.exact.weights:row",
            (model["mechanism"], "source2token"), model,
        )
        for row, model in MODELS.items()
    ),
)  # fmt: skip


def concerning(mechanisms: set[str]) -> list[Check]:
    """The checks of some mechanisms: those whose first one is among them."""
    return [check for check in CHECKS if check.mechanisms[0] in mechanisms]
