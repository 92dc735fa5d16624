"""What is told can be read back, whatever names clients have chosen."""

from __future__ import annotations

import re

from prometheus_client.parser import text_string_to_metric_families

from millstream.telemetry import catalogue as known
from millstream.telemetry.catalogue import CATALOGUE
from millstream.telemetry.exposition import exposition
from millstream.telemetry.histogram import Histogram
from millstream.telemetry.line_protocol import line_protocol
from millstream.telemetry.metric import Kind, Reading

NAMES = ("plain", 'a "quoted" one', "back\\slash\\", "two\nlines", "a, b = c", "Grüße 🌊", "")


def reading_of_names() -> Reading:
    reading = Reading()
    for number, name in enumerate(NAMES):
        reading.add(known.LAG, number, name, "orders", "0")
    times = Histogram()
    times.observe(2_000_000, 3)
    reading.add_histogram(known.FLUSH, times)
    reading.add(known.PROCESS_CPU, 1.5)
    return reading


def test_prometheus_reads_every_name_and_value_back() -> None:
    text = "".join(exposition(reading_of_names(), CATALOGUE))
    families = {each.name: each for each in text_string_to_metric_families(text)}
    lag = families["millstream_group_lag"]
    assert (lag.type, lag.documentation) == ("gauge", known.LAG.doc)
    assert [(each.labels["group"], each.value) for each in lag.samples] == [
        (name, number) for number, name in enumerate(NAMES)
    ]
    assert families["process_cpu_seconds"].samples[0].value == 1.5
    flush = {
        (e.name, e.labels.get("le")): e.value
        for e in families["millstream_log_flush_seconds"].samples
    }
    assert flush["millstream_log_flush_seconds_sum", None] == 0.006
    assert flush["millstream_log_flush_seconds_count", None] == 3
    assert flush["millstream_log_flush_seconds_bucket", "0.001"] == 0
    assert flush["millstream_log_flush_seconds_bucket", "0.0025"] == 3
    assert flush["millstream_log_flush_seconds_bucket", "+Inf"] == 3


def test_lines_for_influxdb_have_one_value_each() -> None:
    lines = "".join(line_protocol(reading_of_names(), CATALOGUE, timestamp_ms=7)).splitlines()
    assert len(lines) == len(NAMES) + 2
    found = {}
    for line in lines:
        # Split as the format says: at spaces and commas that have no backslash before them.
        key, fields, timestamp = re.split(r"(?<!\\) ", line)
        measure, *tags = re.split(r"(?<!\\),", key)
        assert timestamp == "7000000"
        named = dict(re.split(r"(?<!\\)=", tag, maxsplit=1) for tag in tags)
        group = re.sub(r"\\([,= ])", r"\1", named.get("group", ""))
        found[measure, group] = dict(each.split("=") for each in fields.split(","))
    for number, name in enumerate(NAMES):
        told = name.replace("\n", " ").rstrip("\\")
        assert found["millstream_group_lag", told] == {"value": f"{number}i"}
    assert found["process_cpu_seconds_total", ""] == {"value": "1.5"}
    flush = found["millstream_log_flush_seconds", ""]
    assert (flush["count"], flush["sum"], flush["0.001"], flush["0.0025"]) == (
        *("3i", "0.006"),
        *("0i", "3i"),
    )


def test_name_of_backslashes_is_no_empty_tag_for_influxdb() -> None:
    reading = Reading()
    reading.add(known.LAG, 1, "\\\\", "orders", "0")
    [line] = line_protocol(reading, CATALOGUE, timestamp_ms=7)
    assert line == "millstream_group_lag,topic=orders,partition=0 value=1i 7000000\n"


def test_number_that_influxdb_has_no_integer_for_is_told_as_another() -> None:
    reading = Reading()
    for number in (2**63 - 1, 2**63):
        reading.add(known.PIPELINE_LAG, number, "etl")
    [lines] = line_protocol(reading, CATALOGUE, timestamp_ms=7)
    assert [line.split()[1] for line in lines.splitlines()] == [
        "value=9223372036854775807i",
        "value=9223372036854775808",
    ]


def test_names_say_what_kind_of_metric_it_is() -> None:
    assert len({metric.name for metric in CATALOGUE}) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.startswith(("millstream_", "process_"))
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)
        assert metric.doc.endswith(".")
