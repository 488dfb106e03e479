"""How each mechanism behaves when its tokens are put in another order, by its options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from torch import Tensor

from suites.support.configurations import Options
from suites.support.visibility import masks_of, reaches, released_masks_of

State: TypeAlias = dict[str, Tensor]

Symmetry = Literal["permutation", "reversal", "mirror", "none"]
"""The strongest that holds.

permutation: tokens in another order give the same rows in that order (or the same sentence);
reversal: so do reversed tokens, other orders don't; mirror: only if the module's directions are
exchanged too; none: the order is known otherwise (positions, [CLS] in front, an even kernel).
"""


@dataclass(frozen=True)
class Mirror:
    """The module that does to reversed tokens what another does to tokens.

    Attributes
    ----------
    options : mapping
    state : dict
    halves_swapped : bool
        Its output features are those of the other with the halves exchanged.
    """

    options: Options
    state: State
    halves_swapped: bool = False


def same(options: Options, state: State) -> Mirror:
    """The module is its own mirror."""
    return Mirror(options, state)


def always(symmetry: Symmetry) -> Callable[[Options, int], Symmetry]:
    """A symmetry that no option changes."""
    return lambda options, n: symmetry


def other_way(text: str) -> str:
    """The text with forward and backward exchanged."""
    exchanged = {"forward": "backward", "backward": "forward"}
    return re.sub("forward|backward", lambda found: exchanged[found[0]], text)


def _of_masks(masks: Sequence[str], n: int) -> Symmetry:
    if any(mask != other_way(mask) for mask in masks):
        return "mirror"
    for mask in masks:
        name, _, value = mask.partition(":")
        if (name == "window" and 0 < int(value) < n - 1) or (name == "distance" and float(value)):
            return "reversal"
    return "permutation"


def of_masks(options: Options, n: int) -> Symmetry:
    """Of mtsa."""
    return _of_masks(masks_of(options), n)


def of_released_masks(options: Options, n: int) -> Symmetry:
    """Of mtsa_released."""
    return _of_masks(released_masks_of(options), n)


def of_both_directions(options: Options, n: int) -> Symmetry:
    """Of mtsa_nmt."""
    return "mirror" if options["bi_direction"] else "permutation"


def of_direction(options: Options, n: int) -> Symmetry:
    """Of disa and what is built of it: pairs without the diagonal have no direction."""
    if options.get("policy") == "iterative":
        return "none"  # a token's selection depends on those before it, never on those after
    return "permutation" if options.get("direction") == "diagonal" else "mirror"


def of_kernels(options: Options, n: int) -> Symmetry:
    """Of convolutions that keep the length: an even kernel reads more behind than in front."""
    sizes = options.get("kernel_sizes") or (options["kernel_size"],)
    if set(sizes) == {1}:
        return "permutation"
    return "mirror" if all(k % 2 for k in sizes) else "none"


def of_positions(options: Options, n: int) -> Symmetry:
    """Of attention that knows the order by positions or not at all."""
    return "none" if options["positions"] or options.get("causal") else "permutation"


def of_windows(options: Options, n: int) -> Symmetry:
    """Of msmsa: windows of one token or of all have no order."""
    partial = any(0 < reach < n - 1 for reach in reaches(options, n))
    return "reversal" if partial else "permutation"


def of_cls(options: Options, n: int) -> Symmetry:
    """Of multi_scale_transformer: [CLS] sees the tokens at the front."""
    return "none" if options["cls"] else "reversal"


def masks_turned(options: Options, state: State) -> Mirror:
    """Forward masks for backward ones."""
    return Mirror({**options, "masks": [other_way(mask) for mask in masks_of(options)]}, state)


PER_HEAD = {"q_w", "k_w", "v_w", "v_b", "s1_w", "s1_b", "s2_w", "s2_b", "g_w", "g_b"}


def heads_exchanged(options: Options, state: State) -> Mirror:
    """The second half of the heads first, and the output layer's rows alike."""
    found, mixed = {}, False
    for name, weight in state.items():
        own = re.sub(r"^(.*\.)?(l\d+_)?", "", name)
        rolled = own in PER_HEAD or own == "o_w"
        mixed = mixed or own == "o_w"
        found[name] = weight.roll(len(weight) // 2, 0) if rolled else weight
    return Mirror(options, found, halves_swapped=not mixed)


def directions_exchanged(options: Options, state: State) -> Mirror:
    """Weights fw_* and bw_* exchanged, or the one direction turned; a pooling behind follows."""
    direction = options.get("direction", "both")
    if direction != "both":
        return Mirror({**options, "direction": other_way(direction)}, state)
    found = {}
    for name, weight in state.items():
        own = name.rpartition(".")[2]
        if own.startswith(("fw_", "bw_")):
            prefix = name.removesuffix(own)
            found[prefix + {"f": "bw_", "b": "fw_"}[own[0]] + own[3:]] = weight
        elif re.fullmatch("(s2t_)?s1_w", own):
            found[name] = weight.roll(len(weight) // 2, 0)
        elif re.fullmatch("(s2t_)?s2_[wb]", own):
            found[name] = weight.roll(weight.shape[-1] // 2, -1)
        else:
            found[name] = weight
    return Mirror(options, found, halves_swapped=True)


def reverse_exchanged(options: Options, state: State) -> Mirror:
    """Names of recurrent weights in torch, with and without ``_reverse``, exchanged."""
    found = {}
    for name, weight in state.items():
        other = name.removesuffix("_reverse") if name.endswith("_reverse") else name + "_reverse"
        found[other] = weight
    return Mirror(options, found, halves_swapped=True)


def taps_reversed(options: Options, state: State) -> Mirror:
    """The taps of every kernel [k, D, F] from behind."""
    return Mirror(options, {n: w.flip(0) if w.ndim == 3 else w for n, w in state.items()})
