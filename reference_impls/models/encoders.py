"""Sentence, pair and sequence models around any context-fusion mechanism.

All of them are embedding -> context fusion -> source2token -> head (MTSA, section 4; the released
programs' heads). The fusion module is given: whatever maps ``x [B, N, D], mask [B, N]`` to tokens
``[B, N, D_out]``, or to a sentence ``[B, D_out]`` (then nothing is pooled).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from reference_impls.checks import activation_by_name, glorot, one_of, zero_bias


class Dense(nn.Module):
    """A Glorot-initialised layer x w + b, as all dense layers of the released models.

    Parameters
    ----------
    d_in, d_out : int
    bias : bool
        Whether there is a b, zero at first.
    """

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True) -> None:
        super().__init__()
        self.w = glorot(d_in, d_out)
        self.b = zero_bias(d_out) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """[..., d_in] -> [..., d_out]."""
        return x @ self.w if self.b is None else x @ self.w + self.b


class Encoder(nn.Module):
    """Tokens to one vector: dropout, context fusion, pooling, dropout.

    Parameters
    ----------
    fusion : Module
        ``x [B, N, D], mask [B, N]`` -> ``[B, N, width]``, or ``[B, width]`` without a pooling.
    pooling : Module or None
        ``x [B, N, width], mask [B, N]`` -> ``[B, width]``.
    dropout : float
        Share of the token features, and of the sentence features, set to zero in training.
    entry : Module, optional
        Of every token by itself, before the fusion: brings its features to another number.
    """

    def __init__(
        self,
        fusion: nn.Module,
        pooling: nn.Module | None,
        dropout: float,
        entry: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.fusion, self.pooling, self.entry = fusion, pooling, entry
        self.dropout = nn.Dropout(dropout)

    def entered(self, x: Tensor) -> Tensor:
        """What the fusion is given, without dropout: [B, N, D] -> [B, N, D']."""
        return x if self.entry is None else self.entry(x)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[B, N, D] with mask [B, N] (true for real tokens) -> [B, width]."""
        fused = self.fusion(self.entered(self.dropout(x)), mask)  # [B, N, width] or [B, width]
        sentence = fused if self.pooling is None else self.pooling(fused, mask)
        return self.dropout(sentence)


class Embedding(nn.Module):
    """Word vectors, fine-tuned in training; row 0 is padding and stays zero.

    Parameters
    ----------
    table : Tensor, float, shape [V, D]
        Initial vectors.
    """

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.words = nn.Embedding.from_pretrained(table, freeze=False, padding_idx=0)

    def forward(self, ids: Tensor, spelling: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Word ids [B, N], 0 at padding -> tokens [B, N, D] and mask [B, N].

        ``spelling`` is what words are made of, where that is known: nothing that is read here.
        """
        return self.words(ids), ids != 0


class SentenceClassifier(nn.Module):
    """One sentence to classes: relu layer, then logits without a bias (released).

    Parameters
    ----------
    embedding : Embedding
    encoder : Encoder
        With `width` features out.
    width, hidden, classes : int
    dropout : float
        Of the hidden layer.
    """

    def __init__(
        self,
        embedding: Embedding,
        encoder: Encoder,
        *,
        width: int,
        hidden: int,
        classes: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.hidden = Dense(width, hidden)
        self.logits = Dense(hidden, classes, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """Word ids [B, N], 0 at padding -> logits [B, classes]."""
        sentence = self.encoder(*self.embedding(ids))  # [B, width]
        return self.logits(self.dropout(torch.relu(self.hidden(sentence))))


class PairRelatedness(nn.Module):
    """Two sentences to a distribution over degrees of relatedness, 1 to `degrees`.

    Features [a * b; |a - b|], relu layer, logits of the degrees (Tai et al. 2015, section 4.2; the
    ReSAN program's head). The prediction is the expected degree.

    Parameters
    ----------
    embedding : Embedding
    encoder : Encoder
        Encodes both sentences, with `width` features out.
    width, hidden, degrees : int
    dropout : float
        Of the hidden layer.
    """

    def __init__(
        self,
        embedding: Embedding,
        encoder: Encoder,
        *,
        width: int,
        hidden: int,
        degrees: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.hidden = Dense(2 * width, hidden)
        self.logits = Dense(hidden, degrees)
        self.dropout = nn.Dropout(dropout)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """Word ids [B, N] twice, 0 at padding -> logits of the degrees [B, degrees]."""
        a, b = self.encoder(*self.embedding(first)), self.encoder(*self.embedding(second))
        features = torch.cat([a * b, (a - b).abs()], dim=-1)  # [B, 2 * width]
        return self.logits(self.dropout(torch.relu(self.hidden(features))))


class Highway(nn.Module):
    """g * f(h map) + (1 - g) * h with g = sigmoid(h gate), f the activation, both with biases."""

    def __init__(self, width: int, activation: str) -> None:
        super().__init__()
        self.map, self.gate = Dense(width, width), Dense(width, width)
        self.activation = activation_by_name(activation)

    def forward(self, h: Tensor) -> Tensor:
        """[..., width] -> [..., width]."""
        gate = torch.sigmoid(self.gate(h))
        return gate * self.activation(self.map(h)) + (1 - gate) * h


PAIR_FEATURES: Mapping[str, Callable[[Tensor, Tensor], tuple[Tensor, ...]]] = {
    "[p;h;p-h;p*h]": lambda p, h: (p, h, p - h, p * h),
    "[p;h;|p-h|;p-h]": lambda p, h: (p, h, (p - h).abs(), p - h),
}
"""Of premise p and hypothesis h: MTSA section 4.1 and its program; Multi-Scale Transformer."""


class PairClassifier(nn.Module):
    """Two sentences, premise and hypothesis, to classes: dense layer, highway layer, logits.

    Parameters
    ----------
    embedding : Embedding
    encoder : Encoder
        Encodes both sentences, with `width` features out.
    width, hidden, classes : int
    dropout : float
        Of the inputs of highway layer and logits.
    features : str
        A key of `PAIR_FEATURES`.
    activation : {"relu", "elu", "selu"}
        Of the dense and the highway layer (elu in the released program).
    highway : bool
        Whether there is one; Table 1 of MTSA counts weights with it for some models only.
    """

    def __init__(
        self,
        embedding: Embedding,
        encoder: Encoder,
        *,
        width: int,
        hidden: int,
        classes: int,
        dropout: float,
        features: str = "[p;h;p-h;p*h]",
        activation: str = "elu",
        highway: bool = True,
    ) -> None:
        super().__init__()
        self.embedding, self.encoder = embedding, encoder
        self.features = PAIR_FEATURES[one_of("features", features, PAIR_FEATURES)]
        self.activation = activation_by_name(activation)
        self.hidden = Dense(4 * width, hidden)
        self.highway = Highway(hidden, activation) if highway else None
        self.logits = Dense(hidden, classes)
        self.dropout = nn.Dropout(dropout)

    def forward(self, premise: Tensor, hypothesis: Tensor) -> Tensor:
        """Word ids [B, N] twice, 0 at padding, lengths may differ -> logits [B, classes]."""
        p, h = self.encoder(*self.embedding(premise)), self.encoder(*self.embedding(hypothesis))
        hidden = self.activation(self.hidden(torch.cat(self.features(p, h), dim=-1)))
        if self.highway is not None:
            hidden = self.highway(self.dropout(hidden))
        return self.logits(self.dropout(hidden))


def expected_degree(logits: Tensor) -> Tensor:
    """Mean of the degrees 1 ... G under softmax(logits): [B, G] -> [B]."""
    degrees = torch.arange(1, logits.shape[-1] + 1, dtype=logits.dtype, device=logits.device)
    return logits.softmax(-1) @ degrees


def degree_distribution(degree: Tensor, degrees: int) -> Tensor:
    """The distribution on the two neighbouring degrees whose mean is given (Tai et al., eq. 15).

    Parameters
    ----------
    degree : Tensor, shape [B], between 1 and `degrees`
    degrees : int
        G.

    Returns
    -------
    Tensor, shape [B, G]
    """
    grid = torch.arange(1, degrees + 1, dtype=degree.dtype, device=degree.device)
    return (1 - (degree[:, None] - grid).abs()).clamp(min=0)


class SequenceRegressor(nn.Module):
    """A sequence of vectors to one vector, for synthetic tasks: relu layer, linear output.

    Parameters
    ----------
    encoder : Encoder
        With `width` features out.
    width, hidden, outputs : int
    dropout : float
        Of the hidden layer.
    """

    def __init__(
        self, encoder: Encoder, *, width: int, hidden: int, outputs: int, dropout: float
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.hidden = Dense(width, hidden)
        self.output = Dense(hidden, outputs)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """[B, N, D], every position a real one -> [B, outputs]."""
        mask = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device)
        sentence = self.encoder(x, mask)  # [B, width]
        return self.output(self.dropout(torch.relu(self.hidden(sentence))))
