"""Multi-window convolution (3-, 4- and 5-grams), the convolutional peer."""

from __future__ import annotations

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
        goldens={"multi_cnn": "reference_impls.multi_cnn.golden:from_golden"},
    ),
)
