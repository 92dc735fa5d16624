"""The loader reads a file, puts flags over it and refuses what it does not know."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import pytest

from millstream.errors import InvalidSetting
from millstream.settings import LogSettings, StorageSettings
from millstream.settings.loader import SECTIONS, Settings, load


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "broker.toml"


def refusal(config: Path, text: str) -> str:
    config.write_text(dedent(text))
    with pytest.raises(InvalidSetting) as caught:
        load(str(config))
    return str(caught.value).replace(str(config), "broker.toml")


def test_no_file_gives_the_defaults() -> None:
    assert load() == Settings(storage=StorageSettings(), log=LogSettings())


def test_sections_are_the_parts_of_the_settings() -> None:
    assert {*SECTIONS, "origins"} == set(Settings.__slots__)


@pytest.mark.parametrize(
    "text",
    [
        '[log]\n"segment.bytes" = 1024\n"segment.ms" = 5\n',
        "[log]\nsegment.bytes = 1024\nsegment.ms = 5\n",
        "[log.segment]\nbytes = 1024\nms = 5\n",
        "log.segment.bytes = 1024\nlog.segment.ms = 5\n",
        'log = { "segment.bytes" = 1024, segment = { ms = 5 } }\n',
        '[log]\nsegment.bytes = "1024"\nsegment.ms = "5"\n',
    ],
)
def test_key_may_be_written_in_every_way_that_toml_has(config: Path, text: str) -> None:
    config.write_text(text)
    assert load(str(config)).log == LogSettings(segment_bytes=1024, segment_ms=5)


def test_every_section_is_read(config: Path) -> None:
    config.write_text(
        dedent("""
            [storage]
            data.dir = "elsewhere"

            [log]
            cleanup.policy = "compact,delete"
            min.cleanable.dirty.ratio = 1
        """)
    )
    settings = load(str(config))
    assert settings.storage.data_dir == "elsewhere"
    assert settings.log.cleanup_policy == {"compact", "delete"}
    assert settings.log.min_cleanable_dirty_ratio == 1.0


def test_flag_overrides_the_file(config: Path) -> None:
    config.write_text('[storage]\n"data.dir" = "of file"\n')
    assert load(str(config), flags={"data.dir": "of flag"}).storage.data_dir == "of flag"


def test_bad_flag_is_refused() -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(flags={"data.dir": ""})
    assert str(caught.value) == "command line: data.dir = '': expected a directory"


@pytest.mark.parametrize("key", ['"segment.bytes"', "segment.bytes", "segment . 'bytes'"])
def test_value_out_of_range_is_named_with_its_line(config: Path, key: str) -> None:
    message = refusal(config, f"# segment.bytes = 1\n[storage]\n\n[log]\n{key} = 0\n")
    assert message == (
        "broker.toml:5: segment.bytes = 0: expected a whole number from 1 to 2147483647"
    )


def test_line_is_that_of_the_right_section(config: Path) -> None:
    message = refusal(config, "[storage]\n\n[log.retention]\nbytes = 'all'\n")
    assert message.startswith("broker.toml:4: retention.bytes = 'all'")


def test_line_of_an_inline_table_is_that_of_the_table(config: Path) -> None:
    message = refusal(config, "\nlog = { segment = { bytes = 0 } }\n")
    assert message.startswith("broker.toml:2: segment.bytes = 0")


def test_line_of_an_inline_table_in_a_section_is_that_of_the_table(config: Path) -> None:
    message = refusal(config, "[log]\nretention.ms = 1\nsegment = { bytes = 0 }\n")
    assert message.startswith("broker.toml:3: segment.bytes = 0")


@pytest.mark.parametrize("text", ["[log]\nretention.ms = {}\n", "[log]\n[log.retention.ms]\n"])
def test_empty_table_is_no_value(config: Path, text: str) -> None:
    assert refusal(config, text).startswith("broker.toml:2: retention.ms = {}: expected a whole")


def test_typo_gets_a_suggestion(config: Path) -> None:
    assert refusal(config, "[log]\nsegment.byte = 1024\n") == (
        "broker.toml:2: segment.byte = 1024: expected the name of a setting in [log]; "
        "did you mean segment.bytes?"
    )


def test_setting_in_the_wrong_section_is_sent_to_the_right_one(config: Path) -> None:
    message = refusal(config, '[log]\ndata.dir = "x"\n')
    assert message.endswith(
        "expected the name of a setting in [log]; this one belongs in [storage]"
    )


def test_name_like_no_other_gets_no_suggestion(config: Path) -> None:
    message = refusal(config, "[log]\ncolour = 'red'\n")
    assert message == "broker.toml:2: colour = 'red': expected the name of a setting in [log]"


SECTION_NAMES = (
    "[storage], [log], [topics], [groups], [transactions], [subscriptions], [memory], [kafka], "
    "[http], [pylogstreams], [telemetry]"
)


def test_unknown_section_is_refused(config: Path) -> None:
    assert refusal(config, "[logs]\nsegment.bytes = 1024\n") == (
        f"broker.toml:2: logs.segment.bytes = 1024: expected a setting in one of {SECTION_NAMES}"
    )


def test_entry_outside_of_a_section_is_refused(config: Path) -> None:
    message = refusal(config, "verbose = true\n")
    assert message == (
        f"broker.toml:1: verbose = True: expected a setting in one of {SECTION_NAMES}"
    )


def test_empty_unknown_section_is_refused(config: Path) -> None:
    message = refusal(config, "[logs]\n")
    assert message.startswith("broker.toml:1: logs")


def test_setting_given_twice_is_refused(config: Path) -> None:
    message = refusal(config, '[log]\nsegment.bytes = 1\n"segment.bytes" = 2\n')
    assert message.endswith("segment.bytes = 2: expected to be set only once")


def test_broken_toml_is_refused_with_its_line(config: Path) -> None:
    message = refusal(config, "[log]\nsegment.bytes 1024\n")
    assert message.startswith("--config = 'broker.toml': expected TOML (")
    assert "line 2" in message


def test_absent_file_is_refused(config: Path) -> None:
    with pytest.raises(InvalidSetting, match="a file that can be read"):
        load(str(config))


def test_file_that_is_no_text_is_refused(config: Path) -> None:
    config.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidSetting, match="not UTF-8"):
        load(str(config))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[log]\nsegment.bytes = " + "9" * 5000, "TOML"),
        ("log = " + "[" * 5000, "TOML"),
        ("[log]\nmin.cleanable.dirty.ratio = " + "9" * 400, "a number from 0 to 1"),
    ],
)
def test_value_beyond_all_bounds_is_refused(config: Path, text: str, expected: str) -> None:
    assert f"expected {expected}" in refusal(config, text)


def test_mark_that_an_editor_puts_before_the_text_is_let_be(config: Path) -> None:
    config.write_text("[log]\r\nsegment.bytes = 1024\r\n", encoding="utf-8-sig")
    assert load(str(config)).log == LogSettings(segment_bytes=1024)
