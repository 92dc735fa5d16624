"""Shows the figures: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isnan
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.row import Row

# The table is wider than what a pipe is taken for.
_PIPE_COLUMNS = 140

Environment = Mapping[str, str | int | float]
Results = Mapping[str, Sequence[Row]]
"""The rows of each measure, by its name."""


def as_json(results: Results, environment: Environment) -> str:
    measures = [{"name": name, **_document(row)} for name, rows in results.items() for row in rows]
    return json.dumps({"environment": dict(environment), "measures": measures}, indent=2)


def print_table(results: Results, environment: Environment) -> None:
    table = Table(caption=", ".join(f"{name} {value}" for name, value in environment.items()))
    table.add_column("Measure")
    table.add_column("Figure", justify="right")
    table.add_column("Comparison", justify="right")
    table.add_column("Ratio", justify="right")
    table.add_column("Bar")
    table.add_column("Met")
    for rows in results.values():
        for row in rows:
            table.add_row(*_cells(row))
        table.add_section()
    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_COLUMNS
    console.print(table)


def _cells(row: Row) -> tuple[str, ...]:
    also = ", ".join(f"{name} {_number(value)}" for name, value in row.details.items())
    return (
        row.measure + (f"\n[dim]{also}[/dim]" if also else ""),
        f"{_number(row.figure)} {row.unit}",
        _comparison(row),
        "" if row.ratio is None else f"{_number(row.ratio)} x",
        "" if row.bar is None else row.bar.text(row.unit),
        {None: "", True: "[green]yes[/green]", False: "[bold red]NO[/bold red]"}[row.met],
    )


def _comparison(row: Row) -> str:
    if row.absent:
        return f"{row.compared_with} is absent: {row.absent}"
    return "" if row.comparison is None else f"{row.compared_with} {_number(row.comparison)}"


def _document(row: Row) -> dict[str, Any]:
    return {
        "measure": row.measure,
        "figure": None if isnan(row.figure) else row.figure,
        "unit": row.unit,
        "compared_with": row.compared_with or None,
        "comparison": row.comparison,
        "absent": row.absent or None,
        "ratio": row.ratio,
        "bar": row.bar and row.bar.text(row.unit),
        "met": row.met,
        "details": dict(row.details),
    }


def _number(value: float) -> str:
    """Three digits that mean something, and no more."""
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
