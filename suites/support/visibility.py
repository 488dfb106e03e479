"""Which tokens a row of each mechanism may depend on, by its options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import torch
from torch import Tensor

from suites.support.batches import Options

Part: TypeAlias = tuple[slice, Tensor]
"""Features of the output, and [n, n] bool: whether row i of these may depend on token j.

A function here takes the options, the number n of real tokens, that of padded positions, and the
width of the output.
"""


def offsets(n: int) -> Tensor:
    """Differences i - j of all pairs, [n, n]."""
    return torch.arange(n)[:, None] - torch.arange(n)


def keys_of(mask: str, n: int) -> Tensor:
    """Pairs that a positional mask allows, [n, n] bool."""
    apart = offsets(n)
    name, _, value = mask.partition(":")
    if name == "window":
        return apart.abs() <= int(value)
    return {
        "none": torch.ones_like(apart, dtype=torch.bool),
        "distance": torch.ones_like(apart, dtype=torch.bool),
        "diagonal": apart != 0,
        "forward": apart > 0,
        "backward": apart < 0,
        "forward_inclusive": apart >= 0,
        "backward_inclusive": apart <= 0,
    }[name]


def seen_by(keys: Tensor, queries: bool = True) -> Tensor:
    """The keys that a row attends to, and its own token, which weighs them if they are several.

    Without ``queries`` it does not weigh them: there is no score of query and key.
    """
    several = keys.sum(-1, keepdim=True) > 1
    return keys | (torch.eye(len(keys), dtype=torch.bool) & several & queries)


def masks_of(options: Options) -> list[str]:
    """The positional mask of each head of mtsa, as text."""
    half = options["heads"] // 2
    return list(options["masks"] or ["forward"] * half + ["backward"] * half)


def released_masks_of(options: Options) -> list[str]:
    """The positional mask of each head of mtsa_released, as text."""
    if not options["directional"]:
        return ["diagonal"] * options["heads"]
    suffix = "_inclusive" if options["include_self"] else ""
    half = options["heads"] // 2
    return [f"forward{suffix}"] * half + [f"backward{suffix}"] * half


def reaches(options: Options, n: int) -> list[int]:
    """How far each head of msmsa sees to either side."""
    scales = options["scales"] or ([1, 3, "n/16", "n/8", "n/4"] * options["heads"])
    found = []
    for scale in scales[: options["heads"]]:
        v = n / int(scale.removeprefix("n/")) if isinstance(scale, str) else scale
        w = max(1, 2 * int(v // 2) + 1)
        found.append(w if options["width_reading"] == "radius" else w // 2)
    return found


def _any_of(seen: Sequence[Tensor]) -> list[Part]:
    return [(slice(None), torch.stack(list(seen)).any(0))]


def _halves(first: Tensor, second: Tensor, d_out: int) -> list[Part]:
    return [(slice(0, d_out // 2), first), (slice(d_out // 2, d_out), second)]


def everything(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """All real tokens."""
    return [(slice(None), torch.ones(n, n, dtype=torch.bool))]


def causal_or_everything(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """Of multi-head attention: all real tokens, or those up to the row's own."""
    mask = "forward_inclusive" if options.get("causal") else "none"
    return [(slice(None), keys_of(mask, n))]


def itself(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """A token's own."""
    return [(slice(None), offsets(n) == 0)]


def both_ways(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """The first half of the features what stands before, the second what stands behind."""
    return _halves(offsets(n) >= 0, offsets(n) <= 0, d_out)


def mtsa(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """What any head sees, mixed by the output layer."""
    queries = options.get("token2token", True)
    return _any_of([seen_by(keys_of(mask, n), queries) for mask in masks_of(options)])


def mtsa_released(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """What each head sees; the gate lets a token see itself."""
    own = torch.eye(n, dtype=torch.bool) & bool(options["fusion_gate"])
    queries = options.get("token2token", True)
    seen = [seen_by(keys_of(mask, n), queries) | own for mask in released_masks_of(options)]
    if options["output_hidden"]:
        return _any_of(seen)
    d_h = d_out // len(seen)
    return [(slice(h * d_h, (h + 1) * d_h), one) for h, one in enumerate(seen)]


def mtsa_nmt(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """Both directions, mixed if there is an output layer."""
    apart = options["bi_direction"] and not options["output_layer"]
    return (both_ways if apart else everything)(options, n, padded, d_out)


def disa(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """Its direction; the gate lets a token see itself."""
    direction = options["direction"]
    if direction == "both":
        return both_ways(options, n, padded, d_out)
    return [(slice(None), keys_of(direction, n) | torch.eye(n, dtype=torch.bool))]


def resa(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """What is not selected sees a mean of all, and another token may be selected instead."""
    see = disa if options["selection"] == "all" else everything
    return see(options, n, padded, d_out)


def _blocks(n: int, r: int, direction: str) -> Tensor:
    """What stands before (behind) in the own block, and the summaries of all blocks so far.

    A summary reads tokens as keys, and as queries of at least two keys: of a block of one or two it
    does not see the token that is nobody's key.
    """
    i, j = torch.arange(n)[:, None], torch.arange(n)
    first = j // r * r
    length = (n - first).clamp(max=r)
    if direction == "forward":
        before, so_far, nobodys = j < i, j // r <= i // r, j == first + length - 1
    else:
        before, so_far, nobodys = j > i, j // r >= i // r, j == first
    return (i == j) | (before & (j // r == i // r)) | (so_far & (~nobodys | (length >= 3)))


def biblosa(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """Blocks as long as the rule says for the real or the padded length."""
    r = options["block_len"]
    if r is None:
        counted = padded if options["form"] == "released" else n
        r = next(k for k in range(1, counted + 2) if k**3 >= 2 * counted) + options["extra"]
    if options["direction"] == "both":
        return _halves(_blocks(n, r, "forward"), _blocks(n, r, "backward"), d_out)
    return [(slice(None), _blocks(n, r, options["direction"]))]


def _within(n: int, front: int, behind: int) -> Tensor:
    apart = offsets(n)
    return (apart <= front) & (-apart <= behind)


def multi_cnn(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """The taps of each kernel, (k-1)//2 of them in front."""
    sizes = options["kernel_sizes"]
    filters = d_out // len(sizes)
    return [
        (slice(p * filters, (p + 1) * filters), _within(n, (k - 1) // 2, k // 2))
        for p, k in enumerate(sizes)
    ]


def hrchy_cnn(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """The taps of as many kernels as there are layers."""
    layers, k = options["layers"], options["kernel_size"]
    return [(slice(None), _within(n, layers * ((k - 1) // 2), layers * (k // 2)))]


def msmsa(options: Options, n: int, padded: int, d_out: int) -> list[Part]:
    """The widest window, mixed by the output layer."""
    return _any_of([offsets(n).abs() <= reach for reach in reaches(options, n)])


SEES: Mapping[str, Callable[[Options, int, int, int], list[Part]]] = {
    "none": itself,
    "multi_head": causal_or_everything,
    "multi_head_released": causal_or_everything,
    "multi_head_relu": causal_or_everything,
    "mtsa": mtsa,
    "mtsa_released": mtsa_released,
    "mtsa_stack": everything,
    "mtsa_nmt": mtsa_nmt,
    "disa": disa,
    "resa": resa,
    "biblosa": biblosa,
    "biblosa_released": biblosa,
    "bi_lstm": both_ways,
    "bi_gru": both_ways,
    "bi_gru_released": both_ways,
    "multi_cnn": multi_cnn,
    "hrchy_cnn": hrchy_cnn,
    "hrchy_cnn_released": hrchy_cnn,
    "msmsa": msmsa,
    "msmsa_layer": msmsa,
}
"""By the record's name; the one row of a sentence depends on all tokens. Everything follows from
options, so that variants added later are covered; a mechanism added later needs no entry."""
