"""What Spark's analyser finds in a pipeline's file, and in which line: no broker, nothing runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.spark.pipeline import rows
from millstream.spark.pipeline.analysis import analyse
from millstream.spark.pipeline.declaration import described, parse
from millstream.spark.pipeline.model import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.system

GOOD = """\
name: shop
sources:
  - name: orders
    topic: orders
    format: json
    schema:
      id: bigint not null
      category: string
      price: double
      at: timestamp
      lines: array<struct<sku string, n int>>
    watermark: {column: at, delay: 10 minutes}
  - name: clicks
    topic: clicks
    format: json
    schema: id BIGINT, page STRING
  - name: lines
    topic: lines
    format: text
steps:
  - name: revenue
    sql: |
      SELECT window.start AS start, category,
             sum(price) AS revenue
      FROM orders
      GROUP BY window(at, '1 minute'), category
  - name: big
    sql: SELECT * FROM orders WHERE price > 100
  - name: shouted
    python: pipeline_functions:shout
    inputs: [lines]
sinks:
  - from: revenue
    topic: revenue
    key: category
  - from: big
    delta: big
    upsert_by: [id]
  - from: shouted
    console: true
"""
FUNCTIONS = """\
from pyspark.sql import functions as f

def shout(lines):
    return lines.select(f.upper("value").alias("value"))

def fail(lines):
    return lines.select("nothing")

def forget(lines):
    return None
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "pipeline_functions.py").write_text(FUNCTIONS)
    return tmp_path


def declared(text: str, home: Path) -> Pipeline:
    pipeline, problems = parse(text, home / "p.yaml", {})
    assert problems == []
    assert pipeline is not None
    return pipeline


def test_good_file_is_analysed_with_the_types_of_its_views(spark: SparkSession, home: Path) -> None:
    views = analyse(declared(GOOD, home), spark)
    assert views.problems == []
    kinds = {each.name: each.dataType.simpleString() for each in views.frames["revenue"].schema}
    assert kinds == {"start": "timestamp", "category": "string", "revenue": "double"}
    assert views.frames["lines"].columns == ["value", *rows.OWN_COLUMNS[:-1]]


BROKEN = """\
name: shop
sources:
  - name: orders
    topic: orders
    format: json
    schema:
      id: bigint not null
      category: string
      price: double
      at: timestamp
      lines: array<struct<sku string, n int>>
    watermark: {column: at, delay: 10 minutes}
  - name: wrong_type
    topic: a
    format: json
    schema:
      id: bigint
      price: array<doubl>
      _offset: int
  - name: wrong_ddl
    topic: a
    format: json
    schema: id BIGINT, page STRIN
  - name: late
    topic: a
    format: json
    schema: {at: timestamp, n: int}
    watermark: {column: att, delay: 1 minute}
  - name: later
    topic: a
    format: json
    schema: {at: timestamp, n: int}
    watermark: {column: n, delay: 1 minute}
  - name: lines
    topic: lines
    format: text
    options:
      maxOffsetPerTrigger: 10
steps:
  - name: no_column
    sql: |
      SELECT category,

             sum(prize) AS revenue
      FROM orders
      GROUP BY category
  - name: no_function
    sql: >
      SELECT category,
      sun(price) FROM orders
  - name: no_sum
    sql: SELECT id,
      sum(lines) FROM orders GROUP BY id
  - name: no_view
    sql: "SELECT * FROM orderz"
  - name: too_early
    sql: SELECT * FROM by_category
  - name: no_sql
    sql: |
      SELECT *
      FRM orders
  - name: command
    sql: DROP TABLE orders
  - name: follows
    sql: SELECT * FROM no_sql
  - name: by_category
    sql: SELECT category, count(*) AS n FROM orders GROUP BY category
  - name: constant
    sql: SELECT 1 AS id
  - name: fails
    python: pipeline_functions:fail
    inputs: [lines]
  - name: forgets
    python: pipeline_functions:forget
    inputs: [lines]
  - name: gone
    python: pipeline_functions:gone
    inputs: [lines]
  - name: nowhere
    python: no_such_module:shout
    inputs: [lines]
  - {name: itself, sql: SELECT * FROM itself}
  - {name: hen, sql: SELECT * FROM egg}
  - {name: egg, sql: SELECT * FROM hen}
sinks:
  - from: by_category
    topic: out
    key: categori
  - from: orders
    delta: big
    upsert_by: [ids]
    output: append
  - from: constant
    console: true
  - from: orders
    topic: out
    format: raw
"""
PROBLEMS = [
    "18:20: source 'wrong_type', schema: ",
    "19:7: source 'wrong_type', schema: '_offset' is a column of every record",
    "23:29: source 'wrong_ddl', schema: ",
    "28:25: source 'late', watermark: there is no column 'att'",
    "33:25: source 'later', watermark: column 'n' is a int: it must be a timestamp",
    "38:7: source 'lines': there is no option 'maxOffsetPerTrigger': did you mean maxOffsetsPer",
    "44:18: step 'no_column': A column, variable, or function parameter with name `prize`",
    "50:7: step 'no_function': Cannot resolve routine `sun`",
    "53:7: step 'no_sum': Cannot resolve",
    "55:25: step 'no_view': there is no view 'orderz': there are ",
    "57:24: step 'too_early': 'by_category' is made only in line 66: move it before this one",
    "61:11: step 'no_sql': Syntax error at or near 'orders'",
    "63:10: step 'command': Syntax error at or near 'DROP'",
    "71:13: step 'fails': pipeline_functions:fail failed: AnalysisException: A column",
    "74:13: step 'forgets': pipeline_functions:forget returned NoneType, not a DataFrame",
    "77:13: step 'gone': pipeline_functions:gone failed: AttributeError",
    "80:13: step 'nowhere': no_such_module:shout failed: ModuleNotFoundError",
    "82:39: step 'itself': it cannot be made of itself",
    "83:36: step 'hen': 'egg', in line 84, is made of it: one must do without",
    "86:5: sink 'by_category-topic': Invalid streaming output mode: append",
    "88:10: sink 'by_category-topic': there is no column 'categori': did you mean 'category'?",
    "91:17: sink 'orders-delta': there is no column 'ids'",
    "93:11: sink 'constant-console': view 'constant' reads no source",
    "95:11: sink 'orders-topic': a view that is written raw needs a column 'value'",
    "95:11: sink 'orders-topic': a view that is written raw cannot have a column 'id'",
]


def test_every_problem_is_told_with_its_line_and_none_twice(
    spark: SparkSession, home: Path
) -> None:
    path = home / "p.yaml"
    found = described(path, analyse(declared(BROKEN, home), spark).problems)
    shown = [each.removeprefix(f"{path}:") for each in found]
    shown = [each for each in shown if "cannot have a column" not in each or "'id'" in each]
    assert len(shown) == len(PROBLEMS), shown
    for each, expected in zip(shown, PROBLEMS, strict=True):
        assert each.startswith(expected), each
        assert "\n" not in each
        assert "SQLSTATE" not in each


NO_ROWS_FOR_THEIR_SINKS = """\
name: shop
sources:
  - name: orders
    topic: orders
    format: json
    schema: {id: bigint, at: timestamp, tags: "map<string, int>"}
steps:
  - {name: twice, sql: "SELECT id, at AS ID FROM orders"}
  - {name: spans, sql: "SELECT id, at - timestamp'2026-01-01' AS span FROM orders"}
  - {name: ids, sql: "SELECT id FROM orders"}
sinks:
  - {from: twice, topic: out}
  - {from: twice, delta: twice}
  - {from: twice, parquet: twice}
  - {from: twice, console: true}
  - {from: spans, delta: spans}
  - {from: ids, delta: ids, partition_by: id}
  - {from: ids, parquet: ids, partition_by: id}
  - {from: orders, parquet: orders, partition_by: [tags]}
  - {from: orders, parquet: good, partition_by: [id], name: good}
  - {from: orders, delta: good, partition_by: [id]}
"""


def test_rows_that_their_sink_does_not_take_are_told(spark: SparkSession, home: Path) -> None:
    path = home / "p.yaml"
    found = described(path, analyse(declared(NO_ROWS_FOR_THEIR_SINKS, home), spark).problems)
    expected = [
        "12:12: sink 'twice-topic': view 'twice' has more than one column 'id'",
        "13:12: sink 'twice-delta': view 'twice' has more than one column 'id'",
        "14:12: sink 'twice-parquet': view 'twice' has more than one column 'id'",
        "16:12: sink 'spans-delta': column 'span' is an interval, which Delta lacks",
        "17:43: sink 'ids-delta': option 'partitionBy' names every column",
        "18:45: sink 'ids-parquet': Cannot use all columns for partition columns",
        "19:52: sink 'orders-parquet': Cannot use",
    ]
    assert len(found) == len(expected), found
    for each, start in zip(found, expected, strict=True):
        assert each.removeprefix(f"{path}:").startswith(start), each


BAD_VALUES = {
    b'{"id": "x"}': "field 'id' is no bigint",
    b"nonsense": "the value is no JSON object",
    b"": "the value is no JSON object",
    b"null": "the value is no JSON object",
    b'[{"id": 1}]': "the value is no JSON object",
    b'{"id": 1': "the value is no JSON object",
    b'{"id": 1} and more': "something follows the JSON object",
    b'{"id": 1}{"id": 2}': "something follows the JSON object",
    b'{"id": 1},"x":2': "something follows the JSON object",
    b'{"id": 1}} x': "something follows the JSON object",
    b'{"id": 1},{"id": 2}': "something follows the JSON object",
    b'{"id": 1}],"x":[2': "something follows the JSON object",
    b'{"id": 1}]} x': "something follows the JSON object",
    b'{"category": "a"}': "field 'id' is missing or null",
    b'{"id": 1, "at": "yesterday"}': "field 'at' is no timestamp",
    b'{"id": 1, "lines": [{"n": "many"}]}': "the value does not fit the schema",
    b"\xff\xfe": "the value is not UTF-8",
    None: "the record has no value",
}


def test_every_record_is_a_row_or_a_dead_letter_with_its_reason(
    spark: SparkSession, home: Path
) -> None:
    from millstream.spark.pipeline.schemas import schema_of

    source = declared(GOOD, home).sources[0]
    schema = schema_of(source, [])
    good = [b'{"id": 1, "price": 2.5}', b' {"id": 2, "at": "2026-01-01T00:00:00Z", "new": []} ']
    values = [*good, *BAD_VALUES]
    kept = [{"key": "trace", "value": b"t"}, {"key": rows.REASON_HEADER, "value": b"old"}]
    records = [
        (b"k", value, "orders", 3, offset, None, kept) for offset, value in enumerate(values)
    ]
    kinds = ", ".join(f"{name} {kind}" for name, kind in rows.RAW_COLUMNS.items())
    raw = spark.createDataFrame(records, f"{kinds}, headers {rows.HEADERS}")
    assert [row.id for row in rows.good_rows(raw, source, schema).collect()] == [1, 2]
    letters = rows.bad_rows(raw, source, schema, "shop").collect()
    assert [None if row.value is None else bytes(row.value) for row in letters] == list(BAD_VALUES)
    for offset, row in enumerate(letters, start=len(good)):
        headers = [(each.key, bytes(each.value).decode()) for each in row.headers]
        reason = dict(headers)[rows.REASON_HEADER]
        expected = BAD_VALUES[None if row.value is None else bytes(row.value)]
        assert reason.startswith(expected), (row.value, reason)
        assert [each for each in headers if each[0] != rows.REASON_HEADER] == [
            ("trace", "t"),
            ("millstream-source-topic", "orders"),
            ("millstream-source-partition", "3"),
            ("millstream-source-offset", str(offset)),
            ("millstream-pipeline", "shop"),
        ]
