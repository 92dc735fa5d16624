"""The examples and the starter are pipelines that can be read, with nothing wrong in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.spark.pipeline.declaration import described, parse, read
from millstream.spark.pipeline.option_check import check_options
from millstream.spark.pipeline.starter import starter

EXAMPLES = sorted((Path(__file__).parents[4] / "examples" / "pipelines").glob("*.yaml"))
GUIDE = Path(__file__).parents[4] / "docs" / "guides" / "pipelines.md"


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_has_nothing_wrong(path: Path) -> None:
    pipeline = read(path, {})
    assert described(path, check_options(pipeline)) == []
    assert pipeline.checkpoint.endswith(pipeline.name)


@pytest.mark.parametrize("text", [starter(name="a", topic="b", file="a.yaml")])
def test_starter_has_nothing_wrong(text: str) -> None:
    assert parse(text, Path("a.yaml"), {})[1] == []


def test_pipeline_of_the_guide_has_nothing_wrong() -> None:
    text = GUIDE.read_text().split("```yaml\n")[1].split("```")[0]
    assert parse(text, Path("a.yaml"), {})[1] == []


def test_option_that_is_not_known_is_told_with_its_line() -> None:
    text = EXAMPLES[0].read_text().replace("optimizeEvery", "optimiseEvery")
    pipeline, _ = parse(text, EXAMPLES[0], {})
    assert pipeline is not None
    [problem] = check_options(pipeline)
    assert "optimiseEvery" in text.splitlines()[problem.place.line - 1]
    assert "did you mean optimizeEvery" in problem.message
