"""`millstream doctor`: whether this machine suits a broker, and what to do where it does not.

Each check says ok, warn or fail. Nothing is changed, but for a file that is written to measure the
disk, and removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millstream.cli.printout import AsJson, print_json, print_lines, print_table

_MARKS = {"ok": "ok", "warn": "WARN", "fail": "FAIL"}


def doctor(
    *,
    data: Annotated[
        Path, typer.Option("--data-dir", help="Where the broker keeps, or will keep, its data.")
    ] = Path("data"),
    ports: Annotated[
        list[int] | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            help="A port that the broker is to have.",
            show_default="9092, 8000, 1234",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Check this machine: ports, disk, limits, memory, clock, versions, Java for Spark."""
    from millstream.cli.health_checks import Checkup, checks

    found: list[Checkup] = []
    for check in checks(data, ports or [9092, 8000, 1234]):
        found += check()
    if json:
        for each in found:
            print_json(each._asdict())
    else:
        rows = [
            (_MARKS[each.verdict], each.subject, each.told, each.advice or "") for each in found
        ]
        print_table(("", "CHECK", "FOUND", "WHAT TO DO"), rows, elastic=("FOUND", "WHAT TO DO"))
        _summary([each.verdict for each in found])
    if any(each.verdict == "fail" for each in found):
        raise typer.Exit(1)


def _summary(verdicts: list[str]) -> None:
    failed, warned = verdicts.count("fail"), verdicts.count("warn")
    if failed or warned:
        print_lines("", f"{failed} failed, {warned} warnings, {len(verdicts)} checks")
    else:
        print_lines("", f"all {len(verdicts)} checks are good")
