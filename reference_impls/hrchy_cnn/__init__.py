"""Hierarchical CNN: three convolutions of width 5 with gated linear units and residuals."""

from __future__ import annotations

from typing import Any

from reference_impls.golden_rows import (
    Adapted,
    Arrays,
    Config,
    added_by_padded_rows,
    float64,
    without_padded_rows,
)
from reference_impls.mechanism import Mechanism, Size, of_package

_LAYERS, _KERNEL_SIZE = 3, 5


def _weights(s: Size) -> int:
    """Numbers in the matrices of all layers; the first alone is as wide as the input."""
    return _KERNEL_SIZE * (s.d_in + (_LAYERS - 1) * s.d_out) * 2 * s.d_out


def _parameters(s: Size) -> int:
    """Matrices, and a bias for value and gate of each layer."""
    return _weights(s) + _LAYERS * 2 * s.d_out


def _operations(s: Size) -> float:
    """Products only; each costs its forward once again for each of its two gradients."""
    return (3 if s.training else 1) * 2.0 * s.batch * s.length * _weights(s)


def _transient(s: Size) -> float:
    """Forward: z (twice the width) in conv1d's order and ours, y before and after. Training: z and
    y of all layers, and some gradients of one.
    """
    features = s.batch * s.length * s.d_out
    held = 3 * _LAYERS + 2 if s.training else 6
    return float(s.item_bytes * (held * features + s.batch * s.length * s.d_in))


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the released form.

    The program's padded rows hold convolutions like all others, and the cotangent counts them.
    Ours are zero, so what they add to the gradient of x is taken out.
    """
    from reference_impls.hrchy_cnn.naive import naive

    layers = config["layers"]
    weights = float64(arrays, [f"l{i}_{a}" for i in range(layers) for a in "wb"])
    options = {"layers": layers, "kernel_size": config["kernel_size"]}

    def back(x: Any, n: int, rows: Any, g: Any) -> Any:
        return naive(x[:n], weights, rows, g, **options, form="released", padded=len(x))[1]

    added = added_by_padded_rows(arrays, back)
    return options, weights, config["hidden"], without_padded_rows(arrays, added)


def _mechanism(name: str, form: str, summary: str, source: str, padding: str) -> Mechanism:
    return Mechanism(
        name=name,
        summary=summary,
        source=source,
        **of_package(
            "reference_impls.hrchy_cnn",
            plain=("PlainHrchyCnn", "an explicit sum over taps"),
            conv=("ConvHrchyCnn", "torch's convolution and glu, features last throughout"),
            gemm=("GemmHrchyCnn", "windows in rows and a product of matrices for each layer"),
        ),
        options={"layers": _LAYERS, "kernel_size": _KERNEL_SIZE, "form": form},
        variants={
            "one_layer": {"layers": 1},
            "five_layers": {"layers": 5},
            "kernel_1": {"kernel_size": 1},
            "kernel_4": {"kernel_size": 4},
        },
        default="conv",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"hrchy_cnn": "reference_impls.hrchy_cnn:from_golden"} if padding else {},
        padding_matters=padding,
    )


MECHANISMS = (
    _mechanism(
        "hrchy_cnn",
        "paper",
        "hierarchical CNN, gated linear units, padding zero before every layer",
        "Gehring et al. (2017); the Hrchy-CNN rows of the papers' tables",
        "",
    ),
    _mechanism(
        "hrchy_cnn_released",
        "released",
        "hierarchical CNN, relu before the gate, padding zero before the first layer only",
        "taoshen58/BiBloSA@ec67cbd",
        "padding holds values after the first layer, which reach real tokens near it",
    ),
)
