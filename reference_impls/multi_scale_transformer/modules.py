"""The Multi-Scale Transformer as a sentence encoder (eq. 10-12), with the attentions of `msmsa`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    glorot,
    layer_of,
    one_of,
    positive_int,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption
from reference_impls.msmsa.modules import (
    Heads,
    Mix,
    add_and_norm,
    masked_mix,
    not_negative,
    plain_mix,
    project,
    score_divisor,
    within_windows,
)
from reference_impls.msmsa.scales import (
    CANDIDATES,
    READINGS,
    GivenScale,
    Scale,
    parse_all,
    scales_of_layers,
)
from reference_impls.msmsa.windowed import Fused, windowed_mix
from reference_impls.multi_scale_transformer.presets import settle
from reference_impls.transformer.modules import SentenceModel


@layer_of("multi_scale_transformer")
class MultiScaleLayers(SentenceModel):
    """Layers h = norm(h + relu(MSMSA(h))): no feed-forward block and no positions (eq. 10).

    Parameters
    ----------
    d_in, d_out : int
    heads : int
        Per layer.
    layers : int
    scales : list of lists, optional
        Scale of every head of every layer. None: from `candidates` and `alpha` (eq. 11-12).
    candidates : list
        Scales, small to large.
    alpha : float
        How much lower layers prefer small scales.
    readout : {"concat", "sum", "max"}
    cls : bool
    width_reading, scaling, ln_epsilon
        As for `MsmsaLayer`; the model width is d_model.
    head_dim : int, optional
        d_h; d_model / heads by default.
    preset : str, optional
        A model of the paper's experiments, see `presets`. Options that have their defaults give way
        to it, others must agree with it.

    Notes
    -----
    [CLS] is an ordinary token at position 0: shares of n are of n + 1 then (ours). Padding belongs
    behind the tokens.
    """

    mix: Mix

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int | None = None,
        layers: int = 2,
        scales: Sequence[Sequence[GivenScale]] | None = None,
        candidates: Sequence[GivenScale] = CANDIDATES,
        alpha: float = 0.5,
        readout: str = "concat",
        cls: bool = True,
        width_reading: str = "total",
        scaling: str = "head_width",
        ln_epsilon: float = 1e-5,
        head_dim: int | None = None,
        preset: str | None = None,
    ) -> None:
        if preset is not None:
            given = {
                "heads": heads,
                "layers": layers,
                "scales": scales,
                "candidates": candidates,
                "alpha": alpha,
                "readout": readout,
                "cls": cls,
                "head_dim": head_dim,
            }
            o = settle(preset, "multi_scale_transformer", given, d_out)
            heads, layers, scales, candidates, alpha, readout, cls, head_dim = (
                o[name] for name in given
            )
        super().__init__(d_in, d_out, depth=layers, readout=readout, cls=cls)
        heads = positive_int("heads", heads)
        depth, d = self.depth, self.d_model
        if scales is None:
            scales = scales_of_layers(candidates, alpha, heads, depth)
        one_of("width_reading", width_reading, READINGS)
        self.scales = _scales(scales, heads, depth, width_reading)
        if head_dim is None:
            head_dim = width_per_part(d, heads, "heads")
        positive_int("head_dim", head_dim)
        self.divisor = score_divisor(scaling, d, head_dim)
        self.ln_epsilon = not_negative("ln_epsilon", ln_epsilon)
        for i in range(depth):
            for name in ("q_w", "k_w", "v_w"):
                self.register_parameter(f"l{i}_{name}", glorot(heads, d, head_dim))
            self.register_parameter(f"l{i}_o_w", glorot(heads * head_dim, d))
            self.register_parameter(f"l{i}_ln_scale", nn.Parameter(torch.ones(d)))
            self.register_parameter(f"l{i}_ln_offset", zero_bias(d))

    def layer(self, i: int, h: Tensor, mask: Tensor | None) -> Tensor:
        """Eq. 10."""
        ln_scale, ln_offset = getattr(self, f"l{i}_ln_scale"), getattr(self, f"l{i}_ln_offset")
        mixed = self.mix(h, self._heads(i), mask, None)
        # A padded state is ln_offset: the next layer wants zeros there.
        return zero_at_padding(add_and_norm(h, mixed, ln_scale, ln_offset, self.ln_epsilon), mask)

    def scores(self, i: int, h: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Eq. 6-8 before the softmax, within each head's window."""
        q, k, _ = project(h, self._heads(i))
        return q @ k.mT, within_windows(self.scales[i], h.shape[1], mask, h.device)

    def _heads(self, i: int) -> Heads:
        q_w, k_w, v_w, o_w = (
            getattr(self, f"l{i}_{name}") for name in ("q_w", "k_w", "v_w", "o_w")
        )
        return Heads(q_w, k_w, v_w, o_w, self.scales[i], self.divisor, self.merged)


def _scales(
    given: Sequence[Sequence[GivenScale]], heads: int, layers: int, reading: str
) -> tuple[tuple[Scale, ...], ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise BadOption(f"scales={given!r}; expected one list of scales per layer")
    if len(given) != layers:
        raise BadOption(
            f"scales of {len(given)} layers given for {layers}; give one list per layer"
        )
    return tuple(parse_all(scales, heads, reading) for scales in given)


class PlainMultiScaleTransformer(MultiScaleLayers):
    """`MultiScaleLayers` with an explicit softmax."""

    mix = staticmethod(plain_mix)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)


class MaskedMultiScaleTransformer(MultiScaleLayers):
    """`MultiScaleLayers` by fused attention with the windows in its mask."""

    mix = staticmethod(masked_mix)


class WindowedMultiScaleTransformer(MultiScaleLayers):
    """`MultiScaleLayers` by what is cheapest, see `reference_impls.msmsa.windowed`."""

    mix = staticmethod(windowed_mix)


class FusedMultiScaleTransformer(Fused, MultiScaleLayers):
    """`MultiScaleLayers` in memory M * d_model, see `reference_impls.msmsa.windowed`."""
