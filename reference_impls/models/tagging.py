"""Tags of the tokens of a sentence, around any context fusion; a linear chain over the tags.

Word vectors beside a summary of the characters by convolution -> context fusion -> a linear layer
for each token, and on it, if asked for, a conditional random field: Ma and Hovy 2016, "End-to-end
Sequence Labeling via Bi-directional LSTM-CNNs-CRF", with another fusion in the place of the LSTM.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from reference_impls.models.encoders import Dense, Embedding, Encoder

CHARACTER_WIDTH = 30
"""Features of a character (Ma and Hovy, table 1)."""
WINDOW = 3
"""Characters under a filter (the same table)."""


class SpelledEmbedding(Embedding):
    """Word vectors, and behind them the largest values of filters over the word's characters.

    Parameters
    ----------
    table : Tensor, float, shape [V, D]
        Initial word vectors.
    characters : int
        Numbers of characters, that of padding (0) among them.
    filters : int
        F; of `WINDOW` characters each.
    dropout : float
        Of the characters' features (Ma and Hovy, section 2.1).
    """

    def __init__(self, table: Tensor, characters: int, filters: int, dropout: float) -> None:
        super().__init__(table)
        bound = math.sqrt(3 / CHARACTER_WIDTH)
        first = torch.empty(characters, CHARACTER_WIDTH).uniform_(-bound, bound)
        first[0] = 0
        self.characters = nn.Parameter(first)
        self.filters = nn.Conv1d(CHARACTER_WIDTH, filters, WINDOW, padding=WINDOW // 2)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor, spelling: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Word ids [B, N] and characters [B, N, C], 0 at padding -> [B, N, D + F], mask [B, N]."""
        assert spelling is not None
        words, mask = super().forward(ids)
        characters = nn.functional.embedding(spelling, self.characters, padding_idx=0)
        flat = self.dropout(characters).flatten(0, 1).mT  # [B * N, CHARACTER_WIDTH, C]
        found = self.filters(flat).unflatten(0, ids.shape)  # [B, N, F, C]
        real = (spelling != 0)[:, :, None]  # [B, N, 1, C]
        # How long the other words of a batch are must not matter.
        largest = found.masked_fill(~real, -math.inf).amax(-1)  # [B, N, F]
        largest = largest.masked_fill(~real.any(-1), 0)
        return torch.cat([words, largest], dim=-1), mask


class TokenEncoder(Encoder):
    """Tokens to tokens: dropout, context fusion, dropout.

    Parameters
    ----------
    fusion : Module
        ``x [B, N, D], mask [B, N]`` -> ``[B, N, width]``; or one that makes a sentence vector, of
        which the final ``states`` of the tokens are taken, without that of a [CLS] before them.
    dropout, entry
        As of `Encoder`.
    """

    def __init__(self, fusion: nn.Module, dropout: float, entry: nn.Module | None) -> None:
        super().__init__(fusion, None, dropout, entry)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, N, D] with mask [B, N] (true for real tokens) -> [B, N, width]."""
        tokens = getattr(self.fusion, "states", self.fusion)
        fused = tokens(self.entered(self.dropout(x)), mask)  # [B, N or 1 + N, width]
        return self.dropout(fused[:, -x.shape[1] :])


class Chain(nn.Module):
    """How well one tag follows another: a linear-chain conditional random field.

    Parameters
    ----------
    tags : int
        T.
    """

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.transitions = nn.Parameter(torch.zeros(tags, tags))  # from, to
        self.start, self.end = (nn.Parameter(torch.zeros(tags)) for _ in range(2))

    def forward(self, scores: Tensor, mask: Tensor) -> Tensor:
        """Scores [B, N, T], mask [B, N] with padding behind -> potentials [B, N, T, T].

        Entry [b, n, i, j] is what tag j of token n adds after tag i of the token before it: of the
        first token, whatever i, with the start; of the last real one with the end.
        """
        follow = scores[:, 1:, None] + self.transitions  # [B, N - 1, T, T]
        first = (scores[:, :1, None] + self.start).expand(-1, -1, len(self.start), -1)
        last = mask & ~nn.functional.pad(mask[:, 1:], (0, 1))  # [B, N]
        return torch.cat([first, follow], dim=1) + last[..., None, None] * self.end


def log_partition(potentials: Tensor, mask: Tensor) -> Tensor:
    """Logarithm of the sum over all tag sequences of exp(score), by the forward algorithm.

    Parameters
    ----------
    potentials : Tensor, shape [B, N, T, T]
        Of a `Chain`.
    mask : Tensor of bool, shape [B, N]
        The first token is real, padding is behind.

    Returns
    -------
    Tensor, shape [B]
    """
    sums = potentials[:, 0, 0]  # [B, T]
    for n in range(1, potentials.shape[1]):
        on = (sums[:, :, None] + potentials[:, n]).logsumexp(1)
        sums = torch.where(mask[:, n, None], on, sums)
    return sums.logsumexp(1)


def path_score(potentials: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
    """Score of one tag sequence of each sample, [B].

    Parameters
    ----------
    potentials, mask
        As of `log_partition`.
    tags : Tensor of int64, shape [B, N]
        From 0 on; anything in range at padding.
    """
    before = nn.functional.pad(tags[:, :-1], (1, 0))  # [B, N]
    places = before * potentials.shape[-1] + tags
    own = potentials.flatten(2).gather(2, places[..., None])[..., 0]  # [B, N]
    return own.masked_fill(~mask, 0).sum(1)


def viterbi(potentials: Tensor, mask: Tensor) -> Tensor:
    """The tag sequence of the highest score, [B, N], from 0 on; at padding the last one's tag.

    Parameters
    ----------
    potentials, mask
        As of `log_partition`.
    """
    best = potentials[:, 0, 0]  # [B, T]
    stay = torch.arange(best.shape[1], device=best.device).expand_as(best)
    came: list[Tensor] = []
    for n in range(1, potentials.shape[1]):
        on, before = (best[:, :, None] + potentials[:, n]).max(1)
        best = torch.where(mask[:, n, None], on, best)
        came.append(torch.where(mask[:, n, None], before, stay))
    path = [best.argmax(1, keepdim=True)]
    for before in reversed(came):
        path.append(before.gather(1, path[-1]))
    return torch.cat(path[::-1], dim=1)


class Tagger(nn.Module):
    """Tags of every token of a sentence.

    Parameters
    ----------
    embedding : Embedding
    encoder : TokenEncoder
        With `width` features out of every token.
    width, tags : int
    crf : bool
        Whether tags are chosen together, by a `Chain`.
    """

    def __init__(
        self, embedding: Embedding, encoder: TokenEncoder, *, width: int, tags: int, crf: bool
    ) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.scores = Dense(width, tags)
        self.chain = Chain(tags) if crf else None

    def forward(self, ids: Tensor, spelling: Tensor | None = None) -> Tensor:
        """Word ids [B, N] and characters [B, N, C] -> scores [B, N, T], or potentials of a chain.

        The latter are [B, N, T, T]: see `Chain`.
        """
        x, mask = self.embedding(ids, spelling)
        scores = self.scores(self.encoder(x, mask))  # [B, N, T]
        return scores if self.chain is None else self.chain(scores, mask)
