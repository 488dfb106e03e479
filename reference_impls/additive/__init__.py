"""Scalar additive attention: pools a sequence with one weight per token."""

from __future__ import annotations

from reference_impls.mechanism import Mechanism, Size, of_package


def _parameters(s: Size) -> int:
    """A layer of the width of the input, and one of width 1."""
    return s.d_in * s.d_in + s.d_in + s.d_in + 1


def _operations(s: Size) -> float:
    """Products only (the weighted mean is one); each once again for each of its two gradients."""
    forward = 2.0 * s.batch * s.length * (s.d_in**2 + 2 * s.d_in)
    return 3 * forward if s.training else forward


def _transient(s: Size) -> float:
    """Forward: the hidden layer, before and after its activation. Training: its gradients, and
    that of x, more; or that of the weights beside three.
    """
    held = 2 * s.inputs
    if s.training:
        held = max(4 * s.inputs, 3 * s.inputs + s.d_in**2)
    return float(s.item_bytes * held)


MECHANISMS = (
    Mechanism(
        name="additive",
        summary="additive attention with a scalar score, a sentence vector",
        source="MTSA eq. 1-3, without a query",
        **of_package(
            "reference_impls.additive",
            plain=("PlainAdditive", "the softmax written out"),
            direct=(
                "DirectAdditive",
                "torch's fused softmax, the mean as a product",
                {"transient_bytes": _transient},
            ),
        ),
        options={"score_dim": None, "activation": "tanh"},
        variants={
            "relu": {"activation": "relu"},
            "elu": {"activation": "elu"},
            "narrow": {"score_dim": 5},
        },
        output="sentence",
        keeps_width=True,
        score_weights=("s2_w", "s2_b"),
        default="direct",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
    ),
)
