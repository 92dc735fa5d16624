"""Names by which clients change settings of the broker."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidSetting
from millstream.settings.dynamic import overlaid, place_of
from millstream.settings.sections import Settings


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("retention.ms", "log.retention.ms"),
        ("log.retention.ms", "log.retention.ms"),
        ("message.max.bytes", "log.max.message.bytes"),
        ("log.cleaner.dedupe.buffer.size", "storage.log.cleaner.dedupe.buffer.size"),
        ("max.connections", "kafka.max.connections"),
    ],
)
def test_setting_is_found_by_our_name_and_by_that_of_kafka(name: str, key: str) -> None:
    assert place_of(name).key == key


@pytest.mark.parametrize("name", ["log.num.partitions", "num.partition", ""])
def test_name_that_nothing_has_is_refused(name: str) -> None:
    with pytest.raises(InvalidSetting):
        place_of(name)


def test_value_of_a_client_holds_over_what_was_read() -> None:
    settings = overlaid(Settings(), {"log.retention.ms": "5"})
    assert settings.log.retention_ms == 5
    assert settings.origins["log.retention.ms"].startswith("a client")
    assert overlaid(Settings(), {}) == Settings()
