"""What is written about metrics is true of those that there are."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import yaml

from millstream.telemetry.catalogue import CATALOGUE
from millstream.telemetry.metric import Kind
from tests.fakes.documents import blocks_of

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "monitoring.md"
DASHBOARD = ROOT / "examples" / "grafana" / "millstream.json"

ADDRESS = "localhost:8000"
_NAME = re.compile(r"\b(?:millstream|process)_[a-z_]+\b")
_SUFFIXES = ("_bucket", "_sum", "_count")


def told_names() -> set[str]:
    """The names under which Prometheus knows the metrics."""
    return {
        name
        for metric in CATALOGUE
        for name in (
            [metric.name + suffix for suffix in _SUFFIXES]
            if metric.kind is Kind.HISTOGRAM
            else [metric.name]
        )
    }


def test_guide_describes_every_metric_as_it_is() -> None:
    rows = [line for line in GUIDE.read_text().splitlines() if re.match(r"\| `[a-z_]+` \|", line)]
    assert rows == [
        f"| `{metric.name}` | {metric.kind} | "
        f"{', '.join(f'`{label}`' for label in metric.labels)} | {metric.doc} |"
        for metric in CATALOGUE
    ]


def test_questions_of_the_guide_and_of_the_dashboard_are_about_metrics_that_there_are() -> None:
    asked = re.findall(
        r"\| ([^|]*`.*`[^|]*) \|$", GUIDE.read_text().split("## All metrics")[0], re.MULTILINE
    )
    panels = json.loads(DASHBOARD.read_text())["panels"]
    asked += [target["expr"] for panel in panels for target in panel.get("targets", ())]
    names = {name for question in asked for name in _NAME.findall(question)}
    assert len(names) > 20
    assert names <= told_names()


def test_files_of_the_guide_ask_as_its_commands_do() -> None:
    """tests/documents runs the commands."""
    [_, scrape, influx, telegraf] = blocks_of("docs/guides/monitoring.md")
    [job] = yaml.safe_load(scrape.text)["scrape_configs"]
    assert job["static_configs"] == [{"targets": [ADDRESS]}]
    [reading] = tomllib.loads(telegraf.text)["inputs"]["http"]
    assert f"curl '{reading['urls'][0].removeprefix('http://')}'" == influx.text.strip()


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
