"""What the documents claim in numbers and names is so."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from millstream.gateways.kafka.routes import ANNOUNCED
from millstream.protocol.apis import APIS
from millstream.telemetry.catalogue import CATALOGUE
from tests.fakes.documents import PAGES, README, ROOT, blocks_of

MAX_README_LINES = 250
_API = re.compile(r"^(\| \w+ \| \d+ \| \d+ to \d+ \|) .*\|$", re.MULTILINE)
_METRIC = re.compile(r"\b(?:millstream|process)_[a-z_]+\b")


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def test_table_of_apis_is_current() -> None:
    assert _API.findall(text_of("docs/guides/kafka_compatibility.md")) == [
        f"| {APIS[key].name} | {key} | {oldest} to {newest} |" for key, oldest, newest in ANNOUNCED
    ]
    assert f"[{len(ANNOUNCED)} APIs]" in text_of(README)


def test_alarms_are_about_metrics_that_there_are() -> None:
    [block] = [each for each in blocks_of("docs/guides/operating.md") if each.language == "yaml"]
    [group] = yaml.safe_load(block.text)["groups"]
    asked = {name for rule in group["rules"] for name in _METRIC.findall(rule["expr"])}
    assert len(asked) > 10
    assert {name.removesuffix("_bucket") for name in asked} <= {each.name for each in CATALOGUE}


def test_readme_is_short_and_shows_every_example_and_every_guide() -> None:
    readme = text_of(README)
    assert len(readme.splitlines()) <= MAX_README_LINES
    for example in (ROOT / "examples").glob("*.py"):
        assert f"(examples/{example.name})" in readme
        assert f"`python examples/{example.name} --demo`" in readme
    for page in PAGES:
        assert page == README or f"({page})" in readme, page


def test_pictures_that_pages_show_are_there() -> None:
    for page in PAGES:
        for picture in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", text_of(page)):
            assert ((ROOT / page).parent / Path(picture)).is_file(), f"{page}: {picture}"
