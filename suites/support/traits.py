"""What is known of each mechanism beside its oracle: what a row may see, and its symmetries.

Everything follows from a configuration's options, so that variants added later are covered by the
tests as they are. A mechanism added later needs no entry: its record says what all are held to.
How the amount of padding matters is the record's to say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from suites.support import symmetries, visibility
from suites.support.configurations import Options
from suites.support.symmetries import Mirror, State, Symmetry, always
from suites.support.visibility import Part


@dataclass(frozen=True)
class Traits:
    """What is known of one mechanism, as functions of its options.

    Attributes
    ----------
    symmetry : callable
        ``(options, n) -> Symmetry`` at n tokens.
    sees : callable
        ``(options, n, padded, d_out) -> parts`` for n real tokens of ``padded`` positions. For a
        sentence vector, whose one row depends on all tokens, it is not read.
    mirror : callable
        ``(options, state) -> Mirror``.
    mirror_lengths : tuple of int
        Lengths of sequences that can be mirrored.
    shifts : callable
        ``options -> {pattern: whether}``: for biases of scores, by the pattern of their names,
        whether a constant added to them changes nothing.
    pair_scores : callable
        ``options -> whether``: for mechanisms whose keys k_w and queries q_w read x, whether a
        constant added to every <q_i, k_j> changes nothing; None for all others.
    """

    symmetry: Callable[[Options, int], Symmetry]
    sees: Callable[[Options, int, int, int], list[Part]] = visibility.everything
    mirror: Callable[[Options, State], Mirror] = symmetries.same
    mirror_lengths: tuple[int, ...] = (7, 4, 1)
    shifts: Callable[[Options], Mapping[str, bool]] = field(default=lambda options: {})
    pair_scores: Callable[[Options], bool | None] = field(default=lambda options: None)


def _constant(shifts: Mapping[str, bool]) -> Callable[[Options], Mapping[str, bool]]:
    return lambda options: shifts


def _identity_scores(options: Options) -> bool | None:
    return options["scale_t"] == "identity" if options.get("token2token", True) else None


def _released_scores(options: Options) -> bool | None:
    from_x = options["scores_from_input"] and not options["input_hidden"]
    return _identity_scores(options) if from_x else None


def _scores_without_positions(options: Options) -> bool | None:
    return None if options["positions"] else True


def _nmt_shifts(options: Options) -> Mapping[str, bool]:
    last = "s2_b" if options["hidden_activation"] else "s1_b"
    return {last: options["scale_s"] == "identity"}


def _shifts_of_blocks(options: Options) -> Mapping[str, bool]:
    # tanh lets no constant pass; in blocks of one token there is no score, and all summaries are 0.
    return {r"(fw_|bw_)?s2t_b": True, r"(fw_|bw_)?(blk_)?f_b": options["block_len"] == 1}


_POOLING = Traits(always("permutation"), shifts=_constant({"s2_b": True}))
_POOLED = _constant({r"(pooling\.|s2t_)s2_b": True})
_MULTI_HEAD = Traits(
    symmetries.of_positions, visibility.causal_or_everything, pair_scores=_scores_without_positions
)
_MSMSA = Traits(symmetries.of_windows, visibility.msmsa, pair_scores=lambda options: True)
_SENTENCE_OF_DISA = Traits(
    symmetries.of_direction, mirror=symmetries.directions_exchanged, shifts=_POOLED
)
_BIBLOSA = Traits(
    symmetries.of_direction,
    visibility.biblosa,
    symmetries.directions_exchanged,
    mirror_lengths=(12, 12),  # a multiple of every block length
    shifts=_shifts_of_blocks,
)
_GRU = Traits(always("mirror"), visibility.both_ways, symmetries.directions_exchanged)
# Windows of a maximum have no padding that even kernels could read more of on one side.
_KIM = Traits(always("mirror"), mirror=symmetries.taps_reversed, mirror_lengths=(7, 7))
_HIERARCHY = Traits(symmetries.of_kernels, visibility.hrchy_cnn, symmetries.taps_reversed)

TRAITS: Mapping[str, Traits] = {
    "none": Traits(always("permutation"), visibility.itself),
    "additive": _POOLING,
    "source2token": _POOLING,
    "multi_head": _MULTI_HEAD,
    "multi_head_released": _MULTI_HEAD,
    "multi_head_relu": _MULTI_HEAD,
    "mtsa": Traits(
        symmetries.of_masks,
        visibility.mtsa,
        symmetries.masks_turned,
        shifts=lambda options: {"s2_b": options["scale_s"] == "identity"},
        pair_scores=_identity_scores,
    ),
    "mtsa_released": Traits(
        symmetries.of_released_masks,
        visibility.mtsa_released,
        symmetries.heads_exchanged,
        shifts=_constant({"s2_b": True}),
        pair_scores=_released_scores,
    ),
    "mtsa_stack": Traits(
        always("mirror"),
        mirror=symmetries.heads_exchanged,
        shifts=_constant({r"l\d+_s2_b": True}),
    ),
    "mtsa_nmt": Traits(
        symmetries.of_both_directions,
        visibility.mtsa_nmt,
        symmetries.heads_exchanged,
        shifts=_nmt_shifts,
        pair_scores=_identity_scores,
    ),
    "disa": Traits(
        symmetries.of_direction,
        visibility.disa,
        symmetries.directions_exchanged,
        shifts=_constant({r"(fw_|bw_)?f_b": False}),  # tanh lets no constant pass
    ),
    "disan": _SENTENCE_OF_DISA,
    "resa": Traits(symmetries.of_direction, visibility.resa, symmetries.directions_exchanged),
    "resan": _SENTENCE_OF_DISA,
    "resan_no_fusion": Traits(always("permutation"), shifts=_POOLED),
    "biblosa": _BIBLOSA,
    "biblosa_released": _BIBLOSA,
    "bi_lstm": Traits(always("mirror"), visibility.both_ways, symmetries.reverse_exchanged),
    "bi_gru": _GRU,
    "bi_gru_released": _GRU,
    "multi_cnn": Traits(symmetries.of_kernels, visibility.multi_cnn, symmetries.taps_reversed),
    "kim_cnn": _KIM,
    "kim_cnn_released": _KIM,
    "hrchy_cnn": _HIERARCHY,
    "hrchy_cnn_released": _HIERARCHY,
    "msmsa": _MSMSA,
    "msmsa_layer": _MSMSA,
    "multi_scale_transformer": Traits(symmetries.of_cls),
    "transformer": Traits(symmetries.of_positions),
}
"""By the record's name."""
