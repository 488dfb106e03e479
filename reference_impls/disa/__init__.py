"""Directional self-attention: feature-wise scores for every pair of tokens."""

from __future__ import annotations

from reference_impls.disa import cutting
from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.mechanism import Mechanism, Size, of_package


def parameters(s: Size) -> int:
    """Two blocks of half the width: the map, four matrices, five biases."""
    d = s.d_out // 2
    return 2 * (s.d_in * d + 4 * d * d + 5 * d)


def operations(s: Size) -> float:
    """Products, and what is done for every pair and feature.

    Forward per pair and feature: add, tanh, scale, shift, exp and a product of width 2 (9);
    backward: the product's two gradients (8), exp, scale, tanh (3), and two sums (15 in all).
    """
    return _counted(s, 2 * s.batch * s.length**2)


def _chunked_operations(s: Size) -> float:
    """Of the pairs in the chunks alone: about half, where a sample is cut in many.

    Under torch.compile chunks are larger, and so more pairs are computed; a size does not tell.
    """
    shape, item_bytes = (s.batch, s.length, s.d_out // 2), max(4, s.item_bytes)
    budget = cutting.CHUNK_BYTES if s.device == "cpu" else cutting.WHOLE_BYTES
    bounds = ((1, None), (None, -1))  # of the forward and the backward block
    return _counted(s, sum(cutting.pairs(shape, lo, hi, item_bytes, budget) for lo, hi in bounds))


def _fused_operations(s: Size) -> float:
    """Of the pairs that a query may attend to on a CPU, elsewhere those of the chunks."""
    if s.device != "cpu":
        return _chunked_operations(s)
    return _counted(s, s.batch * s.length * (s.length - 1))


def _counted(s: Size, pairs: int) -> float:
    """With the pairs that both blocks compute."""
    d = s.d_out // 2
    products = 2.0 * s.batch * s.length * (s.d_in * s.d_out + 2 * 4 * d * d)
    return 3 * products + 24.0 * pairs * d if s.training else products + 9.0 * pairs * d


def transient_bytes(s: Size) -> float:
    """Forward: tanh and exp of one block. Backward: those of both blocks, and the gradients of exp
    and tanh of one; beside some tensors over tokens (10 and 20).
    """
    pairs = s.batch * s.length**2 * s.d_out
    features = s.batch * s.length * s.d_out
    return float(
        s.item_bytes * (3 * pairs + 20 * features if s.training else pairs + 10 * features)
    )


NAMES = (
    "map_w",
    "map_b",
    "dep_w",
    "head_w",
    "f_b",
    "fi_w",
    "fi_b",
    "fa_w",
    "fa_b",
    "o_b",
)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the golden folder disa (one direction).

    The goldens' direction null is our "diagonal".
    """
    options = {
        "direction": config["direction"] or "diagonal",
        "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
    }
    weights = float64(arrays, NAMES)
    return options, weights, arrays["map_w"].shape[1]


WIDE = {"tanh_scale": 100.0}


def scored_by(prefix: str = "", *names: str) -> tuple[str, ...]:
    """The weights of both blocks that multiply the scores, within what tanh_scale allows."""
    names = names or ("dep_w", "head_w", "f_b")
    return tuple(f"{prefix}{side}_{name}" for side in ("fw", "bw") for name in names)


MECHANISMS = (
    Mechanism(
        name="disa",
        summary="directional self-attention, forward and backward block side by side",
        source="Shen et al., DiSAN (AAAI 2018); MTSA eq. 6; taoshen58/DiSAN@fdb5b97",
        **of_package(
            "reference_impls.disa",
            plain=("PlainDisa", "the N x N x d scores and their softmax"),
            broadcast=(
                "BroadcastDisa",
                "two tensors over N x N x d, one product for numerator and denominator",
            ),
            chunked=(
                "chunked:ChunkedDisa",
                "queries in chunks, computed again in the backward pass: linear memory",
                {
                    "operations": _chunked_operations,
                    "long": 600,
                    "forced": {"small chunks": {"reference_impls.disa.chunked:CHUNK_BYTES": 2**15}},
                },
            ),
            fused=(
                "fused:FusedDisa",
                "a kernel in C++ on a CPU, elsewhere in chunks: linear memory",
                {"operations": _fused_operations, "long": 600},
            ),
        ),
        options={"direction": "both", "activation": "elu", "tanh_scale": 5.0},
        variants={
            "forward": {"direction": "forward"},
            "backward": {"direction": "backward"},
            "diagonal": {"direction": "diagonal"},
            "relu": {"activation": "relu"},
            "selu": {"activation": "selu"},
            "narrow_tanh": {"tanh_scale": 1.0},
            "wide_tanh": WIDE,
        },
        score_weights=scored_by(),
        score_options=WIDE,
        default="fused",
        parameters=parameters,
        operations=operations,
        transient_bytes=transient_bytes,
        goldens={"disa": "reference_impls.disa:from_golden"},
    ),
)
