"""What a translator says of a source: greedily, or the best that a beam search finds."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.models.tokens import END, PADDING
from reference_impls.models.translation import Translator


@torch.inference_mode()
def greedy(model: Translator, source: Tensor, limits: Tensor) -> list[list[int]]:
    """The likeliest next token, again and again, until `END`.

    Parameters
    ----------
    source : Tensor of int, shape [B, N]
    limits : Tensor of int, shape [B]
        Most tokens of each sentence, at least 1; `END` does not count.

    Returns
    -------
    list of list of int
        Tokens of each sentence, without `END`.
    """
    most = int(limits.max())
    kept = model.start(source, most)
    said: list[list[int]] = [[] for _ in source]
    rows = torch.arange(len(source), device=source.device)
    tokens = torch.full_like(rows, PADDING)
    for length in range(1, most + 1):
        logits = model.step(tokens[:, None], kept)[:, 0]  # [b, V]
        logits[:, PADDING] = -torch.inf
        tokens = logits.argmax(-1)
        for row, token in zip(rows.tolist(), tokens.tolist(), strict=True):
            if token != END:
                said[row].append(token)
        going = ((tokens != END) & (length < limits[rows])).nonzero()[:, 0]
        if not len(going):
            break
        if len(going) < len(rows):
            rows, tokens = rows[going], tokens[going]
            kept.choose(going, going)
    return said


def length_penalty(length: Tensor | int, alpha: float) -> Tensor | float:
    """((5 + length) / 6) ** alpha (Wu et al. 2016, eq. 14, without coverage)."""
    return ((5 + length) / 6) ** alpha


@torch.inference_mode()
def beam_search(
    model: Translator, source: Tensor, limits: Tensor, beams: int, alpha: float
) -> list[list[int]]:
    """The ended sentence with the highest log-probability / `length_penalty` that is found.

    Of every sentence the `beams` likeliest prefixes of each length are kept. Of the twice as many
    likeliest ways in which they go on, those that end are tried (tensor2tensor's; were every end
    tried, short sentences would win), and at the limit all end. It stops when no prefix can become
    better than what has ended.

    Parameters
    ----------
    source, limits
        As of `greedy`.
    beams : int
        K.
    alpha : float
        At least 0. The length that it weighs counts `END`.

    Returns
    -------
    list of list of int
    """
    most, device = int(limits.max()), source.device
    kept = model.start(source, most + 1)
    rows = torch.arange(len(source), device=device)  # sentences under way, b of them
    scores = torch.full((len(source), beams), -torch.inf, device=device)
    scores[:, 0] = 0
    prefixes = torch.zeros(len(source), beams, 1, dtype=torch.long, device=device)
    best = torch.full((len(source),), -torch.inf, device=device)
    said: list[list[int]] = [[] for _ in source]
    for length in range(most + 1):
        logits = model.step(prefixes[:, :, -1], kept)  # [b, K, V]
        logits[..., PADDING] = -torch.inf
        total = scores[..., None].to(logits.dtype) + logits.log_softmax(-1)
        last = limits[rows].eq(length).nonzero()[:, 0]
        ends = total[last, :, END]
        total[last] = -torch.inf
        total[last, :, END] = ends
        scores, place = total.flatten(1).topk(2 * beams)  # [b, 2 K]
        parent, token = place // total.shape[-1], place % total.shape[-1]
        ended = scores.masked_fill(token != END, -torch.inf)
        ended, which = (ended / length_penalty(length + 1, alpha)).max(1)  # [b]
        better = ended > best
        best = torch.where(better, ended, best)
        for i in better.nonzero()[:, 0].tolist():
            said[int(rows[i])] = prefixes[i, parent[i, which[i]], 1:].tolist()
        # No prefix ends twice, so K of these go on.
        scores, chosen = scores.masked_fill(token == END, -torch.inf).topk(beams)  # [b, K]
        parent, token = parent.gather(1, chosen), token.gather(1, chosen)
        # A prefix only loses, and the longest sentence is divided by most.
        possible = scores[:, 0] / length_penalty(limits[rows] + 1, alpha)
        going = ((possible > best) & (length < limits[rows])).nonzero()[:, 0]
        if not len(going):
            break
        parent = parent[going]
        prefixes = torch.cat(
            [prefixes[going[:, None], parent], token[going][..., None]], dim=-1
        )  # [b, K, length + 2]
        kept.choose(going, (going[:, None] * beams + parent).flatten())
        rows, scores, best = rows[going], scores[going], best[going]
    return said
