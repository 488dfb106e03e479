"""Multi-window convolution (3-, 4- and 5-grams), the convolutional peer."""

from __future__ import annotations

from reference_impls.golden_rows import Adapted, Arrays, Config, float64, without_padded_rows
from reference_impls.mechanism import Mechanism, Size, of_package

_KERNEL_SIZES = (3, 4, 5)


def _parameters(s: Size) -> int:
    """A weight per tap and a bias per filter."""
    filters = s.d_out // len(_KERNEL_SIZES)
    return sum(_KERNEL_SIZES) * s.d_in * filters + s.d_out


def _operations(s: Size) -> float:
    """Products only; each costs its forward once again for each of its two gradients."""
    filters = s.d_out // len(_KERNEL_SIZES)
    forward = 2.0 * s.batch * s.length * sum(_KERNEL_SIZES) * s.d_in * filters
    return 3 * forward if s.training else forward


def _transient(s: Size) -> float:
    """Forward: the input padded and channels first, the convolutions twice. Training: the padded
    inputs of three kernel sizes, convolutions, relu and their gradients.
    """
    inputs, outputs = s.batch * s.length * s.d_in, s.batch * s.length * s.d_out
    held = 3 * inputs + 4 * outputs if s.training else 2 * inputs + 2 * outputs
    return float(s.item_bytes * held)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case.

    The program's padded rows hold convolutions like all others, and the cotangent counts them.
    Ours are zero, so what they add to the gradient of x is taken out.
    """
    sizes, filters = tuple(config["kernel_sizes"]), config["filters"]
    weights = float64(arrays, [f"{a}{k}" for k in sizes for a in "wb"])
    added = 0.0 * arrays["x"].astype("float64")
    if "grad_out" in arrays:
        relu_open = arrays["output_f64"] > 0
        g = arrays["grad_out"] * (~arrays["mask"][..., None] & relu_open).astype("float64")
        n = g.shape[1]
        for j, k in enumerate(sizes):
            for t in range(k):
                # From row i to x at i + shift.
                back = g[..., j * filters : (j + 1) * filters] @ weights[f"w{k}"][t].T
                shift = t - (k - 1) // 2
                first, last = max(0, shift), min(n, n + shift)
                added[:, first:last] += back[:, first - shift : last - shift]
    replaced = without_padded_rows(arrays, added)
    return {"kernel_sizes": sizes}, weights, filters * len(sizes), replaced


MECHANISMS = (
    Mechanism(
        name="multi_cnn",
        summary="convolutions over 3-, 4- and 5-grams side by side",
        source="Kim (2014); the Multi-CNN rows of the papers' tables; taoshen58/BiBloSA@ec67cbd",
        **of_package(
            "reference_impls.multi_cnn",
            plain=("PlainMultiCnn", "an explicit sum over taps"),
            conv=("ConvMultiCnn", "torch's convolution for each kernel size"),
            gemm=("GemmMultiCnn", "windows in rows, a product of matrices for each kernel size"),
        ),
        options={"kernel_sizes": _KERNEL_SIZES},
        variants={"1_2_6": {"kernel_sizes": (1, 2, 6)}, "5": {"kernel_sizes": (5,)}},
        default="conv",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"multi_cnn": "reference_impls.multi_cnn:from_golden"},
    ),
)
