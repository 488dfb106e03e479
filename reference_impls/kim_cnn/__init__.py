"""Kim's convolutional sentence encoder: 3-, 4- and 5-grams, the maximum over windows."""

from __future__ import annotations

from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.mechanism import Mechanism, Size, of_package

_KERNEL_SIZES = (3, 4, 5)


def _filters(s: Size) -> int:
    return s.d_out // len(_KERNEL_SIZES)


def _parameters(s: Size) -> int:
    """A weight per tap and a bias per filter."""
    return sum(_KERNEL_SIZES) * s.d_in * _filters(s) + s.d_out


def _operations(s: Size) -> float:
    """Products only; each costs its forward once again for each of its two gradients."""
    taps = sum(k * max(1, s.length - k + 1) for k in _KERNEL_SIZES)
    forward = 2.0 * s.batch * taps * s.d_in * _filters(s)
    return 3 * forward if s.training else forward


def _transient(s: Size) -> float:
    """Forward: the input channels first and as conv1d wants it, and the windows of one kernel size
    twice. Training: those of all kernel sizes and the gradients of one, and of the input two.
    """
    inputs, windows = s.batch * s.length * s.d_in, s.batch * s.length * _filters(s)
    return float(s.item_bytes * (4 if s.training else 2) * (inputs + windows))


def _mechanism(name: str, windows: str, summary: str, padding: str) -> Mechanism:
    return Mechanism(
        name=name,
        summary=summary,
        source="Kim (EMNLP 2014); taoshen58/BiBloSA@ec67cbd",
        **of_package(
            "reference_impls.kim_cnn",
            plain=("PlainKimCnn", "an explicit sum over taps"),
            conv=("ConvKimCnn", "torch's convolution for each kernel size"),
            gemm=("GemmKimCnn", "windows in rows, a product of matrices for each kernel size"),
        ),
        options={"kernel_sizes": _KERNEL_SIZES, "windows": windows},
        variants={"1_2_6": {"kernel_sizes": (1, 2, 6)}, "5": {"kernel_sizes": (5,)}},
        output="sentence",
        default="conv",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"kim_cnn": "reference_impls.kim_cnn:from_golden"} if padding else {},
        padding_matters=padding,
    )


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the golden folder kim_cnn (released form)."""
    sizes = tuple(config["kernel_sizes"])
    weights = float64(arrays, [f"{a}{k}" for k in sizes for a in "wb"])
    return {"kernel_sizes": sizes}, weights, config["filters"] * len(sizes)


MECHANISMS = (
    _mechanism(
        "kim_cnn", "real", "maximum over the 3-, 4- and 5-grams of a sample's real tokens", ""
    ),
    _mechanism(
        "kim_cnn_released",
        "padded",
        "maximum over the 3-, 4- and 5-grams of the padded sequence",
        "windows that reach into the padding, or lie in it, count with x = 0 there",
    ),
)
