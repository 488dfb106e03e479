"""Bidirectional GRU, the cheaper recurrent peer, with the reset gate in both places."""

from __future__ import annotations

from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.mechanism import Mechanism, Size, of_package

_WAYS = of_package(
    "reference_impls.bi_gru",
    plain=("PlainBiGru", "an explicit loop over time"),
    batched=("BatchedBiGru", "both directions in one loop, the inputs' products in front of it"),
    packed=(
        "PackedBiGru",
        "torch.nn.GRU's kernel, packed sequences where there is a mask",
        {"fast32": ("cuda",)},  # cuDNN's
    ),
)


def _before_parameters(s: Size) -> int:
    """Two directions of two gates and a candidate."""
    h = s.d_out // 2
    return 2 * 3 * h * (s.d_in + h + 1)


def _after_parameters(s: Size) -> int:
    """The candidate has a second bias, inside the reset."""
    return _before_parameters(s) + s.d_out


def _operations(s: Size) -> float:
    """Products only; each costs its forward once again for each of its two gradients."""
    h = s.d_out // 2
    return (3 if s.training else 1) * 2.0 * s.batch * s.length * 2 * 3 * h * (s.d_in + h)


def _transient(s: Size) -> float:
    """Forward: the inputs' part of gates and candidate, twice, and states. Training: gates,
    candidates, states of every step and their gradients.
    """
    features = s.batch * s.length * s.d_out
    return float(s.item_bytes * features * (14 if s.training else 7))


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the golden folder bi_gru (TensorFlow's cell): the names are ours already."""
    names = [f"{d}_{n}" for d in ("fw", "bw") for n in ("gates_w", "gates_b", "cand_w", "cand_b")]
    weights = float64(arrays, names)
    return {"reset": "before"}, weights, 2 * weights["fw_cand_b"].shape[0]


MECHANISMS = (
    Mechanism(
        name="bi_gru",
        summary="bidirectional GRU, reset after the product (torch)",
        source="Cho et al. (2014), in torch's form; the Bi-GRU rows of the papers' tables",
        **_WAYS,
        options={"reset": "after"},
        default="packed",
        parameters=_after_parameters,
        operations=_operations,
        transient_bytes=_transient,
    ),
    Mechanism(
        name="bi_gru_released",
        summary="bidirectional GRU, reset before the product (Cho et al., TensorFlow)",
        source="Cho et al. (2014), eq. 5-8; taoshen58/BiBloSA@ec67cbd",
        **{**_WAYS, "implementations": _WAYS["implementations"][:2]},
        options={"reset": "before"},
        default="batched",
        parameters=_before_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"bi_gru": "reference_impls.bi_gru:from_golden"},
    ),
)
