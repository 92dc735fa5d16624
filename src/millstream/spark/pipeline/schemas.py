"""The declared schema of a source as Spark's, with the line of what is wrong in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.spark.pipeline.analysis_error import problem_of
from millstream.spark.pipeline.document import Problem
from millstream.spark.pipeline.model import Source, Text
from millstream.spark.pipeline.rows import OWN_COLUMNS

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def schema_of(source: Source, problems: list[Problem]) -> StructType | None:
    """The fields of a JSON source. None if there is none, or if something is wrong with it."""
    if source.schema is None:
        return None
    before = len(problems)
    if isinstance(source.schema, Text):
        schema = _parsed(source, source.schema, problems)
    else:
        schema = _gathered(source, source.schema, problems)
    if schema is not None:
        _check_names(source, schema, problems)
    return schema if len(problems) == before else None


def _gathered(
    source: Source, fields: tuple[tuple[Text, Text], ...], problems: list[Problem]
) -> StructType:
    from pyspark.sql.types import StructType

    schema = StructType()
    for name, kind in fields:
        quoted = str(name).replace("`", "``")
        one = _parsed(source, kind, problems, prefix=f"`{quoted}` ")
        if one is not None:
            for each in one.fields:
                schema.add(each)
    return schema


def _parsed(
    source: Source, text: Text, problems: list[Problem], prefix: str = ""
) -> StructType | None:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    try:
        schema = StructType.fromDDL(prefix + text.content)
    except PySparkException as error:
        title = f"source {str(source.name)!r}, schema"
        problems.append(problem_of(error, text, title=title, prefix=prefix))
        return None
    assert isinstance(schema, StructType)
    return schema


def _check_names(source: Source, schema: StructType, problems: list[Problem]) -> None:
    title = f"source {str(source.name)!r}, schema"
    place = source.name.place
    if isinstance(source.schema, Text):
        place = source.schema.place
    places = {}
    if isinstance(source.schema, tuple):
        places = {str(name): name.place for name, _ in source.schema}
    seen: set[str] = set()
    if not schema.fields:
        problems.append(Problem(place, f"{title}: it has no fields"))
    for name in schema.fieldNames():
        at = places.get(name, place)
        if name.lower() in OWN_COLUMNS:
            problems.append(Problem(at, f"{title}: {name!r} is a column of every record: rename"))
        if name.lower() in seen:
            problems.append(Problem(at, f"{title}: field {name!r} is there twice"))
        seen.add(name.lower())
