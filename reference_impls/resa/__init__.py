"""Reinforced self-attention: directional self-attention between selected tokens only."""

from __future__ import annotations

from reference_impls import disa
from reference_impls.mechanism import Mechanism, Size, of_package


def policy_parameters(s: Size) -> int:
    """One RSS of hidden width d_in: two layers with biases."""
    return 3 * s.d_in * s.d_in + s.d_in + s.d_in + 1


def policy_operations(s: Size) -> float:
    """One RSS; it has no backward pass unless it samples."""
    return 2.0 * s.batch * s.length * (3 * s.d_in * s.d_in + s.d_in)


def policy_bytes(s: Size) -> float:
    """One RSS: its context features, their layer and its activation, in float32 at least."""
    return float(max(4, s.item_bytes) * s.batch * s.length * 7 * s.d_in)


def parameters(s: Size) -> int:
    """DiSA and two policies."""
    return disa.parameters(s) + 2 * policy_parameters(s)


def operations(s: Size) -> float:
    """As if everything were selected; `gathered` needs the selected share of the pairs."""
    return disa.operations(s) + 2 * policy_operations(s)


def transient_bytes(s: Size) -> float:
    """As if everything were selected; the policies' own is freed before the attention runs."""
    return max(disa.transient_bytes(s), policy_bytes(s))


MECHANISMS = (
    Mechanism(
        name="resa",
        summary="reinforced self-attention: DiSA between tokens that two policies select",
        source="Shen et al., ReSAN (IJCAI 2018), eq. 5-15; taoshen58/ReSAN@f65f3fe",
        **of_package(
            "reference_impls.resa",
            plain=("PlainResa", "the N x N x d scores, masked, and softmax"),
            masked=("MaskedResa", "DiSA's broadcast with unselected keys masked: saves nothing"),
            gathered=(
                "GatheredResa",
                "computes selected pairs only; the host waits for their number",
            ),
        ),
        options={
            "direction": "both",
            "activation": "elu",
            "tanh_scale": 5.0,
            "unselected": "all_real",
            "selection": "threshold",
            "rss_hidden": None,
            "rss_activation": "elu",
            "policy": "rss",
        },
        variants={
            "forward": {"direction": "forward"},
            "backward": {"direction": "backward"},
            "diagonal": {"direction": "diagonal"},
            "unselected_dependents": {"unselected": "dependents"},
            "unselected_others": {"unselected": "others"},
            "select_all": {"selection": "all"},
            "relu": {"activation": "relu", "rss_activation": "relu", "rss_hidden": 5},
            "selu": {"activation": "selu", "rss_activation": "selu"},
            "wide_tanh": disa.WIDE,
            "iterative": {"policy": "iterative"},
            "iterative_others": {"policy": "iterative", "unselected": "others", "rss_hidden": 5},
        },
        score_weights=disa.scored_by(),
        score_options=disa.WIDE,
        random={
            "sampled": {"selection": "sampled"},
            "sampled_iterative": {"selection": "sampled", "policy": "iterative"},
        },
        always_random=True,
        recorder="reference_impls.resa.selecting:recorded",
        odds="reference_impls.resa.naive:odds",
        default="gathered",
        parameters=parameters,
        operations=operations,
        transient_bytes=transient_bytes,
        goldens={"resa": "reference_impls.resa.golden:from_golden"},
        part_goldens={"rss": "reference_impls.resa.golden:policy"},
    ),
)
