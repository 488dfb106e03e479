"""Figures of ``attention.ipynb``: heat maps, numbers per token, by part of speech, distances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import seaborn
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from harness.attention.reduce import SOURCE2TOKEN, allowed
from reports.core.axes import bare, headed, panels
from reports.core.forest import Line, forest
from reports.core.style import look

COLUMNS = 4
MOST_NAMED = 4
"""Panels in a caption."""
CELL = 0.17
"""Inches of a token in a heat map."""

SELECTED = "selected_"
"""How kinds begin that say what a policy selects: 0 or 1 for a token."""


def heads_by_mask(masks: Sequence[str]) -> dict[str, list[int]]:
    """Numbers of the heads that share a mask, in the order of the first of them."""
    found: dict[str, list[int]] = {}
    for head, mask in enumerate(masks):
        found.setdefault(mask, []).append(head)
    return found


def grouped(sentence: Mapping[str, Any]) -> list[tuple[str, np.ndarray, str]]:
    """Panels of a sentence: per layer and mask the mean over its heads; name, weights, mask."""
    found = []
    several = len(sentence["layers"]) > 1
    for number, layer in enumerate(sentence["layers"]):
        weights = np.array(layer["token2token"])
        masks = layer["masks"]
        for mask, heads in heads_by_mask(masks).items():
            count = "1 head" if len(heads) == 1 else f"mean of {len(heads)} heads"
            where = f"layer {number}, " if several else ""
            found.append((f"{where}{mask} ({count})", weights[heads].mean(0), mask))
    return found


def heat_maps(sentence: Mapping[str, Any], model: str) -> Figure:
    """Weights over keys for every query, a panel per mask; forbidden cells are hatched."""
    shown, tokens = grouped(sentence), sentence["tokens"]
    n = len(tokens)
    darkest = max(0.3, *(float(weights.max()) for _, weights, _ in shown))
    side = max(1.7, CELL * n)
    edges, gaps = (1.1, 0.1, 0.95, 0.75), (0.25, 1.1)
    figure, grid = panels(len(shown), COLUMNS, (side, side), edges, gaps)
    for number, (axes, (name, weights, mask)) in enumerate(zip(grid.flat, shown, strict=False)):
        inside = allowed(mask, n)
        # Forbidden cells are not drawn: what shows there is the hatched ground.
        axes.patch.set(facecolor="white", edgecolor="0.85", hatch="////", linewidth=0)
        seaborn.heatmap(
            weights,
            mask=~inside,
            cmap="binary",
            vmin=0,
            vmax=darkest,
            cbar=False,
            square=True,
            xticklabels=tokens,
            yticklabels=tokens if number % COLUMNS == 0 else False,
            ax=axes,
        )
        axes.collections[-1].set_label(name)
        axes.tick_params(length=0, labelsize=7)
        axes.tick_params(axis="y", rotation=0)
        axes.set_title(name, fontsize=8, loc="left")
        for spine in axes.spines.values():
            spine.set(visible=True, color="0.8")
    grid[0][0].set_ylabel("query", fontsize=8)
    scale = f"no ink: 0, most ink: {darkest:.2f}, in all panels; columns: keys"
    headed(
        figure, f"{model}: token2token weights", scale, left=0.01, gap=0.2 / figure.get_figheight()
    )
    return figure


def strongest(sentence: Mapping[str, Any]) -> str:
    """The largest weight of each panel, in words; of queries that have a choice of keys."""
    tokens, parts = sentence["tokens"], []
    for name, weights, mask in grouped(sentence)[:MOST_NAMED]:
        free = allowed(mask, len(tokens)).sum(-1) > 1
        if not free.any():
            continue
        i, j = np.unravel_index(np.argmax(weights * free[:, None]), weights.shape)
        parts.append(f"{name}: {tokens[i]} to {tokens[j]}, {weights[i, j]:.2f}")
    if not parts:
        return "No query has a choice of keys."
    return f"Largest weights where there is a choice of keys: {'; '.join(parts)}."


def by_mask(sentence: Mapping[str, Any]) -> dict[str, Sequence[float]]:
    """Numbers per token; source2token scores apart for the heads of each mask, where they differ.

    MTSA's figure 3 shows those of a forward and of a backward head.
    """
    found: dict[str, Sequence[float]] = {}
    for kind, values in sentence["numbers"].items():
        layer = kind.removesuffix(SOURCE2TOKEN)
        number = int(layer[1:-1]) if layer.startswith("l") and kind.endswith(SOURCE2TOKEN) else 0
        masks = sentence["layers"][number]["masks"] if kind.endswith(SOURCE2TOKEN) else []
        if len(set(masks)) < 2:
            found[kind] = values
            continue
        scores = np.array(sentence["layers"][number]["source2token"])  # [H, n]
        for mask, heads in heads_by_mask(masks).items():
            found[f"{kind}, {mask}"] = scores[heads].mean(0).tolist()
    return found


def highest(tokens: Sequence[str], numbers: Mapping[str, Sequence[float]]) -> str:
    """The token with the largest number of each kind; of selections how many there are."""
    return "; ".join(
        f"{np.count_nonzero(np.greater(values, 0.5))} of {len(tokens)} tokens "
        f"{kind.replace('_', ' as ')}"
        if kind.startswith(SELECTED)
        else f"{kind.replace('_', ' ')} highest at {tokens[int(np.argmax(values))]}"
        for kind, values in numbers.items()
    )


def per_token(
    tokens: Sequence[str], numbers: Mapping[str, Sequence[float]], mechanism: str
) -> Figure:
    """Bars over the tokens, a panel per kind."""
    each, edges = (max(3.0, 0.3 * len(tokens)), 0.85), (0.6, 0.1, 0.75, 0.28)
    figure, grid = panels(len(numbers), 1, each, edges, (0, 0.43), sharex=True)
    ink = look(mechanism).colour
    for axes, (kind, values) in zip(grid.flat, numbers.items(), strict=True):
        axes.bar(range(len(tokens)), values, color=ink, width=0.7, label=kind.replace("_", " "))
        axes.axhline(0, color="0.4", linewidth=0.8)
        if kind.startswith(SELECTED):
            axes.set_ylim(0, 1.05)
        axes.set_title(kind.replace("_", " "), fontsize=8.5, loc="left")
        axes.tick_params(axis="y", labelsize=7)
        bare(axes)
        axes.grid(axis="x", visible=False)
    grid[-1, 0].set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7.5)
    return figure


def by_tag(kind: str, tags: Mapping[str, tuple[float, float, float]], mechanism: str) -> Figure:
    """Parts of speech, the highest first, beside zero: the mean of their sentence."""
    lines = [Line(tag, mechanism, *values, decided=True) for tag, values in tags.items()]
    return forest(
        lines,
        kind.replace("_", " ") + " by part of speech",
        "95 % t-intervals over sentences; universal tags",
        "difference to the mean of the sentence",
    )


def distances(found: Sequence[Mapping[str, Any]], mechanism: str) -> Figure:
    """A histogram per layer and head."""
    each, edges, gaps = (2.1, 0.95), (0.7, 0.1, 0.5, 0.62), (0.2, 0.43)
    figure, grid = panels(len(found), COLUMNS, each, edges, gaps, sharex=True, sharey=True)
    for axes, one in zip(grid.flat, found, strict=False):
        _histogram(axes, one, look(mechanism).colour)
    for axes in grid[-1]:
        axes.set_xlabel("key − query (tokens)", fontsize=7.5)
    for row in grid:
        row[0].set_ylabel("share", fontsize=7.5)
    headed(figure, "Where the largest weight lies")
    return figure


def _histogram(axes: Axes, one: Mapping[str, Any], ink: str) -> None:
    total = sum(count for _, count in one["counts"]) or 1
    layer = str(one["layer"]).strip("l_")
    name = (f"layer {layer}, " if layer else "") + f"head {one['head']}, {one['mask']}"
    axes.bar(
        [d for d, _ in one["counts"]],
        [n / total for _, n in one["counts"]],
        width=0.85,
        color=ink,
        label=name,
    )
    axes.set_title(name, fontsize=7.5, loc="left")
    axes.set_xlim(-16, 16)
    axes.axvline(0, color="0.4", linewidth=0.8, zorder=0)
    axes.tick_params(labelsize=7)
    bare(axes)
    axes.grid(axis="x", visible=False)
