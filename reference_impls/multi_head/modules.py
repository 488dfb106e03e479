"""Multi-head attention: positions, projections, output layer, and the attentions that are products.

The yardstick is eq. 4 with the N x N scores of every head and their softmax; beside it stands one
by batched products. Fused kernels are in `fused` and `flex`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from reference_impls.checks import (
    check_input,
    glorot,
    host_can_decide,
    layer_of,
    masked_softmax,
    one_of,
    positive_int,
    refuse_rows,
    true_or_false,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption
from reference_impls.merged import MergingModule, side_by_side


def sinusoids(length: int, width: int, form: str, device: torch.device) -> Tensor:
    """Sinusoidal positions, float64, shape [length, width].

    Parameters
    ----------
    form : {"paper", "released"}
        Vaswani et al.: sin(i / 10000^(2m/d)) in column 2m, cos of the same angle in column 2m+1.
        The released program puts the column itself in place of m, twice the exponent:
        sin(i / 10000^(2f/d)) for even f, cos(i / 10000^(2(f-1)/d)) for odd f.
    """
    position = torch.arange(length, device=device, dtype=torch.float64)[:, None]
    column = torch.arange(width, device=device)
    exponent = (column - column % 2).double() / width
    if form == "released":
        exponent = 2 * exponent
    angle = position / 10000.0**exponent  # [N, D]
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


def up_to_each(length: int, device: torch.device) -> Tensor:
    """Pairs of a causal mask, [N, N]: query i may see key j where j <= i."""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


class Positions:
    """Sinusoidal positions, computed once in float64 and kept per dtype and device.

    Not a buffer: `Module.to` would round it and could not widen it again.
    """

    def __init__(self, width: int, form: str) -> None:
        self.width, self.form = width, form
        self._tables: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def added_to(self, x: Tensor) -> Tensor:
        """Return x [B, N, D] plus the positions of its N tokens."""
        n = x.shape[1]
        table = self._tables.get((x.dtype, x.device))
        if table is None or table.shape[0] < n:
            # Grows to the next power of two; made outside of inference mode to serve training too.
            length = 1 << (int(n) - 1).bit_length()
            with torch.inference_mode(False):
                table = sinusoids(length, self.width, self.form, x.device).to(x.dtype)
            real = type(table) is Tensor  # not what a mode made that only plays a call through
            if real and (torch.compiler.is_compiling() or host_can_decide(x)):
                # A table made during graph capture lives in the graph's memory: not to be kept.
                self._tables[x.dtype, x.device] = table
        return x + table[:n]


def _in_a_row(*biases: Tensor) -> Tensor:
    """Biases of the heads [H, d], one after another."""
    return torch.cat([bias.flatten() for bias in biases])


def _with_room(make: Callable[..., Tensor], room: int) -> Callable[..., Tensor]:
    """``make`` of weights with so many columns of zeros in each head."""
    return lambda *weights: make(*(pad(weight, (0, room)) for weight in weights))


@layer_of("multi_head")
class MultiHeadLayer(MergingModule):
    """MTSA eq. 4-5 (Vaswani et al.) or the released baseline; subclasses say how to attend.

    Parameters
    ----------
    d_in, d_out : int
        Without an output layer d_out must be heads * head_dim.
    heads : int
    positions : {"paper", "released"} or None
        Sinusoids added to x, see `sinusoids`.
    output_layer : bool
        Whether there is W^o.
    head_dim : int, optional
        d_h; d_out / heads by default.
    relu_projections : bool
        Whether queries, keys and values have biases and pass a relu (the other released baseline).
    causal : bool
        Whether a token attends to itself and those before it only (Vaswani et al., section 3.2.3).

    Attributes
    ----------
    room : int
        Columns of zeros that every head has beside its own, for kernels that want them.
    """

    room = 0

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        positions: str | None = "paper",
        output_layer: bool = True,
        head_dim: int | None = None,
        relu_projections: bool = False,
        causal: bool = False,
    ) -> None:
        super().__init__()
        self.causal = true_or_false("causal", causal)
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        if head_dim is None:
            head_dim = width_per_part(d_out, heads, "heads")
        self.head_dim = positive_int("head_dim", head_dim)
        if not true_or_false("output_layer", output_layer) and heads * head_dim != d_out:
            raise BadOption(
                f"d_out={d_out}, but heads * head_dim is {heads * head_dim}; "
                "make them equal, or give output_layer=True"
            )
        self.positions: Positions | None = None
        if one_of("positions", positions, ("paper", "released", None)) is not None:
            self.positions = Positions(d_in, str(positions))
        self.q_w = glorot(heads, d_in, head_dim)
        self.k_w = glorot(heads, d_in, head_dim)
        self.v_w = glorot(heads, d_in, head_dim)
        self.o_w = glorot(heads * head_dim, d_out) if output_layer else None
        self.q_b = self.k_b = self.v_b = None
        if true_or_false("relu_projections", relu_projections):
            self.q_b = zero_bias(heads, head_dim)
            self.k_b = zero_bias(heads, head_dim)
            self.v_b = zero_bias(heads, head_dim)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4: q, k, v [B, H, N, d_h] -> [B, H, R, d_h]; finite at padding."""
        raise NotImplementedError

    def _project(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, [B, H, N, d_h] each."""
        check_input(x, mask, self.d_in)
        if self.positions is not None:
            x = self.positions.added_to(x)
        x = zero_at_padding(x, mask)
        weights = (self.q_w, self.k_w, self.v_w)
        make, put = side_by_side, _in_a_row
        if self.room:
            make, put = _with_room(make, self.room), _with_room(put, self.room)
        if self.q_b is None or self.k_b is None or self.v_b is None:
            qkv = self.merged.product(x, make, *weights, key="qkv")  # [B, N, 3 * H * d_h]
        else:
            weight = self.merged.of(make, *weights, key="qkv")  # [D, 3 * H * d_h]
            bias = self.merged.of(put, self.q_b, self.k_b, self.v_b, key="qkv")
            qkv = nn.functional.linear(x, weight.T, bias).relu_()
        qkv = qkv.unflatten(-1, (3, self.heads, self.head_dim + self.room))  # [B, N, 3, H, d_h]
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        return q, k, v

    def fuse(self, x: Tensor, mask: Tensor | None, rows: Tensor | None = None) -> Tensor:
        """The layer at the query positions ``rows`` (None: all): [B, N, D] -> [B, R, d_out]."""
        q, k, v = self._project(x, mask)
        attended = self.attend(q, k, v, mask, rows).transpose(1, 2)  # [B, R, H, d_h]
        if self.o_w is None:
            # Cut here, so that its gradient lies as it does: else cuDNN's are wrong (torch 2.11).
            attended = attended[..., : self.head_dim]
        out = attended.flatten(2)
        if self.o_w is not None and self.room:
            out = self.merged.dense(out, self._wide_output, self.o_w, key="wide")
        elif self.o_w is not None:
            out = self.dense(out, self.o_w)
        return zero_at_padding(out, mask if mask is None or rows is None else mask[:, rows])

    def _wide_output(self, weight: Tensor) -> Tensor:
        """W^o with rows of zeros for the columns that heads have beside their own."""
        heads = weight.unflatten(0, (self.heads, self.head_dim))  # [H, d_h, d_out]
        return pad(heads, (0, 0, 0, self.room)).flatten(0, 1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        return self.fuse(x, mask)

    def attention(self, x: Tensor, mask: Tensor | None = None) -> dict[str, Tensor]:
        """Scores and weights, for looking at.

        Returns
        -------
        dict
            ``token2token_scores`` q k^T / sqrt(d_h) and ``token2token_weights`` (their softmax,
            eq. 4), [H, B, N, N] each, queries before keys.
        """
        q, k, _ = self._project(x, mask)
        r = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)  # [B, H, N, N]
        real = torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if mask is None else mask
        pairs = real[:, None, None, :] & real[:, None, :, None]  # [B, 1, N, N]
        if self.causal:
            pairs = pairs & up_to_each(x.shape[1], x.device)
        weights = masked_softmax(r, pairs, dim=-1)
        return {
            "token2token_scores": r.transpose(0, 1),
            "token2token_weights": weights.transpose(0, 1),
        }


class PlainMultiHead(MultiHeadLayer):
    """`MultiHeadLayer` with an explicit softmax; memory B * H * R * N."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4, step by step; 0 in a fully padded sample."""
        if rows is not None:
            q = q[:, :, rows]  # [B, H, R, d_h]
        r = q @ k.transpose(-1, -2) / math.sqrt(self.head_dim)  # [B, H, R, N]
        n = r.shape[-1]
        keys = torch.ones(n, dtype=torch.bool, device=r.device)
        if mask is not None:
            keys = mask[:, None, None, :]  # [B, 1, 1, N]
        if self.causal:
            before = up_to_each(n, r.device)
            keys = keys & (before if rows is None else before[rows])
        return masked_softmax(r, keys, dim=-1) @ v

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows)


def visible_keys(mask: Tensor) -> Tensor:
    """The mask [B, N] with the first key opened in samples that have no real token.

    A softmax over nothing is NaN. x is zero at padding, so the opened key holds zeros, and those
    samples' rows are set to zero in the end.
    """
    first = torch.arange(mask.shape[1], device=mask.device) == 0  # [N]
    return mask | (first & ~mask.any(1, keepdim=True))


def visible_pairs(mask: Tensor) -> Tensor:
    """Pairs of a causal mask with padding, [B, N, N] of a mask [B, N].

    A real token always sees itself. So may padding, for the same reason as above.
    """
    n = mask.shape[1]
    own = torch.eye(n, dtype=torch.bool, device=mask.device)
    return (mask[:, None, :] | own) & up_to_each(n, mask.device)


def visible(mask: Tensor, causal: bool) -> Tensor:
    """What every head may see of a padded batch: [B, 1, 1, N], or [B, 1, N, N] if causal."""
    return visible_pairs(mask)[:, None] if causal else visible_keys(mask)[:, None, None, :]


def by_products(q: Tensor, k: Tensor, v: Tensor, scale: float, closed: Tensor | None) -> Tensor:
    """Two batched products and torch's softmax between them (eq. 1).

    Parameters
    ----------
    q, k, v : Tensor, shape [B, H, N, d_h]
    scale : float
        Of the scores.
    closed : Tensor of bool, shape [1 or B, 1 or H, 1 or N, N], or None
        True at pairs that don't count.
    """
    b, h, n, _ = q.shape

    def head_by_head(values: Tensor) -> Tensor:
        # A copy, gone as soon as it is used; its width by name, for a batch of no samples.
        return values.reshape(b * h, n, values.shape[-1])

    # The first product takes scale and mask with it, which saves passes over N * N.
    r = torch.baddbmm(
        q.new_empty(()) if closed is None else _bias(closed, q),
        head_by_head(q),
        head_by_head(k).mT,
        beta=0.0 if closed is None else 1.0,
        alpha=scale,
    )
    del closed  # N * N bytes
    r = r.softmax(-1)  # [B*H, N, N]
    return (r @ head_by_head(v)).unflatten(0, (b, h))


def _bias(closed: Tensor, like: Tensor) -> Tensor:
    """Minus infinity at pairs that don't count; gone as soon as it is added."""
    return like.new_zeros(closed.shape).masked_fill_(closed, -math.inf).flatten(0, 1)


class MatmulMultiHead(MultiHeadLayer):
    """Two batched products and torch's softmax between them."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4."""
        refuse_rows(rows)
        return by_products(q, k, v, 1 / math.sqrt(self.head_dim), self._closed(q, mask))

    def _closed(self, q: Tensor, mask: Tensor | None) -> Tensor | None:
        """Pairs that don't count, as `by_products` takes them."""
        if mask is not None:
            return ~visible(mask, self.causal).expand(-1, self.heads, -1, -1)
        return ~up_to_each(q.shape[2], q.device)[None, None] if self.causal else None
