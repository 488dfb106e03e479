"""Float64 oracle of the reinforced self-attention network (ReSAN), a sentence encoder.

Shen et al., ReSAN (IJCAI 2018), section 3.3: "we pass the output sequence of ReSA into a
source2token self-attention module". y = ReSA(x), and the sentence is source2token of y over a
pool of tokens (the oracles of those names). Table 2 takes parts away (`variant`):

"full"                      pool: all real tokens.
"without_unselected_heads"  "only applies the soft self-attention to the selected head and
                            dependent tokens": as full; pool: selected heads.
"one_rss"                   "w/o dependency restricted": "only one RSS to select tokens for both
                            heads and dependents"; pool: selected tokens. RSS weights sel_*.
"no_hard"                   "w/o hard attention": every token is head and dependent, which is
                            DiSAN; pool: all real tokens. No RSS.
"no_soft"                   "w/o soft self-attention": y = x; pool: tokens selected by one RSS,
                            sel_* (two of them would make more than the table's 1.0m weights).
"neither"                   "w/o all attentions": the mean of x. No weights at all (the table's
                            0.5m have no room for source2token; that it is the mean is ours).

The second and third "entirely discard the information of the unselected tokens [...]: the input
and output sequences are not equal in length", hence their pools. An RSS always reads all of x. A
pool of no token gives zeros. A pooled head without an allowed dependent has a = 0, as in ReSA.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reference_impls.naive import Array, Oracle, Weights, value_of, with_prefix
from reference_impls.resa.naive import fuse, likelihood, select
from reference_impls.resa.naive import odds as odds_of
from reference_impls.source2token.naive import naive as source2token

SELECTED_BY = {
    "full": ("dep", "head"),
    "without_unselected_heads": ("dep", "head"),
    "one_rss": ("sel", "sel"),
    "no_soft": ("sel", "sel"),
    "no_hard": (),
    "neither": (),
}


def policies(variant: str) -> list[str]:
    """Return the names of a variant's policies, that of the heads first."""
    return list(dict.fromkeys(reversed(SELECTED_BY[variant])))


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    direction: str = "both",
    activation: str = "elu",
    tanh_scale: float = 5.0,
    unselected: str = "all_real",
    selection: str = "threshold",
    rss_hidden: int | None = None,
    rss_activation: str = "elu",
    policy: str = "rss",
    variant: str = "full",
    drawn: Weights | None = None,
) -> Array | tuple[Array, Array]:
    """Return the sentence vector [d_out] of one sequence; see `reference_impls.naive`.

    Beside it what `reference_impls.resa.naive.naive` returns.

    Parameters
    ----------
    weights : mapping
        Those of ReSA (of the RSS, what the variant has), and s2t_s1_w, s2t_s2_w [d_out, d_out],
        s2t_s1_b, s2t_s2_b [d_out].
    direction, ..., policy
        Configuration of ReSA; `activation` is also source2token's.
    variant : str
        See above. "no_soft" and "neither" have d_out = D.
    drawn : mapping, optional
        As ReSA's, by the names of the variant's policies.
    """
    seen, every = value_of(x), np.arange(len(x))
    everything = np.full(len(x), True)
    dep_sel, head_sel = everything, everything
    if SELECTED_BY[variant]:
        dep_sel, head_sel = (
            select(seen, weights, name, selection, rss_activation, policy, drawn)
            for name in SELECTED_BY[variant]
        )
    y = x
    if variant not in ("no_soft", "neither"):
        how = direction, activation, tanh_scale, unselected
        y = fuse(x, weights, every, dep_sel, head_sel, *how)
    pool = np.flatnonzero(everything if variant == "full" else head_sel)
    out = np.zeros(y.shape[1])
    if variant == "neither":
        out = x.mean(axis=0)
    elif pool.size:
        pooling = with_prefix(weights, "s2t_")
        out = source2token.forward(y[pool], pooling, pool, activation=activation)
    if drawn is None:
        return out
    chosen = policies(variant)
    total = likelihood(seen, weights, drawn, chosen, rss_activation, policy)[0]
    return out, total * drawn["cotangent"]


def odds(
    x: Array, weights: Weights, drawn: Weights, **options: Any
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]]]:
    """Return what `reference_impls.resa.naive.odds` does, for the variant's policies."""
    return odds_of(x, weights, drawn, policies(options["variant"]), **options)
