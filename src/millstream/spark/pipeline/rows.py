"""Records of topics as rows of views, and those of them that no row can be made of.

Invariant: every record is either a row or a dead letter, and never both.
A JSON value is parsed as the first of two elements of an array of our own, because Spark takes
`{"id": 1} and more` for a good value. The second has a name that no value can know: whatever
follows the object then breaks the array, changes its length or hides its second element.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from millstream.identity import new_id
from millstream.spark.pipeline.model import Source

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

RAW_COLUMNS = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}
HEADERS = "array<struct<key: string, value: binary>>"
OWN_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""What a row of text or JSON tells of the record that it was."""

REASON_HEADER = "millstream-reason"
_PREFIX = "millstream-source-"
PIPELINE_HEADER = "millstream-pipeline"
_PARSED, _DAMAGED = "__parsed", "damaged"
_END = new_id().hex()[:12]
PARSER_OPTIONS = ("mode", "columnnameofcorruptrecord")
"""In lower case: options of Spark's parser that would hide what does not parse."""


def columns(source: Source) -> str:
    """What is asked of the reader: what is not read costs nothing."""
    return ",".join([*RAW_COLUMNS, *(["headers"] if source.headers else [])])


def empty_stream(session: SparkSession, source: Source) -> DataFrame:
    """A stream of the reader's columns that no broker is asked for, to analyse queries with."""
    from pyspark.sql import functions as f

    kinds = dict(RAW_COLUMNS)
    if source.headers:
        kinds["headers"] = HEADERS
    nothing = session.readStream.format("rate").load()
    return nothing.select(*(f.lit(None).cast(kind).alias(name) for name, kind in kinds.items()))


def good_rows(raw: DataFrame, source: Source, schema: StructType | None) -> DataFrame:
    """The rows of a source's view, but for its watermark."""
    from pyspark.sql import functions as f

    if source.format == "raw":
        return raw
    parsed = _parsed(raw, source, schema)
    good = parsed.where(~_is_bad(schema))
    own = [
        f.col("key").cast("string").alias("_key"),
        *(f.col(name[1:]).alias(name) for name in OWN_COLUMNS[1:-1]),
        *([f.col("headers").alias("_headers")] if source.headers else []),
    ]
    if schema is None:
        return good.select(f.col("value").cast("string").alias("value"), *own)
    inner = f.col(_PARSED)[_END][0]
    return good.select(*(inner[each.name].alias(each.name) for each in schema.fields), *own)


def bad_rows(raw: DataFrame, source: Source, schema: StructType | None, pipeline: str) -> DataFrame:
    """Dead letters, as the sink takes them: the record as it was, with where from and why."""
    from pyspark.sql import functions as f

    bad = _parsed(raw, source, schema).where(_is_bad(schema))
    own = {
        REASON_HEADER: _reason(schema),
        f"{_PREFIX}topic": f.col("topic"),
        f"{_PREFIX}partition": f.col("partition").cast("string"),
        f"{_PREFIX}offset": f.col("offset").cast("string"),
        PIPELINE_HEADER: f.lit(pipeline),
    }
    headers = f.array(
        *(
            f.struct(f.lit(name).alias("key"), f.encode(text, "UTF-8").alias("value"))
            for name, text in own.items()
        )
    )
    # One that was a dead letter before tells of its last death.
    kept = f.filter(
        f.coalesce(f.col("headers"), f.array().cast(HEADERS)),
        lambda header: ~header["key"].isin(*own),
    )
    return bad.select("key", "value", f.concat(kept, headers).cast(HEADERS).alias("headers"))


def _parsed(raw: DataFrame, source: Source, schema: StructType | None) -> DataFrame:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BooleanType, StructField, StructType

    if schema is None:
        return raw
    element = StructType([*schema.fields, StructField(_END, BooleanType())])
    whole = StructType().add(_END, ArrayType(element)).add(_DAMAGED, "string")
    options = {**source.parse_options, "columnNameOfCorruptRecord": _DAMAGED}
    head, tail = f'{{"{_END}":[', f'\n,{{"{_END}":true}}]}}'
    wrapped = f.concat(f.lit(head), f.col("value").cast("string"), f.lit(tail))
    # Spark copies what a projection makes into the filters above it, and would parse again for
    # each of them. It does not look into a generator.
    once = f.explode(f.array(f.from_json(wrapped, whole, options)))
    return raw.select("*", once.alias(_PARSED))


def _is_bad(schema: StructType | None) -> Column:
    from pyspark.sql import functions as f

    signs = [f.col("value").isNull(), ~f.is_valid_utf8(f.col("value").cast("string"))]
    if schema is not None:
        elements = f.col(_PARSED)[_END]
        signs += [f.col(_PARSED)[_DAMAGED].isNotNull(), elements[0].isNull(), ~_is_alone()]
        signs += [elements[0][name].isNull() for name in _required(schema)]
    return reduce(lambda left, right: left | f.coalesce(right, f.expr("true")), signs)


def _is_alone() -> Column:
    """Whether nothing but white space follows the object."""
    from pyspark.sql import functions as f

    elements = f.col(_PARSED)[_END]
    return (f.size(elements) == 2) & elements[1][_END].isNotNull()


def _reason(schema: StructType | None) -> Column:
    from pyspark.sql import functions as f

    value = f.col("value").cast("string")
    reason = f.when(f.col("value").isNull(), "the record has no value").when(
        ~f.is_valid_utf8(value), "the value is not UTF-8"
    )
    if schema is None:
        return reason.otherwise("the value is no text")
    inner = f.col(_PARSED)[_END][0]
    reason = reason.when(f.json_object_keys(value).isNull(), "the value is no JSON object")
    is_whole = f.coalesce(inner.isNotNull() & _is_alone(), f.expr("false"))
    reason = reason.when(~is_whole, "something follows the JSON object")
    for each in schema.fields:
        quoted = each.name.replace("'", "\\'")
        is_there = f.get_json_object(value, f"$['{quoted}']").isNotNull()
        kind = each.dataType.simpleString()
        reason = reason.when(
            inner[each.name].isNull() & is_there, f"field {each.name!r} is no {kind}"
        )
    for name in _required(schema):
        reason = reason.when(inner[name].isNull(), f"field {name!r} is missing or null")
    return reason.otherwise("the value does not fit the schema")


def _required(schema: StructType) -> list[str]:
    return [each.name for each in schema.fields if not each.nullable]
