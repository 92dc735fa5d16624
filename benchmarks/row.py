"""One line of the report: a figure, what it is compared with, and the bar it must reach."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What is asked for. Where several limits are set, one of them is enough."""

    min_figure: float | None = None
    max_figure: float | None = None
    min_ratio: float | None = None
    max_ratio: float | None = None

    def is_met(self, figure: float, ratio: float | None) -> bool:
        if self.min_figure is not None and figure >= self.min_figure:
            return True
        if self.max_figure is not None and figure <= self.max_figure:
            return True
        if ratio is None:
            return False
        if self.min_ratio is not None and ratio >= self.min_ratio:
            return True
        return self.max_ratio is not None and ratio <= self.max_ratio

    def text(self, unit: str) -> str:
        limits = (
            ("at least", self.min_figure, unit),
            ("at most", self.max_figure, unit),
            ("at least", self.min_ratio, "x"),
            ("at most", self.max_ratio, "x"),
        )
        return " or ".join(
            f"{word} {limit:g} {of}".rstrip() for word, limit, of in limits if limit is not None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A figure. Without a bar it is there for information."""

    measure: str
    figure: float
    unit: str = ""
    compared_with: str = ""
    # In the unit of the figure.
    comparison: float | None = None
    # Why there is no comparison, where one was wanted.
    absent: str = ""
    bar: Bar | None = None
    # More figures of the same run; each name ends in its unit.
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def ratio(self) -> float | None:
        return self.figure / self.comparison if self.comparison else None

    @property
    def met(self) -> bool | None:
        """None where there is no bar."""
        return None if self.bar is None else self.bar.is_met(self.figure, self.ratio)
