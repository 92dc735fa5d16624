"""An error of Spark's parser or analyser, told in one line with its place in the file."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from millstream.spark.pipeline.document import Place, Problem
from millstream.spark.pipeline.model import Text

if TYPE_CHECKING:
    from pyspark.errors import PySparkException

_POSITION = re.compile(r"\(line (\d+), pos (\d+)\)")
_TAIL = re.compile(r"\s*(?:SQLSTATE: \w+)?\s*[;(]?\s*(?:line \d+,? pos \d+\)?)?;?\s*$")
_CONDITION = re.compile(r"^\s*\[([A-Z_.]+)\]\s*")


def problem_of(error: PySparkException, text: Text, *, title: str, prefix: str = "") -> Problem:
    """Where in the file Spark found a fault with a text that was given to it behind a prefix."""
    index = _index(error, prefix + text.content)
    place = text.place if index is None else text.node.place_of(max(index - len(prefix), 0))
    return Problem(place, f"{title}: {said(error)}")


def problem_at(error: PySparkException, place: Place, *, title: str) -> Problem:
    return Problem(place, f"{title}: {said(error)}")


def said(error: PySparkException) -> str:
    """What a person needs of an error's message: not the plan and not the code."""
    message = str(error).strip()
    message = message.split("\n\n== SQL")[0]
    head = []
    for line in message.splitlines():
        if re.match(r"^\s*['~!+:]?[-\s]*['~!]?[A-Z]\w+ \[", line) or line.startswith(("+-", ":-")):
            break
        head.append(line.strip())
    text = _CONDITION.sub("", " ".join(head))
    return _TAIL.sub("", text).removesuffix("SQLSTATE").strip()


def _index(error: PySparkException, sql: str) -> int | None:
    """Where in the SQL it is, from 0."""
    contexts = _contexts(error)
    if contexts:
        return contexts[0]
    found = _POSITION.search(str(error))
    if found is None:
        return None
    line, column = int(found[1]) - 1, int(found[2])
    lines = sql.split("\n")
    if line >= len(lines):
        return None
    return sum(len(each) + 1 for each in lines[:line]) + column


def _contexts(error: PySparkException) -> list[int]:
    from pyspark.errors import QueryContextType

    try:
        contexts = error.getQueryContext()
    except (AttributeError, NotImplementedError):
        return []
    return [each.startIndex() for each in contexts if each.contextType() == QueryContextType.SQL]
