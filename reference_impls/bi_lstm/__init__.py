"""Bidirectional LSTM, the recurrent peer."""

from __future__ import annotations

from typing import Any

from reference_impls.golden_rows import Adapted, Arrays, Config
from reference_impls.mechanism import Mechanism, Size, of_package


def _parameters(s: Size) -> int:
    """Two directions of four gates; the second bias is frozen at zero and does not count."""
    h = s.d_out // 2
    return 2 * 4 * h * (s.d_in + h + 1)


def _operations(s: Size) -> float:
    """Products only; each costs its forward once again for each of its two gradients."""
    h = s.d_out // 2
    return (3 if s.training else 1) * 2.0 * s.batch * s.length * 2 * 4 * h * (s.d_in + h)


def _transient(s: Size) -> float:
    """Forward: the inputs' part of the gates (4 per feature; 2 with one direction at a time), and
    states. Backward: gates, cell and hidden states of every step, and the gates' gradients.
    """
    features = s.batch * s.length * s.d_out
    return float(s.item_bytes * features * (14 if s.training else 3))


def _torch_order(columns: Any) -> Any:
    """Reorder [..., 4h] from (input, candidate, forget, output) to torch's order of gates."""
    gates = columns.reshape(*columns.shape[:-1], 4, -1)[..., [0, 2, 1, 3], :]
    return gates.reshape(columns.shape)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of TensorFlow's cell; ``forget_bias`` joins the bias of the forget gate."""
    hidden, weights = int(config["hidden"]), {}
    for prefix, suffix in (("fw_", ""), ("bw_", "_reverse")):
        kernel = _torch_order(arrays[prefix + "kernel"].astype("float64")).T  # [4h, D + h]
        bias = _torch_order(arrays[prefix + "bias"].astype("float64"))
        bias[hidden : 2 * hidden] += config["forget_bias"]
        weights[f"lstm.weight_ih_l0{suffix}"] = kernel[:, :-hidden].copy()
        weights[f"lstm.weight_hh_l0{suffix}"] = kernel[:, -hidden:].copy()
        weights[f"lstm.bias_ih_l0{suffix}"] = bias
        weights[f"lstm.bias_hh_l0{suffix}"] = 0 * bias
    return {}, weights, 2 * hidden


MECHANISMS = (
    Mechanism(
        name="bi_lstm",
        summary="bidirectional LSTM, half of the width each way",
        source="Graves et al. (2013); the Bi-LSTM rows of the papers' tables",
        **of_package(
            "reference_impls.bi_lstm",
            plain=("PlainBiLstm", "an explicit loop over time"),
            packed=(
                "PackedBiLstm",
                "torch.nn.LSTM; with a mask packed, or on a CPU turned over for the way back",
                {"fast32": ("cuda",)},  # cuDNN's
            ),
        ),
        default="packed",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"bi_lstm": "reference_impls.bi_lstm:from_golden"},
    ),
)
