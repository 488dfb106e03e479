"""Bi-directional block self-attention: attention inside blocks, and between their summaries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from reference_impls import disa
from reference_impls.biblosa.rule import block_length
from reference_impls.golden_rows import (
    Adapted,
    Arrays,
    Config,
    added_by_padded_rows,
    float64,
    without_padded_rows,
)
from reference_impls.mechanism import Mechanism, Size, of_package

_OPTIONS = {
    "block_len": None,
    "extra": 0,
    "direction": "both",
    "activation": "relu",
    "tanh_scale": 5.0,
}
_VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "forward": {"direction": "forward"},
    "backward": {"direction": "backward"},
    "elu": {"activation": "elu"},
    "selu": {"activation": "selu"},
    "narrow_tanh": {"tanh_scale": 1.0},
    "wide_tanh": {"tanh_scale": 100.0},
    "one_more": {"extra": 1},
    "blocks_of_1": {"block_len": 1},
    "blocks_of_3": {"block_len": 3},
    "one_block": {"block_len": 100},
}


def _blocks(s: Size) -> tuple[int, int]:
    """Number and length of the blocks by the rule."""
    r = min(s.length, block_length(s.length))
    return -(-s.length // r), r


def _parameters(s: Size) -> int:
    """Two directions: map, 2 + 1 + 6 matrices and five biases; between blocks 5 of each."""
    d = s.d_out // 2
    return 2 * (s.d_in * d + 14 * d * d + 10 * d)


def _operations(s: Size) -> float:
    """Products for tokens and for blocks, and what is done for every pair and feature.

    Forward per pair and feature: add, tanh, scale, exp, product with h, two sums (7); backward:
    the two gradients of that product (4), exp, scale, tanh (4), and two sums (10 in all).
    """
    blocks, r = _blocks(s)
    d = s.d_out // 2
    tokens = s.batch * s.length * (s.d_in * d + (2 + 1 + 4) * d * d)
    products = 2.0 * 2 * (tokens + s.batch * blocks * (2 + 5) * d * d)
    pairs = float(s.batch * (s.length * r + blocks**2) * s.d_out)
    return 3 * products + 17 * pairs if s.training else products + 7 * pairs


def _transient(s: Size) -> float:
    """Forward: tanh, exp and exp times h for one direction's pairs, inside blocks or between them.
    Training: tanh and exp for all pairs; beside some tensors over tokens (4 and 17, as measured).
    """
    blocks, r = _blocks(s)
    inside, between = s.length * r, blocks**2
    pairs = 2 * (inside + between) if s.training else 1.5 * max(inside, between)
    tokens = (17 if s.training else 4) * s.length
    return float(s.item_bytes * s.batch * s.d_out * (pairs + tokens))


_SCORED_BY = ("dh_w", "f_b", "s2t_w", "s2t_b", "blk_dep_w", "blk_head_w", "blk_f_b")


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the released form; a length of blocks from the rule is left to our rule.

    The program's padded rows hold values (of their own x and of their block's summary), and the
    cotangent counts them. Ours are zero, so what they add to the gradient of x is taken out.
    """
    from reference_impls.biblosa.naive import fuse, rule
    from reference_impls.naive import Oracle

    options = {
        "block_len": config["block_len"] if config["block_len_rule"] == "given" else None,
        "activation": config["activation"],
        "tanh_scale": config["tanh_scale"],
    }
    weights = float64(arrays, [name for name in arrays if name.startswith(("fw_", "bw_"))])
    how = "both", options["activation"], options["tanh_scale"]
    r = options["block_len"] or rule(arrays["x"].shape[1])

    def back(x: Any, n: int, rows: Any, g: Any) -> Any:
        return Oracle(lambda x, W, rows: fuse(x, n, r, W, rows, *how))(x, weights, rows, g)[1]

    added = added_by_padded_rows(arrays, back)
    return options, weights, arrays["output_f64"].shape[2], without_padded_rows(arrays, added)


def _mechanism(name: str, form: str, summary: str, padding: str) -> Mechanism:
    return Mechanism(
        name=name,
        summary=summary,
        source="Shen et al., Bi-BloSAN (ICLR 2018); MTSA section 4; taoshen58/BiBloSA@ec67cbd",
        **of_package(
            "reference_impls.biblosa",
            plain=("PlainBiblosa", "every softmax written out"),
            folded=("FoldedBiblosa", "blocks as samples, sums of exponentials without a maximum"),
            fused=("FusedBiblosa", "on a CPU by the kernel of disa.fused, elsewhere as folded"),
        ),
        options={**_OPTIONS, "form": form},
        variants=_VARIANTS,
        score_weights=disa.scored_by("", *_SCORED_BY),
        score_options=disa.WIDE,
        default="fused",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"biblosa": "reference_impls.biblosa:from_golden"} if padding else {},
        padding_matters=padding,
    )


MECHANISMS = (
    _mechanism(
        "biblosa",
        "paper",
        "block self-attention both ways, blocks cut from a sample's real tokens",
        "",
    ),
    _mechanism(
        "biblosa_released",
        "released",
        "block self-attention both ways, blocks cut from the padded sequence",
        "the block length comes from the padded length, and blocks of padding take part between "
        "the blocks",
    ),
)
