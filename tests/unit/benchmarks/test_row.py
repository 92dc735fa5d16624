"""A bar is met by any one of its limits, and a row without a bar is for information."""

from __future__ import annotations

import pytest

from benchmarks.row import Bar, Row


@pytest.mark.parametrize(
    ("bar", "figure", "comparison", "met"),
    [
        (Bar(min_ratio=0.7), 7.0, 10.0, True),
        (Bar(min_ratio=0.7), 6.9, 10.0, False),
        (Bar(max_ratio=1.3), 13.0, 10.0, True),
        (Bar(max_ratio=1.3), 13.1, 10.0, False),
        (Bar(max_figure=3), 3.0, None, True),
        (Bar(max_figure=3), 3.1, None, False),
        (Bar(max_figure=0), 0.0, None, True),
        (Bar(min_figure=3, min_ratio=0.5), 3.0, 10.0, True),
        (Bar(min_figure=3, min_ratio=0.5), 2.0, 4.0, True),
        (Bar(min_figure=3, min_ratio=0.5), 1.9, 4.0, False),
        (None, 1.0, None, None),
    ],
)
def test_row_is_judged_by_its_bar(
    bar: Bar | None, figure: float, comparison: float | None, met: bool | None
) -> None:
    row = Row(measure="speed", figure=figure, comparison=comparison, bar=bar)
    assert row.met is met


@pytest.mark.parametrize(
    ("bar", "text"),
    [
        (Bar(max_figure=3), "at most 3 us"),
        (Bar(min_ratio=0.7), "at least 0.7 x"),
        (Bar(min_figure=3, min_ratio=0.5), "at least 3 us or at least 0.5 x"),
    ],
)
def test_bar_tells_what_it_asks_for(bar: Bar, text: str) -> None:
    assert bar.text("us") == text
