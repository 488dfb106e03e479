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

from functools import partial
from typing import Any

import numpy as np

from reference_impls.naive import Array, Result, Rows, Weights, with_prefix
from reference_impls.resa.naive import fuse, odds_of, select
from reference_impls.source2token import naive as source2token

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


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
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
) -> Result:
    """Compute the sentence vector of one sequence and its gradients.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [d_out].

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
    everything = np.full(len(x), True)
    dep_sel, head_sel = everything, everything
    if SELECTED_BY[variant]:
        dep_sel, head_sel = (
            select(x, weights, name, selection, rss_activation, policy, drawn)
            for name in SELECTED_BY[variant]
        )
    fused = variant not in ("no_soft", "neither")
    resa = partial(
        fuse,
        x,
        weights,
        np.arange(len(x)),
        dep_sel=dep_sel,
        head_sel=head_sel,
        direction=direction,
        activation=activation,
        tanh_scale=tanh_scale,
        unselected=unselected,
    )
    y = resa(None)[0] if fused else x
    pool = np.flatnonzero(everything if variant == "full" else head_sel)
    out, g_y = np.zeros(y.shape[1]), np.zeros(y.shape)
    grads = {name: np.zeros(w.shape) for name, w in weights.items()}
    if variant == "neither":
        out = x.mean(axis=0)
        g_y += 0.0 if grad_out is None else grad_out / len(x)
    elif pool.size:
        W = with_prefix(weights, "s2t_")
        out, g_pool, g_W = source2token.naive(y[pool], W, None, grad_out, activation=activation)
        if g_pool is not None and g_W is not None:
            g_y[pool] = g_pool
            grads |= {f"s2t_{name}": g for name, g in g_W.items()}
    if grad_out is None:
        return out, None, None
    grad_x: Array | None = g_y
    if fused:
        _, grad_x, g_fused = resa(g_y)
        assert g_fused is not None
        grads |= {name: g for name, g in g_fused.items() if not name.startswith("s2t_")}
    if drawn is not None:
        g = float(drawn["cotangent"])
        grads |= odds_of(x, weights, drawn, policies(variant), rss_activation, policy, g)[2]
    return out, grad_x, grads


def odds(
    x: Array, weights: Weights, drawn: Weights, **options: Any
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]]]:
    """Return what `reference_impls.resa.naive.odds` does, for the variant's policies."""
    f, policy = options["rss_activation"], options["policy"]
    return odds_of(x, weights, drawn, policies(options["variant"]), f, policy)[:2]
