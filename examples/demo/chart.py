"""The revenue of the day as a picture."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from outcome import Revenue


def draw(revenue: Revenue, path: Path) -> None:
    """A stack of bars for each window, a colour for each category."""
    mpl.use("Agg")
    from matplotlib import dates
    from matplotlib import pyplot as plt

    windows = sorted({window for window, _ in revenue})
    totals = {category: 0.0 for _, category in sorted(revenue)}
    figure, (over_time, in_all) = plt.subplots(
        1, 2, figsize=(13, 5.5), width_ratios=(3, 1), layout="constrained"
    )
    below = [0.0] * len(windows)
    width = 0.85 * 5 / (24 * 60)
    for number, category in enumerate(totals):
        heights = [float(revenue.get((window, category), 0)) for window in windows]
        totals[category] = sum(heights)
        colour = f"C{number}"
        over_time.bar(windows, heights, width, bottom=below, align="edge", color=colour)
        in_all.barh(category, totals[category], color=colour)
        below = [low + height for low, height in zip(below, heights, strict=True)]
    over_time.set_title("Revenue in five minutes, from the topic shop.revenue")
    over_time.xaxis.set_major_formatter(dates.DateFormatter("%H:%M"))  # type: ignore[no-untyped-call]
    in_all.set_title("In all")
    in_all.invert_yaxis()
    over_time.yaxis.set_major_formatter("{x:,.0f}")
    in_all.xaxis.set_major_formatter("{x:,.0f}")
    for axes in (over_time, in_all):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
    plt.close(figure)
