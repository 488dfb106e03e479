"""Bidirectional GRU around its steps: weights, both places of the reset gate."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from reference_impls.checks import (
    check_input,
    glorot,
    one_of,
    refuse_unknown,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)

RESETS = ("after", "before")
DIRECTIONS = ("fw", "bw")


class BiGruLayer(nn.Module):
    """A forward and a backward GRU of width d_out / 2 each.

    With r, u = sigmoid([x ; h] gates_w + gates_b) a step is h' = u h + (1 - u) c, and

    - ``before`` (Cho et al. 2014, eq. 8; TensorFlow): c = tanh([x ; r h] cand_w + cand_b),
    - ``after`` (torch, cuDNN): c = tanh(x w_x + cand_b + r (h w_h + cand_hb)), where w_x and w_h
      are the rows of cand_w for x and for h.

    Parameters
    ----------
    d_in, d_out : int
    reset : {"after", "before"}
        Whether the reset gate acts after or before the product with the state's weights.

    Raises
    ------
    BadOption
        If d_out is odd, or for an option that does not exist.
    """

    def __init__(self, d_in: int, d_out: int, *, reset: str = "after", **unknown: Any) -> None:
        super().__init__()
        refuse_unknown("bi_gru", unknown, ("reset",))
        self.d_in = d_in
        self.reset = one_of("reset", reset, RESETS)
        h = self.hidden = width_per_part(d_out, 2, "directions")
        for name in DIRECTIONS:
            self.register_parameter(f"{name}_gates_w", glorot(d_in + h, 2 * h))
            # Towards keeping the state at first, as TensorFlow's cell begins.
            self.register_parameter(f"{name}_gates_b", nn.Parameter(zero_bias(2 * h) + 1))
            self.register_parameter(f"{name}_cand_w", glorot(d_in + h, h))
            self.register_parameter(f"{name}_cand_b", zero_bias(h))
            if reset == "after":
                self.register_parameter(f"{name}_cand_hb", zero_bias(h))

    def weights(self, direction: str) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None]:
        """gates_w, gates_b, cand_w, cand_b, cand_hb (None for ``before``) of ``fw`` or ``bw``."""
        w = {n: weight_of(self, f"{direction}_{n}")
             for n in ("gates_w", "gates_b", "cand_w", "cand_b")}  # fmt: skip
        after = weight_of(self, f"{direction}_cand_hb") if self.reset == "after" else None
        return w["gates_w"], w["gates_b"], w["cand_w"], w["cand_b"], after

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """States of both directions, [B, N, 2*h]; anything finite at padding."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out]."""
        check_input(x, mask, self.d_in)
        return zero_at_padding(self.both_ways(zero_at_padding(x, mask), mask), mask)
