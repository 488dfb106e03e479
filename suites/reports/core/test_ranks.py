"""Critical-difference diagrams: models at their ranks, a bar over each group of ties."""

from __future__ import annotations

import pytest

from harness.stats import ties
from reports.core.figure_data import data_of
from reports.core.ranks import critical_differences


@pytest.mark.parametrize(("count", "bars"), [(8, [["b.x", "c.x"]]), (5, [["a.x", "b.x", "c.x"]])])
def test_models_stand_at_their_ranks_and_bars_over_ties(count: int, bars: list[list[str]]) -> None:
    wave = [(-1) ** n * 0.1 + n for n in range(count)]
    found = ties(
        {"b.x": wave, "a.x": [v + 5 for v in wave], "c.x": [float(n) for n in range(count)]}
    )
    figure = critical_differences(found, "trec", "seeds")
    drawn = data_of(figure)
    points = drawn[~drawn["series"].str.startswith("not told apart")].set_index("series")["x"]
    assert points.to_dict() == pytest.approx(dict(found.omnibus.ranks))
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == [f"{model} ({rank:.2f})" for model, rank in points.items()], (
        "each beside its own point"
    )
    joined = drawn[drawn["series"].str.startswith("not told apart")].groupby("series")["x"]
    ranks = found.omnibus.ranks
    assert [sorted(bar) for _, bar in joined] == [sorted(ranks[m] for m in bar) for bar in bars]
    said = " ".join(text.get_text() for text in figure.texts)
    assert ("too few seeds to tell any apart" in said) is (count == 5)
