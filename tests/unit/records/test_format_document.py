"""The document that specifies the format, held against the code."""

from __future__ import annotations

import re
from pathlib import Path

from millstream.records import Record, records_of, validate_produced
from millstream.records.batch import HEADER, BatchHeader

DOCUMENT = Path(__file__).parents[3] / "docs" / "formats" / "record_batch.md"


def test_example_is_the_batch_it_says() -> None:
    lines = DOCUMENT.read_text().split("## Example")[1].split("```")[1].strip().splitlines()
    # What stands before two or more spaces is data; the rest says what it means.
    batch = bytes.fromhex("".join(re.split(r"\s{2,}", line)[0] for line in lines))
    header = validate_produced(batch)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 2, 0)
    assert list(records_of(batch, limit_bytes=100)) == [
        Record(100, 1_000, b"k", b"hello"),
        Record(101, 1_005, None, None, (("h", b"x"),)),
    ]


def test_field_table_has_the_fields_and_sizes_of_the_header() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) \| ([a-z ]+) \|", DOCUMENT.read_text(), re.MULTILINE)
    names = [name.replace(" ", "_") for _, _, name in rows]
    assert names == [
        field.removesuffix("_ms").replace("crc", "checksum") for field in BatchHeader._fields
    ]
    position = 0
    for at, size_bytes, _ in rows:
        assert int(at) == position
        position += int(size_bytes)
    assert position == HEADER.size
