"""DiSAN: both directions of directional self-attention, pooled to a sentence vector."""

from __future__ import annotations

from reference_impls import disa, source2token
from reference_impls.golden_rows import Adapted, Arrays, Config
from reference_impls.mechanism import Mechanism, Size, of_package
from reference_impls.source2token import of_output


def _parameters(s: Size) -> int:
    """Those of disa and of source2token on its output."""
    return disa.parameters(s) + source2token.parameters(of_output(s))


def _operations(s: Size) -> float:
    return disa.operations(s) + source2token.operations(of_output(s))


def _transient(s: Size) -> float:
    """The blocks' own; in training what the pooling keeps stands beside them."""
    parts = disa.transient_bytes(s), source2token.transient_bytes(of_output(s))
    return sum(parts) if s.training else max(parts)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the golden folder disan."""
    weights = {}
    for name, array in arrays.items():
        if name.startswith(("fw_", "bw_")):
            weights[f"fusion.{name}"] = array.astype("float64")
        elif name.startswith("s2t_"):
            weights[f"pooling.{name.removeprefix('s2t_')}"] = array.astype("float64")
    options = {"activation": config["activation"], "tanh_scale": config["tanh_scale"]}
    return options, weights, 2 * arrays["fw_map_w"].shape[1]


MECHANISMS = (
    Mechanism(
        name="disan",
        summary="the DiSAN sentence encoder: disa in both directions, then source2token",
        source="Shen et al., DiSAN (AAAI 2018); taoshen58/DiSAN@fdb5b97",
        **of_package(
            "reference_impls.disan",
            plain=("PlainDisan", "disa.plain and source2token.plain"),
            broadcast=("BroadcastDisan", "disa.broadcast and source2token.direct"),
            fused=("FusedDisan", "disa.fused and source2token.direct"),
        ),
        options={"activation": "elu", "tanh_scale": 5.0},
        variants={"relu": {"activation": "relu"}, "narrow_tanh": {"tanh_scale": 1.0}},
        output="sentence",
        score_weights=("pooling.s2_w", "pooling.s2_b", *disa.scored_by("fusion.")),
        score_options=disa.WIDE,
        default="fused",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"disan": "reference_impls.disan:from_golden"},
    ),
)
