"""DiSAN: both directions of directional self-attention, pooled to a sentence vector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from reference_impls.disa import MECHANISMS as DISA
from reference_impls.mechanism import Implementation, Mechanism, Size
from reference_impls.source2token import MECHANISMS as SOURCE2TOKEN

if TYPE_CHECKING:
    import numpy as np

_PLAIN = "reference_impls.disan.modules:PlainDisan"


def _pooling(s: Size) -> Size:
    """The pooling reads what the blocks give."""
    return Size(s.batch, s.length, s.d_out, s.d_out, 1, s.item_bytes, s.training)


def _parameters(s: Size) -> int:
    """Those of disa and of source2token on its output."""
    disa, pooling = DISA[0].parameters, SOURCE2TOKEN[0].parameters
    assert disa is not None
    assert pooling is not None
    return disa(s) + pooling(_pooling(s))


def _operations(s: Size) -> float:
    disa, pooling = DISA[0].operations, SOURCE2TOKEN[0].operations
    assert disa is not None
    assert pooling is not None
    return disa(s) + pooling(_pooling(s))


def _transient(s: Size) -> float:
    """The blocks' own; in training what the pooling keeps stands beside them."""
    disa, pooling = DISA[0].transient_bytes, SOURCE2TOKEN[0].transient_bytes
    assert disa is not None
    assert pooling is not None
    if s.training:
        return disa(s) + pooling(_pooling(s))
    return max(disa(s), pooling(_pooling(s)))


def from_golden(
    config: Mapping[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray], int]:
    """Adapt a case of the golden folder disan.

    Returns
    -------
    tuple
        Options, float64 weights by state_dict name, d_out.
    """
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
        implementations=(
            Implementation(
                "plain", _PLAIN, "disa.plain and source2token.plain", mask_optional=True
            ),
            Implementation(
                "broadcast",
                "reference_impls.disan.modules:BroadcastDisan",
                "disa.broadcast and source2token.direct",
                mask_optional=True,
            ),
        ),
        folder="reference_impls.disan",
        oracle="reference_impls.disan.naive:naive",
        plain=_PLAIN,
        options={"activation": "elu", "tanh_scale": 5.0},
        variants={"relu": {"activation": "relu"}, "narrow_tanh": {"tanh_scale": 1.0}},
        output="sentence",
        score_weights=("pooling.s2_w", "pooling.s2_b"),
        default="broadcast",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"disan": "reference_impls.disan:from_golden"},
    ),
)
