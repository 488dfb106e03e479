"""ReSAN: sentence encoders of reinforced self-attention, and the paper's variants of them."""

from __future__ import annotations

from reference_impls.mechanism import Implementation, Mechanism, Size
from reference_impls.resa import MECHANISMS as _RESA
from reference_impls.resa import policy_operations, policy_parameters
from reference_impls.source2token import MECHANISMS as _POOLING

_PLAIN = "reference_impls.resan.modules:PlainResan"
_PLAIN_WORDS = "reference_impls.resan.modules:PlainWords"
_SOURCE = "Shen et al., ReSAN (IJCAI 2018), section 3.3; taoshen58/ReSAN@f65f3fe"
_OPTIONS = _RESA[0].options


def _pooled(s: Size) -> Size:
    return Size(s.batch, s.length, s.d_out, s.d_out, 1, s.item_bytes, s.training)


def _parameters(s: Size) -> int:
    """ReSA and source2token attention."""
    assert _RESA[0].parameters is not None
    assert _POOLING[0].parameters is not None
    return _RESA[0].parameters(s) + _POOLING[0].parameters(_pooled(s))


def _operations(s: Size) -> float:
    """As if everything were selected."""
    assert _RESA[0].operations is not None
    assert _POOLING[0].operations is not None
    return _RESA[0].operations(s) + _POOLING[0].operations(_pooled(s))


def _transient(s: Size) -> float:
    """Training keeps what ReSA keeps while the pooling runs; else one after the other."""
    assert _RESA[0].transient_bytes is not None
    assert _POOLING[0].transient_bytes is not None
    parts = _RESA[0].transient_bytes(s), _POOLING[0].transient_bytes(_pooled(s))
    return sum(parts) if s.training else max(parts)


def _word_parameters(s: Size) -> int:
    """One policy and source2token attention."""
    assert _POOLING[0].parameters is not None
    return policy_parameters(s) + _POOLING[0].parameters(_pooled(s))


def _word_operations(s: Size) -> float:
    """As if everything were selected."""
    assert _POOLING[0].operations is not None
    return policy_operations(s) + _POOLING[0].operations(_pooled(s))


MECHANISMS = (
    Mechanism(
        name="resan",
        summary="ReSAN: reinforced self-attention and source2token, a sentence vector",
        source=_SOURCE,
        implementations=(
            Implementation("plain", _PLAIN, "all pairs and tokens, masked", mask_optional=True),
            Implementation(
                "gathered",
                "reference_impls.resan.modules:GatheredResan",
                "computes selected pairs, and drops tokens where the variant does",
                mask_optional=True,
            ),
        ),
        folder="reference_impls.resan",
        oracle="reference_impls.resan.naive:naive",
        plain=_PLAIN,
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
        default="gathered",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
    ),
    Mechanism(
        name="resan_no_fusion",
        summary="ReSAN without soft self-attention: selected words, pooled by source2token",
        source=_SOURCE + "; Table 2",
        implementations=(
            Implementation(
                "plain", _PLAIN_WORDS, "all words, unselected ones masked", mask_optional=True
            ),
            Implementation(
                "gathered",
                "reference_impls.resan.modules:GatheredWords",
                "selected words only",
                mask_optional=True,
            ),
        ),
        folder="reference_impls.resan",
        oracle="reference_impls.resan.naive:naive",
        plain=_PLAIN_WORDS,
        options={
            "variant": "no_soft",
            **{
                name: _OPTIONS[name]
                for name in (
                    "activation",
                    "selection",
                    "rss_hidden",
                    "rss_activation",
                    "policy",
                )
            },
        },
        variants={
            "neither": {"variant": "neither"},
            "select_all": {"selection": "all"},
            "relu": {"activation": "relu", "rss_activation": "relu", "rss_hidden": 5},
        },
        output="sentence",
        keeps_width=True,
        score_weights=("s2t_s2_w", "s2t_s2_b"),
        default="gathered",
        parameters=_word_parameters,
        operations=_word_operations,
        transient_bytes=_POOLING[0].transient_bytes,
    ),
)
