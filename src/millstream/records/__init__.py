"""The one record format: Kafka's record batch, magic 2."""

from __future__ import annotations

from millstream.records.batch import (
    BatchHeader,
    assign_offset,
    parse_header,
    stamp_append_time,
    validate,
    validate_produced,
)
from millstream.records.batch_builder import build, rebuild
from millstream.records.batch_reader import body_of, records_of
from millstream.records.checksum import crc32c
from millstream.records.compression import Codec, compress, decompress
from millstream.records.control import ControlMarker, ControlType, build_control, parse_control
from millstream.records.record import Record

__all__ = [
    "BatchHeader",
    "Codec",
    "ControlMarker",
    "ControlType",
    "Record",
    "assign_offset",
    "body_of",
    "build",
    "build_control",
    "compress",
    "crc32c",
    "decompress",
    "parse_control",
    "parse_header",
    "rebuild",
    "records_of",
    "stamp_append_time",
    "validate",
    "validate_produced",
]
