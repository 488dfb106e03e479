"""The Transformer for translation, around any self-attention of its encoder.

It is the model that MTSA's authors changed: ``transformer_base`` of tensor2tensor 1.9. There a norm
stands before every block and behind the last one ("n" and "da"; Vaswani et al. 2017 print it behind
each sum), attention has no biases, one table embeds both languages and gives the logits, sinusoids
are added once, below the first layer, and decoding begins with a vector of zeros. Decoder and cross
attention are scaled dot-product attention whatever the encoder has (MTSA, section 4.4).

Left out: dropout on attention weights and behind the relu, which not every mechanism has.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import layer_norm, linear, scaled_dot_product_attention

from reference_impls.checks import glorot, width_per_part, zero_bias
from reference_impls.models.encoders import Dense
from reference_impls.models.tokens import PADDING
from reference_impls.multi_head.modules import Positions

EPSILON = 1e-6
"""Of the norms (tensor2tensor)."""

KeysValues = tuple[Tensor, Tensor]
"""[B, H, N, d_h] each."""


class Norm(nn.Module):
    """Layer norm with scale and offset."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_scale, self.ln_offset = nn.Parameter(torch.ones(width)), zero_bias(width)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return layer_norm(x, self.ln_scale.shape, self.ln_scale, self.ln_offset, EPSILON)


class FeedForward(nn.Module):
    """relu(x w1 + b1) w2 + b2, token by token (Vaswani et al., eq. 2)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.wide, self.narrow = Dense(width, hidden), Dense(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        """[..., D] -> [..., D]."""
        return self.narrow(torch.relu(self.wide(x)))


class DotProductAttention(nn.Module):
    """Scaled dot-product attention of given queries, keys and values; no biases.

    Parameters
    ----------
    width, heads : int
        D and H; d_h = D / H.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.head_dim = heads, width_per_part(width, heads, "heads")
        self.q_w, self.k_w, self.v_w, self.o_w = (glorot(width, width) for _ in range(4))

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head_dim)).transpose(1, 2)

    def keys_values(self, x: Tensor) -> KeysValues:
        """Of tokens [B, N, D]."""
        return self._heads(x @ self.k_w), self._heads(x @ self.v_w)

    def forward(
        self, x: Tensor, others: KeysValues, real: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        """Queries from x [B, M, D] to keys and values -> [B, M, D].

        Parameters
        ----------
        real : Tensor of bool, shape [B, N], optional
            Which keys count.
        causal : bool
            Query i attends to keys j <= i only.
        """
        allowed = None if real is None else real[:, None, None, :]  # [B, 1, 1, N]
        q = self._heads(x @ self.q_w)  # [B, H, M, d_h]
        out = scaled_dot_product_attention(q, *others, attn_mask=allowed, is_causal=causal)
        return out.transpose(1, 2).flatten(2) @ self.o_w


class EncoderLayer(nn.Module):
    """h + fusion(norm(h)), then h + feed-forward(norm(h)).

    Parameters
    ----------
    fusion : Module
        ``x [B, N, D], mask [B, N]`` -> ``[B, N, D]``.
    width, hidden : int
    dropout : float
        Of what is added to h.
    """

    def __init__(self, fusion: nn.Module, width: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.fusion, self.feed_forward = fusion, FeedForward(width, hidden)
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor, real: Tensor) -> Tensor:
        """[B, N, D] with real [B, N] -> [B, N, D]."""
        h = h + self.dropout(self.fusion(self.norm1(h), real))
        return h + self.dropout(self.feed_forward(self.norm2(h)))


class DecoderLayer(nn.Module):
    """Causal self-attention, attention to the source, feed-forward: each as h + block(norm(h))."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float) -> None:
        super().__init__()
        self.own = DotProductAttention(width, heads)
        self.cross = DotProductAttention(width, heads)
        self.feed_forward = FeedForward(width, hidden)
        self.norm1, self.norm2, self.norm3 = (Norm(width) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, h: Tensor, source: KeysValues, real: Tensor) -> Tensor:
        """All tokens at once: h [B, M, D] -> [B, M, D]."""
        x = self.norm1(h)
        return self._rest(h, self.own(x, self.own.keys_values(x), causal=True), source, real)

    def step(
        self, h: Tensor, past: KeysValues | None, source: KeysValues, real: Tensor
    ) -> tuple[Tensor, KeysValues]:
        """The newest token of each of K prefixes of a sentence: h [B, K, D] -> [B, K, D].

        Parameters
        ----------
        past : pair of Tensor, shape [B*K, H, t, d_h], or None
            Keys and values of the tokens before it; what comes back has one more.
        """
        x = self.norm1(h).flatten(0, 1)[:, None]  # [B*K, 1, D]
        known = self.own.keys_values(x)
        if past is not None:
            known = (torch.cat([past[0], known[0]], 2), torch.cat([past[1], known[1]], 2))
        attended = self.own(x, known).view_as(h)
        # To the source the prefixes of a sentence are so many queries: its keys stand there once.
        return self._rest(h, attended, source, real), known

    def _rest(self, h: Tensor, attended: Tensor, source: KeysValues, real: Tensor) -> Tensor:
        h = h + self.dropout(attended)
        h = h + self.dropout(self.cross(self.norm2(h), source, real))
        return h + self.dropout(self.feed_forward(self.norm3(h)))


@dataclass
class Decoding:
    """What is kept from token to token: keys and values, of the source and of the prefixes.

    Attributes
    ----------
    real : Tensor of bool, shape [B, N]
    source : list of pair
        Of each layer, [B, H, N, d_h].
    past : list of pair, or of None before the first token
        Of each layer, [B*K, H, t, d_h].
    places : Tensor, shape [most, D]
        Sinusoids of the places that tokens may have.
    length : int
        t.
    """

    real: Tensor
    source: list[KeysValues]
    past: list[KeysValues | None]
    places: Tensor
    length: int = 0

    def choose(self, sentences: Tensor, prefixes: Tensor) -> None:
        """Go on with these sentences [b] and these of all prefixes [b*K], in this order."""
        if len(sentences) < len(self.real):
            self.real = self.real[sentences]
            self.source = [(k[sentences], v[sentences]) for k, v in self.source]
        self.past = [
            None if one is None else (one[0][prefixes], one[1][prefixes]) for one in self.past
        ]


class Translator(nn.Module):
    """A Transformer whose encoder has the self-attention that it is given, a module a layer.

    Parameters
    ----------
    fusions : sequence of Module
        ``x [B, N, D], mask [B, N]`` -> ``[B, N, D]``, one for each encoder layer; the decoder has
        as many layers.
    width, heads, hidden : int
        D, H of the decoder, and the features inside feed-forward blocks.
    vocabulary : int
        Tokens of both languages together, those of `reference_impls.models.tokens` among them.
    dropout : float
        Of embedded tokens and of what each block adds.
    spaces : int
        Rows of a table of output languages, the first of which is added to every source token
        (tensor2tensor has 32, also for a single pair of languages); 0 for none.
    """

    def __init__(
        self,
        fusions: Sequence[nn.Module],
        *,
        width: int,
        heads: int,
        hidden: int,
        vocabulary: int,
        dropout: float,
        spaces: int = 0,
    ) -> None:
        super().__init__()
        self.width = width
        self.words = nn.Embedding(vocabulary, width, padding_idx=PADDING)
        nn.init.normal_(self.words.weight, std=width**-0.5)
        self.space = nn.Parameter(torch.randn(spaces, width) * width**-0.5) if spaces else None
        self.encoder = nn.ModuleList(EncoderLayer(f, width, hidden, dropout) for f in fusions)
        self.decoder = nn.ModuleList(DecoderLayer(width, heads, hidden, dropout) for _ in fusions)
        self.encoder_norm, self.decoder_norm = Norm(width), Norm(width)
        self.dropout = nn.Dropout(dropout)
        self.positions = Positions(width, "paper")

    def embedded(self, ids: Tensor) -> Tensor:
        """Tokens [..., M] -> [..., M, D], without positions; zero where there is none."""
        # The row of padding is trained as one of the logits', so it does not stay zero.
        return (self.words(ids) * math.sqrt(self.width)).masked_fill((ids == PADDING)[..., None], 0)

    def entered(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [B, N] -> what the first layer reads [B, N, D], and which are real [B, N]."""
        h = self.embedded(source)
        if self.space is not None:
            h = h + self.space[0]
        return self.dropout(self.positions.added_to(h)), source != PADDING

    def encode(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Tokens [B, N] -> states [B, N, D], and which of them are real [B, N]."""
        h, real = self.entered(source)
        for layer in self.encoder:
            h = layer(h, real)
        return self.encoder_norm(h), real

    def forward(self, source: Tensor, previous: Tensor) -> Tensor:
        """Logits of every next token.

        Parameters
        ----------
        source : Tensor of int, shape [B, N]
            `PADDING` behind the shorter ones.
        previous : Tensor of int, shape [B, M]
            The target one place to the right: `PADDING` first.

        Returns
        -------
        Tensor, shape [B, M, vocabulary]
        """
        states, real = self.encode(source)
        h = self.dropout(self.positions.added_to(self.embedded(previous)))
        for layer in self._layers():
            h = layer(h, layer.cross.keys_values(states), real)
        return self._logits(h)

    def start(self, source: Tensor, most: int) -> Decoding:
        """Read the source [B, N], before the first of at most so many tokens."""
        states, real = self.encode(source)
        places = self.positions.added_to(states.new_zeros(1, most, self.width))[0]
        known = [layer.cross.keys_values(states) for layer in self._layers()]
        return Decoding(real, known, [None] * len(self.decoder), places)

    def step(self, tokens: Tensor, kept: Decoding) -> Tensor:
        """Logits of what follows the newest tokens [B, K] of K prefixes: [B, K, vocabulary]."""
        h = self.dropout(self.embedded(tokens) + kept.places[kept.length])
        for i, layer in enumerate(self._layers()):
            h, kept.past[i] = layer.step(h, kept.past[i], kept.source[i], kept.real)
        kept.length += 1
        return self._logits(h)

    def _layers(self) -> list[DecoderLayer]:
        return [layer for layer in self.decoder if isinstance(layer, DecoderLayer)]

    def _logits(self, h: Tensor) -> Tensor:
        return linear(self.decoder_norm(h), self.words.weight)
