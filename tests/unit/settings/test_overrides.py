"""Settings that a topic sets for itself, as text; and what a topic may be called."""

from __future__ import annotations

import pytest

from millstream.errors import InvalidName, InvalidSetting
from millstream.settings.domain import Only
from millstream.settings.log import LogSettings
from millstream.settings.names import check_topic_name, is_internal_topic, is_topic_name
from millstream.settings.overrides import (
    TOPIC_SETTINGS,
    effective,
    parse_override,
    setting_texts,
    text_of,
)


def test_overrides_lie_over_the_defaults() -> None:
    defaults = LogSettings(flush_ms=7, segment_ms=9)
    own = {"flush.ms": "8", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.1"}
    settings = effective(defaults, own)
    assert (settings.flush_ms, settings.segment_ms) == (8, 9)
    assert settings.cleanup_policy == {"compact", "delete"}
    assert settings.min_cleanable_dirty_ratio == 0.1
    assert effective(defaults, {}) is defaults


def test_text_of_every_setting_reads_as_the_setting() -> None:
    settings = LogSettings(
        cleanup_policy=frozenset({"compact", "delete"}), message_timestamp_type="LogAppendTime"
    )
    texts = setting_texts(settings)
    assert set(texts) == set(TOPIC_SETTINGS)
    assert effective(LogSettings(), texts) == settings


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "true"), (7, "7"), (0.5, "0.5"), ("x", "x"), (frozenset({"b", "a"}), "a,b")],
)
def test_value_is_written_as_a_person_would(value: object, text: str) -> None:
    assert text_of(value) == text


@pytest.mark.parametrize(
    ("name", "raw"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "5.5"),
        ("retention.ms", ""),
        ("cleanup.policy", ""),
        ("message.timestamp.type", "create"),
        ("compression.type", "brotli"),
        ("unclean.leader.election.enable", "true"),
        ("min.insync.replicas", "2"),
        ("data.dir", "/"),
    ],
)
def test_override_that_makes_no_sense_is_refused(name: str, raw: str) -> None:
    with pytest.raises(InvalidSetting):
        parse_override(name, raw)
    with pytest.raises(InvalidSetting):
        effective(LogSettings(), {name: raw})


def test_only_value_is_known_by_its_text_and_its_type() -> None:
    assert Only(1).convert("1") == 1
    assert Only(value=False).convert("false") is False
    assert Only(1).contains(1)
    assert not Only(1).contains(value=True)
    assert not Only(value=False).contains(0)
    assert not Only("a").contains(Only("a").convert("b"))
    assert Only(value=False).expected == "false, which is all there is"


@pytest.mark.parametrize("name", ["a", "a" * 249, "__a", "A.b-c_9", "..."])
def test_name_of_a_topic(name: str) -> None:
    check_topic_name(name)
    assert is_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0", "a" * 250, "a b", "ä", "a\n"])
def test_name_that_no_topic_can_have(name: str) -> None:
    assert not is_topic_name(name)
    with pytest.raises(InvalidName):
        check_topic_name(name)


def test_names_of_the_brokers_own_topics_begin_with_two_underscores() -> None:
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("_schemas")
