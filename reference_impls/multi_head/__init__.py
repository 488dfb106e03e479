"""Scaled dot-product multi-head self-attention: the paper's form and the released baseline."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference_impls.golden_rows import Adapted, Arrays, Config, float64, without_padded_rows
from reference_impls.mechanism import Mechanism, Size, of_package

_CUDA = {"devices": ("cuda",)}


def _fields(matmul_bytes: Callable[[Size], float]) -> dict[str, Any]:
    """All implementations; what "matmul" holds depends on the form."""

    def sdpa(what: str, **fields: Any) -> tuple[Any, ...]:
        return "fused:SdpaMultiHead", f"torch's fused attention, {what}", fields

    def flash(release: int) -> tuple[Any, ...]:
        what = f"FlashAttention {release}, of its own package (no padding mask)"
        return "fused:FlashMultiHead", what, {"options": {"release": f"flash{release}"}, **_CUDA}

    padded, whole = {"padded": True}, "heads padded to whole eights"
    fast = {"fast32": ("cuda",)}  # by torch's memory-efficient kernel, three TF32 products for one
    return of_package(
        "reference_impls.multi_head",
        plain=("PlainMultiHead", "the N x N scores and their softmax, step by step"),
        matmul=(
            "MatmulMultiHead",
            "two batched products and torch's softmax",
            {"transient_bytes": matmul_bytes},
        ),
        sdpa=sdpa("its own choice", **fast),
        sdpa_padded=sdpa(f"its own choice, {whole}", options=padded, **fast),
        sdpa_math=sdpa("math backend", options={"backend": "math"}),
        sdpa_flash=sdpa("flash backend (no padding mask on CUDA)", options={"backend": "flash"}),
        sdpa_efficient=sdpa(
            f"memory-efficient backend, {whole}",
            options={"backend": "efficient", **padded},
            **_CUDA,
            **fast,
        ),
        sdpa_cudnn=sdpa(f"cuDNN backend, {whole}", options={"backend": "cudnn", **padded}, **_CUDA),
        flash3=flash(3),
        flash4=flash(4),
        flex=("flex:FlexMultiHead", "torch's FlexAttention, compiled", _CUDA),
    )


def _parameters(s: Size) -> int:
    """q, k, v and W^o, no biases."""
    return 3 * s.d_in * s.d_out + s.d_out * s.d_out


def _released_parameters(s: Size) -> int:
    """q, k, v, no biases."""
    return 3 * s.d_in * s.d_out


def _relu_parameters(s: Size) -> int:
    """q, k, v, a bias each."""
    return 3 * s.d_in * s.d_out + 3 * s.d_out


def _projections_and_core(s: Size) -> float:
    """Products only: Q K^T and P V over all N*N pairs, or the causal ones; softmax not counted."""
    keys = (s.length + 1) / 2 if s.options.get("causal") else s.length
    return s.batch * s.length * (6.0 * s.d_in * s.d_out + 4.0 * keys * s.d_out)


def _passes(s: Size) -> int:
    """A product costs its forward once again for each of its two gradients."""
    return 3 if s.training else 1


def _operations(s: Size) -> float:
    return _passes(s) * (_projections_and_core(s) + 2.0 * s.batch * s.length * s.d_out**2)


def _released_operations(s: Size) -> float:
    return _passes(s) * _projections_and_core(s)


def _paper_bytes(s: Size) -> float:
    """With positions and the output layer."""
    return _with_positions(s, output=s.d_out**2, kept=9)


def _released_bytes(s: Size) -> float:
    """With positions, without the output layer: what it reads need not be kept."""
    return _with_positions(s, output=0, kept=8)


def _forward(s: Size, inputs: int, output: bool) -> float:
    """Bytes that "matmul" holds at the peak of a pass without gradients, as its code allocates.

    Every term of a maximum is one moment of the pass, with what is alive at it: the numbers over
    pairs (B H N N), over tokens and features (B N d_out), over the input (B N d_in), the three
    projections' weights side by side (3 d_in d_out; in evaluation they are kept from call to call),
    and those of the output layer. q, k and v are copied head by head. For the default options,
    without padding; sdpa holds no pairs.
    """
    p, f = s.pairs, s.features
    held = max(
        inputs + 3 * f,  # x with positions, q k v
        p + 5 * f,  # scores: q k v, copies of q and k; softmax: a copy of v, the attended values
        2 * p + 3 * f,  # scores and softmax: q k v
        (6 if output else 5) * f,  # q k v, attended values, in order, output
    )
    return float(s.item_bytes * held)


def _with_positions(s: Size, output: int, kept: int) -> float:
    p, f, i, w = s.pairs, s.features, s.inputs, 3 * s.d_in * s.d_out
    if not s.training:
        return _forward(s, i, bool(output))
    # Of few tokens the weights are not put side by side; the gradient of x comes head by head.
    joined, by_head = (0, s.heads * i) if s.few else (w, 0)
    held = max(
        i + joined + 3 * f,  # x with positions, the weights side by side, q k v
        # scores and softmax: as above, and the copies of q and k are kept
        i + joined + 2 * p + 5 * f,
        i + joined + p + kept * f,  # end of the forward pass
        # softmax, its gradient, the scores': q k v's and output
        i + joined + output + 3 * p + 4 * f,
        # gradients of x and of the weights from that of q k v
        2 * i + by_head + w + joined + output + 4 * f,
    )
    return float(s.item_bytes * held)


def _relu_bytes(s: Size) -> float:
    """With biases and a relu on q k v, without positions and output layer."""
    p, f, i, w = s.pairs, s.features, s.inputs, 3 * s.d_in * s.d_out
    if not s.training:
        return _forward(s, 0, False)
    held = max(
        w + 3 * f,
        w + 3 * p + 9 * f,  # softmax, its gradient, the scores': q k v kept for the relu, copies
        w + 10 * f,  # gradients of q k v, stacked and in order, beside what the relu kept
        i + 2 * w + 4 * f,
    )
    return float(s.item_bytes * held)


PROJECTIONS = ("q_w", "k_w", "v_w")


def golden_released(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the folder ``multi_head``: one array qkv_w [3, H, D, d_h], no output layer.

    The program's padded rows hold the plain average of v over all N positions, and the cotangent
    counts them. Ours are zero, so what they add to the gradient of x is taken out.
    """
    heads, head_dim = config["heads"], config["head_dim"]
    options = {"heads": heads, "positions": "released", "output_layer": False}
    weights = dict(zip(PROJECTIONS, arrays["qkv_w"].astype("float64"), strict=True))
    added: Any = 0.0
    if "grad_out" in arrays:
        padded = ~arrays["mask"][..., None]  # [b, n, 1]
        of_padded = (arrays["grad_out"].astype("float64") * padded).sum(axis=1)  # [b, H*d_h]
        of_padded = of_padded.reshape(-1, heads, 1, head_dim) / padded.shape[1]
        added = (of_padded * weights["v_w"]).sum(axis=(1, 3))[:, None]  # [b, 1, D]
    replaced = without_padded_rows(arrays, added)
    return {**options, "head_dim": head_dim}, weights, heads * head_dim, replaced


def golden_paper(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the folder ``multi_head_paper``."""
    options = {
        "heads": config["heads"],
        "positions": "paper" if config["positions"] else None,
        "output_layer": True,
        "head_dim": arrays["v_w"].shape[-1],
    }
    return options, float64(arrays, (*PROJECTIONS, "o_w")), arrays["o_w"].shape[1]


def golden_relu(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the folder ``multi_head_relu``: heads are consecutive groups of columns."""
    heads, units = config["heads"], arrays["q_w"].shape[1]
    weights = float64(arrays, (*PROJECTIONS, "q_b", "k_b", "v_b"))
    for name, w in weights.items():
        by_head = w.reshape(*w.shape[:-1], heads, -1)  # [D, H, d_h] or [H, d_h]
        weights[name] = by_head.swapaxes(0, -2).copy()
    options = {
        "heads": heads,
        "positions": None,
        "output_layer": False,
        "head_dim": units // heads,
        "relu_projections": True,
    }
    return options, weights, units


MECHANISMS = (
    Mechanism(
        name="multi_head",
        summary="scaled dot-product multi-head attention with sinusoidal positions",
        source="Vaswani et al. (NIPS 2017); Shen et al., Tensorized Self-Attention, eq. 4-5",
        **_fields(_paper_bytes),
        options={"positions": "paper", "output_layer": True, "head_dim": None, "causal": False},
        variants={
            "no_positions": {"positions": None},
            "released_positions": {"positions": "released"},
            "no_output_layer": {"output_layer": False},
            "narrow_heads": {"head_dim": 3},
            "causal": {"causal": True},
        },
        takes_heads=True,
        score_weights=("q_w",),
        default="sdpa",
        parameters=_parameters,
        operations=_operations,
        formula_options=("causal",),
        transient_bytes=_paper_bytes,
        goldens={"multi_head_paper": "reference_impls.multi_head:golden_paper"},
    ),
    Mechanism(
        name="multi_head_released",
        summary="the released multi-head baseline: no output layer, twice the positions' exponent",
        source="taoshen58/BiBloSA@ec67cbd",
        **_fields(_released_bytes),
        options={"positions": "released", "output_layer": False, "head_dim": None},
        variants={"one_head": {"heads": 1}, "eight_heads": {"heads": 8}},
        takes_heads=True,
        score_weights=("q_w",),
        default="sdpa",
        parameters=_released_parameters,
        operations=_released_operations,
        transient_bytes=_released_bytes,
        goldens={"multi_head": "reference_impls.multi_head:golden_released"},
    ),
    Mechanism(
        name="multi_head_relu",
        summary="the other released multi-head: relu on queries, keys and values, no positions",
        source="taoshen58/BiBloSA@ec67cbd",
        **_fields(_relu_bytes),
        options={
            "positions": None,
            "output_layer": False,
            "head_dim": None,
            "relu_projections": True,
        },
        variants={"one_head": {"heads": 1}, "output_layer": {"output_layer": True}},
        takes_heads=True,
        score_weights=("q_w", "q_b"),
        default="sdpa",
        parameters=_relu_parameters,
        operations=_released_operations,
        transient_bytes=_relu_bytes,
        goldens={"multi_head_relu": "reference_impls.multi_head:golden_relu"},
    ),
)
