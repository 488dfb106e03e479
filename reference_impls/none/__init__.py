"""No context fusion: a dense layer, the row that shows what attention adds."""

from __future__ import annotations

from reference_impls.mechanism import Mechanism, Size, of_package


def _parameters(s: Size) -> int:
    """One layer with its bias."""
    return s.d_in * s.d_out + s.d_out


def _operations(s: Size) -> float:
    """The product, once again for each of its two gradients."""
    return (3 if s.training else 1) * 2.0 * s.batch * s.length * s.d_in * s.d_out


def _transient(s: Size) -> float:
    """The product and its activation; in training the output, the activation's gradient, and those
    of input and weights.
    """
    held = 2 * s.features
    if s.training:
        held += s.inputs + s.d_in * s.d_out
    return float(s.item_bytes * held)


MECHANISMS = (
    Mechanism(
        name="none",
        summary="no context fusion: every token by itself through a dense layer",
        source='MTSA Table 3, "w/o proposed modules"',
        **of_package(
            "reference_impls.none",
            plain=("PlainNone", "product, bias, activation"),
            fused=("FusedNone", "product and bias in one call", {"transient_bytes": _transient}),
        ),
        options={"activation": "relu"},
        variants={"elu": {"activation": "elu"}, "selu": {"activation": "selu"}},
        default="fused",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
    ),
)
