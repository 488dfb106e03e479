"""Stacked MTSA: layers of feed-forward block, attention, residuals and layer normalisation.

Its attentions are those of `reference_impls.mtsa`: the yardstick with the tensor of N x N x d_h
scores, stabilised Algorithm 1 by matrix products only, and the kernels (one projection a layer,
views of it, nothing of N x N).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm
from torch.utils.checkpoint import checkpoint

from reference_impls.checks import (
    activation_by_name,
    check_input,
    core_dtype,
    glorot,
    layer_of,
    one_of,
    positive_int,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.kernels.geometry import GeometryByLength
from reference_impls.masks import parse_all
from reference_impls.mechanism import BadOption
from reference_impls.mtsa.fused import FusedAttention, parts_of, query_key_value
from reference_impls.mtsa.layer import (
    SCALES,
    TensorizedLayer,
    concatenate,
    head_first,
)
from reference_impls.mtsa.optimized import Algorithm1Attention
from reference_impls.mtsa.plain import PlainAttention


@layer_of("mtsa_stack")
class StackedLayer(TensorizedLayer):
    """Layers ``x <- LN1(x + f(x ffn_w + ffn_b)); x <- LN2(x + M(x))``, M the released MTSA.

    M takes queries, keys, values and one layer of source2token scores from x, half of the heads
    forward, half backward, and has an output layer with f; no gate. The weights of layer l have the
    prefix ``l{l}_``.

    Parameters
    ----------
    d_in, d_out : int
        Must be equal.
    heads : int
        Even.
    layers : int
    scale_t : {"log_sigmoid", "identity"}
    activation : {"relu", "elu", "selu"}
        f.
    ln_epsilon : float
        Added to the variance.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        layers: int = 2,
        scale_t: str = "identity",
        activation: str = "relu",
        ln_epsilon: float = 1e-6,
    ) -> None:
        super().__init__()
        if d_in != d_out:
            raise BadOption(f"d_out={d_out}, but mtsa_stack keeps d_in={d_in}; make them equal")
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        self.layers = positive_int("layers", layers)
        self.scale_t = one_of("scale_t", scale_t, SCALES)
        self.activation = activation_by_name(activation)
        if not (isinstance(ln_epsilon, (int, float)) and 0 < ln_epsilon < math.inf):
            raise BadOption(f"ln_epsilon={ln_epsilon!r}; expected a number above 0")
        self.ln_epsilon = float(ln_epsilon)
        self.masks = parse_all(None, heads)
        d_h = width_per_part(d_out, heads, "heads")
        for layer in range(layers):
            weights = {
                "ffn_w": glorot(d_in, d_in),
                "ffn_b": zero_bias(d_in),
                "q_w": glorot(heads, d_in, d_h),
                "k_w": glorot(heads, d_in, d_h),
                "v_w": glorot(heads, d_in, d_h),
                "s2_w": glorot(heads, d_in, d_h),
                "s2_b": zero_bias(heads, d_h),
                "o_w": glorot(d_in, d_in),
                "o_b": zero_bias(d_in),
                "ln1_scale": nn.Parameter(torch.ones(d_in)),
                "ln1_offset": zero_bias(d_in),
                "ln2_scale": nn.Parameter(torch.ones(d_in)),
                "ln2_offset": zero_bias(d_in),
            }
            for name, weight in weights.items():
                self.register_parameter(f"l{layer}_{name}", weight)

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """The stack at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, D].

        Only the last layer can be computed for some positions alone; the others name all of them.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        every = None if rows is None else torch.arange(x.shape[1], device=x.device)
        for layer in range(self.layers):
            x = self._fed(layer, x)
            wanted = rows if layer == self.layers - 1 else every
            x = self._attended(layer, x, self._projected(layer, x), mask, wanted)
        return zero_at_padding(x, mask if mask is None or rows is None else mask[:, rows])

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores and weights of every layer, named as those of `TensorizedLayer` behind ``l0_``."""
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        found: dict[str, Tensor] = {}
        for layer in range(self.layers):
            x = self._fed(layer, x)
            projected = self._projected(layer, x)
            shown = self.shown(*projected, mask)
            found |= {f"l{layer}_{name}": value for name, value in shown.items()}
            x = self._attended(layer, x, projected, mask, None)
        return found

    def _fed(self, layer: int, x: Tensor) -> Tensor:
        """LN1(x + f(x ffn_w + ffn_b)), [B, N, D]."""
        hidden = self.activation(x @ self._w(layer, "ffn_w") + self._w(layer, "ffn_b"))
        return self._normalised(layer, "ln1", x + hidden)

    def _attended(
        self,
        layer: int,
        x: Tensor,
        projected: tuple[Tensor, Tensor, Tensor, Tensor],
        mask: Tensor | None,
        rows: Tensor | None,
    ) -> Tensor:
        """LN2(x + M(x)), [B, R, D]."""
        a = self.attend(*projected, mask, rows)  # [H, B, R, d_h]
        if rows is not None:
            x = x[:, rows]
        fused = concatenate(a) @ self._w(layer, "o_w") + self._w(layer, "o_b")
        return self._normalised(layer, "ln2", x + self.activation(fused))

    def _projected(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries (divided by sqrt(d_h)), keys, values and scores s, [H, B, N, d_h] each."""
        q_w, k_w, v_w, s_w = (self._w(layer, name) for name in ("q_w", "k_w", "v_w", "s2_w"))
        product = x @ query_key_value(q_w, k_w, v_w, s_w)
        q, k, v, t = (head_first(part, self.heads) for part in product.chunk(4, dim=-1))
        return q, k, v, t + self._w(layer, "s2_b")[:, None, None]

    def _normalised(self, layer: int, name: str, x: Tensor) -> Tensor:
        """Layer normalisation over the features, with the biased variance."""
        scale, offset = self._w(layer, f"{name}_scale"), self._w(layer, f"{name}_offset")
        return layer_norm(x, x.shape[-1:], scale, offset, self.ln_epsilon)

    def _w(self, layer: int, name: str) -> Tensor:
        return weight_of(self, f"l{layer}_{name}")


class Centred(TensorizedLayer):
    """A way to attend, on values without their mean; stands before that way among the bases."""

    _geometries: GeometryByLength

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, with the mean over the tokens taken out of the values and put back.

        Normalised tokens can be nearly alike. What numerator and denominator then send back to the
        scores cancels but for the differences between the values: without their mean nothing large
        is left that could lose digits. Weights that sum to 1 give the mean back.
        """
        wide = v.to(core_dtype(v.dtype))
        mean = wide.detach().mean(2, keepdim=True)  # [H, B, 1, d_h]
        a = super().attend(q, k, wide - mean, s, mask, rows)
        n = v.shape[2]
        some = self._geometries.of(n, v.device).open_keys(n, mask) > 0  # [H, B or 1, N]
        return (a + mean * some[..., None]).to(q.dtype)


STEP = 64
"""Queries whose scores are held at once where positions are named."""


class PlainStackedMTSA(PlainAttention, StackedLayer):
    """`StackedLayer` with the tensor of scores; memory B * N * N * d_out for each layer.

    For some output positions (a look at long sequences) memory is B * `STEP` * N * d_out.
    """

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12; named positions a few at a time, computed again for their gradients."""
        attend = super().attend
        if rows is None or len(rows) <= STEP:
            return attend(q, k, v, s, mask, rows)
        parts = [
            checkpoint(attend, q, k, v, s, mask, some, use_reentrant=False)
            for some in rows.split(STEP)
        ]
        return torch.cat(parts, dim=2)  # [H, B, R, d_h]


class Algorithm1StackedMTSA(Centred, Algorithm1Attention, StackedLayer):
    """`StackedLayer` by stabilised Algorithm 1; memory B * H * N * N for each layer."""


class FusedStackedMTSA(Centred, FusedAttention, StackedLayer):
    """`StackedLayer` on a kernel; memory B * N * d_out for each layer."""

    def _projected(self, layer: int, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """As `StackedLayer._projected`, with views; the scores' bias is added by the product."""
        weights = [self._w(layer, name) for name in ("q_w", "k_w", "v_w", "s2_w")]
        weight = self.merged.of(query_key_value, *weights)
        s_b = self._w(layer, "s2_b").flatten()
        bias = nn.functional.pad(s_b, (weight.shape[1] - s_b.shape[0], 0))
        product = torch.addmm(bias, x.reshape(-1, self.d_in), weight)
        q, k, v, s = parts_of(product, x.shape[:2], self.heads, [w.shape[2] for w in weights])
        return q, k, v, s
