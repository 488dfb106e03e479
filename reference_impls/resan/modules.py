"""ReSAN: sentence encoders of reinforced self-attention and source2token attention.

What each variant is, where the paper's text leaves it open (section 3.3, Table 2):

========================  ====================  ==========================  ====================
variant                   selected by           tokens                      pooled over
========================  ====================  ==========================  ====================
full                      heads, dependents     ReSA                        all real tokens
without_unselected_heads  heads, dependents     ReSA                        selected heads
one_rss                   one policy for both   ReSA                        selected tokens
no_hard                   nothing (DiSAN)       DiSA                        all real tokens
no_soft                   one policy            the words                   selected tokens
neither                   nothing               the words                   all, by a plain mean
========================  ====================  ==========================  ====================

The last two follow from the sizes in Table 2: 993,004 weights (1.0m) and 541,803 (0.5m).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from reference_impls.checks import (
    OneRow,
    activation_by_name,
    check_input,
    glorot,
    layer_of,
    masked_softmax,
    one_of,
    options_of,
    refuse_unknown,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption
from reference_impls.resa.modules import GatheredResa, PlainResa, ResaLayer, positions, take
from reference_impls.resa.selecting import Selecting, Selection, given, real_tokens

PREFIXES = {
    "full": ("head", "dep"),
    "without_unselected_heads": ("head", "dep"),
    "one_rss": ("sel",),
    "no_hard": (),
}
WORD_PREFIXES: dict[str, tuple[str, ...]] = {"no_soft": ("sel",), "neither": ()}


class Pooling(nn.Module):
    """Source2token attention as part of a layer; its weights have the prefix ``s2t_``."""

    def add_pooling(self, width: int) -> None:
        """Make the weights."""
        self.s2t_s1_w, self.s2t_s1_b = glorot(width, width), zero_bias(width)
        self.s2t_s2_w, self.s2t_s2_b = glorot(width, width), zero_bias(width)

    def pool(self, y: Tensor, kept: Tensor, activation: Any) -> Tensor:
        """Mean of the kept tokens, weighted per feature: [B, N, d] and [B, N] -> [B, d].

        Zeros where nothing is kept.
        """
        s = activation(y @ self.s2t_s1_w + self.s2t_s1_b) @ self.s2t_s2_w + self.s2t_s2_b
        return (masked_softmax(s, kept[..., None], dim=1) * y).sum(1)


class ResanLayer(ResaLayer, Pooling):
    """`ResaLayer` and source2token attention over its output: [B, N, d_in] -> [B, d_out].

    Parameters
    ----------
    d_in, d_out : int
    variant : {"full", "without_unselected_heads", "one_rss", "no_hard"}
        See above.
    **options
        As for `ResaLayer`; its activation serves both attentions.
    """

    def __init__(self, d_in: int, d_out: int, *, variant: str = "full", **options: Any) -> None:
        known = [option for option in options_of(ResaLayer) if option != "prefixes"]
        refuse_unknown("resan", options, ("variant", *known))
        if variant in WORD_PREFIXES:
            raise BadOption(f"variant={variant!r} has no context fusion: it is resan_no_fusion's")
        one_of("variant", variant, PREFIXES)
        super().__init__(d_in, d_out, prefixes=PREFIXES[variant], **options)
        self.drops_unselected = variant in ("without_unselected_heads", "one_rss")
        self.add_pooling(d_out)

    def encode(self, x: Tensor, real: Tensor, selection: Selection) -> Tensor:
        """The sentence, of x zero at padding: [B, N, d_in] -> [B, d_out]."""
        y = zero_at_padding(self.among(x, real, selection), real)  # [B, N, d_out]
        kept = selection.heads & real if self.drops_unselected else real
        return self.pool(y, kept, self.activation)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, selection: Selection | None = None
    ) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, d_out].

        A sample without a real token gives zeros, and so does one without a selected token where
        the others are dropped.

        Parameters
        ----------
        selection : Selection, optional
            Takes the place of the policies' own.
        """
        check_input(x, mask, self.d_in)
        x, real = zero_at_padding(x, mask), real_tokens(x, mask)
        return self.encode(x, real, self.chosen(x, real, selection))


@layer_of("resan_no_fusion")
class WordsLayer(Selecting, Pooling):
    """ReSAN without soft self-attention: the words themselves, pooled.

    Parameters
    ----------
    d_in, d_out : int
        Must be equal.
    variant : {"no_soft", "neither"}
        See above; "neither" has no weights.
    activation : {"relu", "elu", "selu"}
        Of source2token attention.
    selection, rss_hidden, rss_activation, policy
        As for `ResaLayer`.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        variant: str = "no_soft",
        activation: str = "elu",
        selection: str = "threshold",
        rss_hidden: int | None = None,
        rss_activation: str = "elu",
        policy: str = "rss",
    ) -> None:
        super().__init__()
        if d_in != d_out:
            raise BadOption(f"d_out={d_out}, but the words have d_in={d_in}; make them equal")
        self.d_in = d_in
        self.variant = one_of("variant", variant, WORD_PREFIXES)
        self.activation = activation_by_name(activation)
        self.add_policies(
            WORD_PREFIXES[variant],
            d_in,
            selection=selection,
            rss_hidden=rss_hidden,
            rss_activation=rss_activation,
            policy=policy,
        )
        if variant == "no_soft":
            self.add_pooling(d_in)

    def encode(self, x: Tensor, kept: Tensor) -> Tensor:
        """The kept words, pooled: [B, N, D] and [B, N] -> [B, D]."""
        return self.pool(x, kept, self.activation)

    def forward(
        self, x: Tensor, mask: Tensor | None = None, *, selection: Selection | None = None
    ) -> Tensor:
        """[B, N, D] with mask [B, N] (true for real tokens; None: all) -> [B, D]."""
        check_input(x, mask, self.d_in)
        x, real = zero_at_padding(x, mask), real_tokens(x, mask)
        if self.variant == "neither":
            return x.sum(1) / real.sum(1, keepdim=True).clamp(min=1)
        return self.encode(x, self.chosen(x, real, selection).heads & real)


def narrowed(selection: Selection, index: Tensor, kept: Tensor) -> Selection:
    """A selection among the tokens at some positions: [B, N] -> [B, S].

    Parameters
    ----------
    index : Tensor of int64, shape [B, S]
    kept : Tensor of bool, shape [B, S]
        Which of them are tokens.
    """
    heads, dependents = (
        chosen.gather(1, index) & kept for chosen in (selection.heads, selection.dependents)
    )
    return given(heads, dependents, kept)


class PlainResan(OneRow, ResanLayer, PlainResa):
    """`ResanLayer` with an explicit softmax over all pairs."""


class PlainWords(OneRow, WordsLayer):
    """`WordsLayer` as it stands."""


class GatheredResan(ResanLayer, GatheredResa):
    """`ResanLayer` that gathers; variants that drop tokens drop them from the sequence."""

    def encode(self, x: Tensor, real: Tensor, selection: Selection) -> Tensor:
        """Only heads and dependents are encoded where the others are dropped, and heads pooled."""
        if not self.drops_unselected:
            return super().encode(x, real, selection)
        used = (selection.heads | selection.dependents) & real
        index, kept = positions(used)  # [B, S], in order: the direction of a pair stays
        selection = narrowed(selection, index, kept)
        y = self.among(take(x, index), kept, selection)  # [B, S, d_out]
        at, pooled = positions(selection.heads)
        return self.pool(take(y, at), pooled, self.activation)


class GatheredWords(WordsLayer):
    """`WordsLayer` on the selected words only."""

    def encode(self, x: Tensor, kept: Tensor) -> Tensor:
        """Gather, then pool."""
        index, real = positions(kept)  # [B, S]
        return self.pool(take(x, index), real, self.activation)
