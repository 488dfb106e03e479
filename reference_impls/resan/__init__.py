"""ReSAN: sentence encoders of reinforced self-attention, and the paper's variants of them."""

from __future__ import annotations

from reference_impls import disa, resa, source2token
from reference_impls.mechanism import Mechanism, Size, of_package
from reference_impls.source2token import of_output

_SOURCE = "Shen et al., ReSAN (IJCAI 2018), section 3.3; taoshen58/ReSAN@f65f3fe"
_OPTIONS = resa.MECHANISMS[0].options
_OF_WORDS = ("activation", "selection", "rss_hidden", "rss_activation", "policy")


def _parameters(s: Size) -> int:
    """ReSAN: ReSA and source2token attention."""
    return resa.parameters(s) + source2token.parameters(of_output(s))


def _operations(s: Size) -> float:
    """As if everything were selected."""
    return resa.operations(s) + source2token.operations(of_output(s))


def _transient(s: Size) -> float:
    """Training keeps what ReSA keeps while the pooling runs; else one after the other."""
    parts = resa.transient_bytes(s), source2token.transient_bytes(of_output(s))
    return sum(parts) if s.training else max(parts)


def _word_parameters(s: Size) -> int:
    """One policy and source2token attention."""
    return resa.policy_parameters(s) + source2token.parameters(of_output(s))


def _word_operations(s: Size) -> float:
    """As if everything were selected."""
    return resa.policy_operations(s) + source2token.operations(of_output(s))


MECHANISMS = (
    Mechanism(
        name="resan",
        summary="ReSAN: reinforced self-attention and source2token, a sentence vector",
        source=_SOURCE,
        **of_package(
            "reference_impls.resan",
            plain=("PlainResan", "all pairs and tokens, masked"),
            gathered=(
                "GatheredResan",
                "computes selected pairs, and drops tokens where the variant does",
            ),
        ),
        options={"variant": "full", **_OPTIONS},
        variants={
            "without_unselected_heads": {"variant": "without_unselected_heads"},
            "one_rss": {"variant": "one_rss"},
            "no_hard": {"variant": "no_hard"},
            "select_all": {"selection": "all"},
            "one_rss_forward": {"variant": "one_rss", "direction": "forward"},
            "heads_backward": {"variant": "without_unselected_heads", "direction": "backward"},
            "unselected_others": {"unselected": "others", "activation": "relu"},
            "iterative": {"variant": "one_rss", "policy": "iterative"},
        },
        output="sentence",
        score_weights=(*disa.scored_by(), "s2t_s2_w", "s2t_s2_b"),
        score_options=disa.WIDE,
        random={
            "sampled": {"selection": "sampled"},
            "one_rss_sampled": {"variant": "one_rss", "selection": "sampled"},
        },
        always_random=True,
        recorder="reference_impls.resa.selecting:recorded",
        odds="reference_impls.resan.naive:odds",
        default="gathered",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
    ),
    Mechanism(
        name="resan_no_fusion",
        summary="ReSAN without soft self-attention: selected words, pooled by source2token",
        source=_SOURCE + "; Table 2",
        **of_package(
            "reference_impls.resan",
            plain=("PlainWords", "all words, unselected ones masked"),
            gathered=("GatheredWords", "selected words only"),
        ),
        options={"variant": "no_soft", **{name: _OPTIONS[name] for name in _OF_WORDS}},
        variants={
            "neither": {"variant": "neither"},
            "select_all": {"selection": "all"},
            "relu": {"activation": "relu", "rss_activation": "relu", "rss_hidden": 5},
        },
        output="sentence",
        keeps_width=True,
        score_weights=("s2t_s2_w", "s2t_s2_b"),
        random={"sampled": {"selection": "sampled"}},
        always_random=True,
        recorder="reference_impls.resa.selecting:recorded",
        odds="reference_impls.resan.naive:odds",
        default="gathered",
        parameters=_word_parameters,
        operations=_word_operations,
        transient_bytes=source2token.transient_bytes,
    ),
)
