"""Multi-dimensional source2token attention: pools a sequence into a sentence vector."""

from __future__ import annotations

from dataclasses import replace

from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.mechanism import Mechanism, Size, of_package


def of_output(s: Size) -> Size:
    """The size of a pooling of what a layer of size s gives."""
    return replace(s, d_in=s.d_out, heads=1)


def parameters(s: Size) -> int:
    """Two layers with biases."""
    return 2 * (s.d_in * s.d_in + s.d_in)


def operations(s: Size) -> float:
    """Products only; each costs its forward once again for each of its two gradients."""
    return (3 if s.training else 1) * 4.0 * s.batch * s.length * s.d_in**2


def transient_bytes(s: Size) -> float:
    """Forward: scores, softmax, its product with x. Training: two gradients more, or those of the
    weights beside three.
    """
    held = 3 * s.inputs
    if s.training:
        held = max(5 * s.inputs, 4 * s.inputs + s.d_in**2, 3 * s.inputs + 2 * s.d_in**2)
    return float(s.item_bytes * held)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the golden folder source2token."""
    weights = float64(arrays, ("s1_w", "s1_b", "s2_w", "s2_b"))
    return {"activation": config["activation"]}, weights, arrays["s2_w"].shape[1]


MECHANISMS = (
    Mechanism(
        name="source2token",
        summary="multi-dimensional source2token attention, a sentence vector",
        source="Shen et al., DiSAN (AAAI 2018); MTSA section 2.2 B",
        **of_package(
            "reference_impls.source2token",
            plain=("PlainSource2Token", "the softmax written out"),
            direct=(
                "DirectSource2Token",
                "torch's fused softmax",
                {"transient_bytes": transient_bytes},
            ),
        ),
        options={"activation": "relu"},
        variants={"elu": {"activation": "elu"}, "selu": {"activation": "selu"}},
        output="sentence",
        keeps_width=True,
        score_weights=("s2_w", "s2_b"),
        default="direct",
        parameters=parameters,
        operations=operations,
        transient_bytes=transient_bytes,
        goldens={"source2token": "reference_impls.source2token:from_golden"},
    ),
)
