"""Multi-scale self-attention: every head has a window of its own scale."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from reference_impls import kernels
from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.mechanism import Mechanism, Size, of_package
from reference_impls.msmsa import costs
from reference_impls.msmsa.scales import parse_all


def _products(way: costs.Way, s: Size) -> float:
    """Products that an implementation does; one costs its forward for each gradient."""
    reading = s.options.get("width_reading", "total")
    of_heads = way(parse_all(s.options.get("scales"), s.heads, reading), s.length)
    once = costs.layer(of_heads, s.batch, s.length, s.d_in, s.d_out // s.heads, s.d_out)
    return once * (3 if s.training else 1)


def _parameters(s: Size) -> int:
    """q, k, v and W^o, no biases."""
    return 3 * s.d_in * s.d_out + s.d_out * s.d_out


def _layer_parameters(s: Size) -> int:
    """The norm's scale and offset too."""
    return _parameters(s) + 2 * s.d_out


def _transient(s: Size) -> float:
    """Of "windowed": projections, attended values side by side and the output, 6 numbers per token
    and feature, about 11 in training, where the parts of a head count too.
    """
    return s.item_bytes * (11 if s.training else 6) * s.batch * s.length * s.d_out


GOLDEN_OPTIONS = ("heads", "scales", "width_reading", "scaling", "layer", "ln_epsilon")


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the golden folder msmsa."""
    options = {name: config[name] for name in GOLDEN_OPTIONS}
    options["head_dim"] = arrays["v_w"].shape[-1]
    names = ("q_w", "k_w", "v_w", "o_w") + (("ln_scale", "ln_offset") if config["layer"] else ())
    weights = float64(arrays, names)
    return options, weights, arrays["o_w"].shape[1]


_EVERY_PAIR = {"operations": partial(_products, costs.every_pair)}
_ALONE = Mechanism(
    name="msmsa",
    summary="multi-scale multi-head self-attention: windows of different widths in a layer",
    source="Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), eq. 6-9",
    **of_package(
        "reference_impls.msmsa",
        *kernels.implementations("reference_impls.msmsa.windowed:FusedMsmsa"),
        plain=("PlainMsmsa", "the N x N scores and their softmax, step by step", _EVERY_PAIR),
        masked=(
            "MaskedMsmsa",
            "torch's fused attention over all pairs, windows in the mask",
            _EVERY_PAIR,
        ),
        windowed=(
            "windowed:WindowedMsmsa",
            "windows by the kernels of fused, short sequences by all pairs",
        ),
    ),
    options={
        "scales": None,
        "width_reading": "total",
        "scaling": "head_width",
        "layer": False,
        "ln_epsilon": 1e-5,
        "head_dim": None,
    },
    variants={
        "wide": {"scales": [5, "n/4", "n/2", 257]},
        "tagging": {"scales": [3, 5, 7, 9]},
        "one_scale_between_others": {"scales": [3, 1, 4.5, 3]},
        "radius": {"width_reading": "radius"},
        "radius_wide": {"width_reading": "radius", "scales": [9, "n/8", "n/2", "n/16"]},
        "model_width": {"scaling": "model_width"},
        "narrow_heads": {"head_dim": 3},
        "one_head": {"heads": 1, "scales": ["n/8"]},
    },
    takes_heads=True,
    score_weights=("q_w",),
    default="windowed",
    parameters=_parameters,
    operations=partial(_products, costs.ranges),
    transient_bytes=_transient,
    formula_options=("scales", "width_reading"),
    goldens={"msmsa": "reference_impls.msmsa:from_golden"},
)

MECHANISMS = (
    _ALONE,
    replace(
        _ALONE,
        name="msmsa_layer",
        summary="one layer of the Multi-Scale Transformer: norm(x + relu(msmsa(x)))",
        source="Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), eq. 10",
        options={**_ALONE.options, "layer": True},
        variants={
            "tagging": {"scales": [3, 5, 7, 9]},
            "radius": {"width_reading": "radius"},
            "model_width": {"scaling": "model_width"},
            "narrow_heads": {"head_dim": 3},
            "wide_epsilon": {"ln_epsilon": 0.1},
        },
        keeps_width=True,
        parameters=_layer_parameters,
        goldens={},
    ),
)
