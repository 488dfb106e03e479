"""Axes that all figures share: what is named where there is little room."""

from __future__ import annotations

import itertools

import matplotlib.pyplot as plt
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from reports.core.axes import length_axis

DOUBLED = [2**k for k in range(4, 15)]


@pytest.mark.parametrize("width", [2.5, 4.0, 12.0])
@pytest.mark.parametrize("lengths", [DOUBLED, [22, 109, 201, 1024], [64], [200, 210, 220]])
def test_labels_of_lengths_never_touch_and_the_longest_is_named(
    lengths: list[int], width: float
) -> None:
    figure, axes = plt.subplots(figsize=(width, 3))
    axes.plot(lengths, lengths)
    length_axis(axes, [*reversed(lengths), *lengths])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ticks = axes.get_xticklabels()
    assert len(ticks) == len(lengths)
    named = [t for t in ticks if t.get_text()]
    assert named[-1].get_text() == f"{max(lengths):,}"
    boxes = [t.get_window_extent(canvas.get_renderer()) for t in named]
    for one, following in itertools.pairwise(boxes):
        assert one.x1 < following.x0
    if width == 12.0 and lengths != [200, 210, 220]:
        assert [t.get_text() for t in ticks] == [f"{n:,}" for n in lengths]
    plt.close(figure)
