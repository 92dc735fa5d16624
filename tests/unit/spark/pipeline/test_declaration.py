"""What can be told of a pipeline's file without Spark, and in which line."""

from __future__ import annotations

from pathlib import Path

import pytest

from millstream.errors import InvalidPipeline
from millstream.spark.pipeline.declaration import described, parse, read
from millstream.spark.pipeline.document import Place, load
from millstream.spark.pipeline.model import Pipeline
from millstream.spark.pipeline.starter import starter

PATH = Path("shop.yaml")
GOOD = """\
name: shop
kafka:
  bootstrap.servers: ${BROKER:-127.0.0.1:9092}
sources:
  - name: orders
    topic: orders
    format: json
    schema:
      id: bigint not null
      category: string
      price: double
      at: timestamp
    watermark: {column: at, delay: 10 minutes}
  - name: clicks
    topic: [clicks, taps]
    headers: true
steps:
  - name: revenue
    sql: |
      SELECT window.start, category, sum(price) AS revenue
      FROM orders GROUP BY window(at, '1 minute'), category
  - name: sessions
    python: shop.sessions:sessionize
    inputs: [clicks]
sinks:
  - from: revenue
    topic: revenue
    key: category
  - name: table
    from: orders
    delta: lake/orders
    upsert_by: id
  - from: sessions
    parquet: s3://bucket/sessions
trigger:
  interval: 1.5 s
spark:
  spark.sql.shuffle.partitions: 2
checkpoint: state
"""


def pipeline(text: str, variables: dict[str, str] | None = None) -> Pipeline:
    found, problems = parse(text, PATH, variables or {})
    assert described(PATH, problems) == []
    assert found is not None
    return found


def problems(text: str) -> list[str]:
    """As `line:column: message`."""
    found = described(PATH, parse(text, PATH, {})[1])
    return [each.removeprefix("shop.yaml:") for each in found]


def test_whole_file_is_read() -> None:
    shop = pipeline(GOOD)
    orders, clicks = shop.sources
    revenue, table, archive = shop.sinks
    assert (shop.name, shop.interval_ms, shop.kafka) == (
        "shop",
        1500,
        {"bootstrap.servers": "127.0.0.1:9092"},
    )
    assert shop.spark == {"spark.sql.shuffle.partitions": "2"}
    assert orders.watermark is not None
    assert orders.watermark.delay_ms == 600_000
    assert (clicks.topics, clicks.headers, clicks.can_fail) == (("clicks", "taps"), True, False)
    assert [sink.name for sink in shop.sinks] == ["revenue-topic", "table", "sessions-parquet"]
    assert (revenue.output, table.output) == ("append", "append")
    assert archive.target == "s3://bucket/sessions"
    assert shop.dead_letter_topic == "shop.dead-letters"


def test_paths_are_taken_from_where_the_file_is(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(GOOD)
    shop = read(file, {})
    assert shop.sinks[1].target == str(tmp_path / "lake/orders")
    assert shop.query_checkpoint("table", 3) == f"{tmp_path}/state/g3/table"


def test_query_reads_only_the_views_that_it_needs() -> None:
    shop = pipeline(GOOD)
    assert shop.needed("revenue") == {"revenue", "orders"}
    assert shop.needed("Sessions") == {"sessions", "clicks"}


def test_variable_of_the_environment_is_put_in() -> None:
    assert pipeline(GOOD, {"BROKER": "b:1"}).kafka == {"bootstrap.servers": "b:1"}


def test_file_that_names_no_broker_means_the_one_that_all_commands_mean() -> None:
    text = GOOD.replace("  bootstrap.servers: ${BROKER:-127.0.0.1:9092}", "  client.id: shop")
    assert pipeline(text).kafka["bootstrap.servers"] == "127.0.0.1:9092"
    variables = {"MILLSTREAM_BOOTSTRAP": "b:1"}
    assert pipeline(text, variables).kafka["bootstrap.servers"] == "b:1"
    begun = pipeline(starter(name="shop", topic="orders", file="shop.yaml"), variables)
    assert begun.kafka["bootstrap.servers"] == "b:1"


def test_reset_pipeline_is_another_to_its_sinks_and_to_spark() -> None:
    shop = pipeline(GOOD)
    assert shop.stable_name("table", 1) == "shop.table"
    assert shop.stable_name("table", 2) == "shop.table.g2"
    assert shop.query_checkpoint("table", 1) != shop.query_checkpoint("table", 2)


WRONG = [
    (
        "format: json",
        "format: json\n    parse_options: {Mode: FAILFAST}",
        "8:21: source 'orders': parse option 'Mode' is the pipeline's own: bad rows are dead",
    ),
    (
        "format: json",
        "format: xml",
        "7:13: source 'orders': format 'xml' is none of raw, text, json",
    ),
    ("sources:", "sorces:", "4:1: pipeline: there is no field 'sorces': did you mean 'sources'?"),
    ("    topic: orders\n", "", "5:5: source 'orders': give it either a 'topic' or a 'pattern'"),
    ("delay: 10 minutes", "delay: soon", "13:36: source 'orders', watermark: delay 'soon'"),
    ("name: clicks", "name: Orders", "14:11: pipeline: the name 'Orders' is taken"),
    ("name: clicks", "name: my clicks", "14:11: source 'my clicks': name 'my clicks': it is a v"),
    ("from: revenue", "from: revenues", "26:11: sink number 1: there is no view 'revenues' here"),
    ("inputs: [clicks]", "inputs: [click]", "24:14: pipeline: step 'sessions': there is no view"),
    ("shop.sessions:sessionize", "sessionize", "23:13: step 'sessions': python 'sessionize'"),
    ("upsert_by: id", "key: id", "32:5: sink 'table': there is no field 'key'"),
    ("interval: 1.5 s", "interval: 10 ms", "36:3: pipeline, trigger: it must be at least 100"),
    ("${BROKER:-127.0.0.1:9092}", "${BROKER}", "3:22: pipeline, kafka: the variable BROKER is not"),
    ("name: shop", "name: a shop", "1:7: pipeline: name 'a shop': use only"),
    ("checkpoint: state", "name: twice", "39:1: 'name' is here twice: it is in line 1 too"),
    ("topic: orders", "topic: __catalog", "6:12: source 'orders': topic '__catalog' is the broker"),
    ("    delta: lake/orders\n", "", "29:5: sink 'table': it must have one place for its rows"),
    ("    sql: |", "    sql: ''\n    x: |", "19:10: step 'revenue': 'sql' must be a text"),
    ("name: table", "name: revenue-topic", "29:11: pipeline: two sinks are called 'revenue-topic'"),
    ("headers: true", "headers: 3", "16:14: source 'clicks': 'headers' must be true or false"),
    (
        "delta: lake/orders\n    upsert_by: id",
        "parquet: s3://bucket/sessions",
        "32:5: pipeline: sink 'sessions-parquet' writes to the folder of the sink in line 29",
    ),
    ("topic: revenue", "topic: orders", "26:5: pipeline: sink 'revenue-topic' writes to topic"),
    ("topic: orders", "pattern: rev.*", "26:5: pipeline: sink 'revenue-topic' writes to topic"),
    ("trigger:\n  interval: 1.5 s", "trigger: 5 s", "35:10: pipeline: trigger '5 s': write `once`"),
    (
        "trigger:",
        "dead_letters: orders\ntrigger:",
        "5:11: pipeline: source 'orders' reads 'orders'",
    ),
]


def test_topic_that_another_view_is_made_of_may_be_written() -> None:
    pipeline(GOOD.replace("topic: revenue", "topic: taps"))


def test_rows_that_come_back_by_another_sink_are_told_once() -> None:
    text = """\
name: round
sources:
  - {name: a, topic: a}
  - {name: b, topic: b}
  - {name: c, topic: c}
sinks:
  - {from: a, topic: b, format: raw}
  - {from: b, topic: c, format: raw}
  - {from: c, topic: a, format: raw}
"""
    [told] = problems(text)
    assert told.startswith("7:5: pipeline: sink 'a-topic' writes to topic 'b', which comes back")
    assert "by sink 'b-topic' and 'c-topic'" in told
    assert problems(text.replace("topic: a, format", "topic: d, format")) == []


@pytest.mark.parametrize(("before", "after", "expected"), WRONG)
def test_problem_is_told_with_its_line(before: str, after: str, expected: str) -> None:
    assert GOOD.count(before) >= 1
    found = problems(GOOD.replace(before, after, 1))
    assert any(each.startswith(expected) for each in found), found


def test_all_problems_are_told_at_once_in_the_order_of_the_file() -> None:
    text = GOOD.replace("format: json", "format: jsn").replace("upsert_by", "upsrt_by")
    lines = [int(each.split(":")[0]) for each in problems(text)]
    assert lines == sorted(lines)
    assert {7, 32} <= set(lines)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "1:1: the file is empty"),
        ("- a\n", "1:1: a pipeline is a mapping"),
        ("name: [a\n", "2:1: this is no YAML"),
        ("a: &x [*x]\n", "1:4: an anchor that holds itself"),
        ("name: shop\n", "1:1: pipeline: 'sources' is missing"),
    ],
)
def test_file_that_is_no_pipeline_is_told(text: str, expected: str) -> None:
    assert any(each.startswith(expected) for each in problems(text)), problems(text)


def test_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidPipeline, match="No such file"):
        read(tmp_path / "none.yaml")


@pytest.mark.parametrize(
    "text",
    [
        "sql: |\n  SELECT a,\n         HERE\n  FROM b\n",
        "sql: |-\n\n    SELECT a,\n    HERE FROM b\n",
        "sql: >\n  SELECT a,\n  HERE FROM b\n",
        "sql: SELECT a,\n  HERE FROM b\n",
        "sql: 'SELECT a, HERE FROM b'\n",
        'sql: "SELECT a,\n  HERE FROM b"\n',
    ],
    ids=["literal", "literal with an empty line", "folded", "plain", "single quotes", "double"],
)
def test_place_of_a_character_is_where_an_editor_shows_it(text: str) -> None:
    root, _ = load(text)
    assert root is not None
    sql = root.content["sql"]
    lines = text.splitlines()
    line = next(number for number, each in enumerate(lines) if "HERE" in each)
    expected = Place(line + 1, lines[line].index("HERE") + 1)
    assert sql.place_of(sql.content.index("HERE")) == expected
