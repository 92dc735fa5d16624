"""Settings come from a file, the environment and the command line, and it is known from which."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from millstream.errors import InvalidSetting, InvalidSettings
from millstream.settings.declaration import declarations
from millstream.settings.loader import load
from millstream.settings.overrides import text_of
from millstream.settings.reference import reference_file, reference_page
from millstream.settings.sections import PLACES, SECTIONS

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "settings.md"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text("[log]\nsegment.bytes = 1\nsegment.ms = 1\nretention.ms = 1\n")
    return path


def test_later_origin_wins_and_is_told(config: Path) -> None:
    settings = load(
        str(config),
        environment={"MILLSTREAM_LOG_SEGMENT_MS": "2", "MILLSTREAM_LOG_RETENTION_MS": "2"},
        flags={"data.dir": "here"},
        assignments=["log.retention.ms=3"],
    )
    assert (settings.log.segment_bytes, settings.log.segment_ms) == (1, 2)
    assert settings.log.retention_ms == 3
    assert settings.origins == {
        "log.segment.bytes": f"{config}:2",
        "log.segment.ms": "MILLSTREAM_LOG_SEGMENT_MS",
        "log.retention.ms": "command line",
        "storage.data.dir": "command line",
    }


def test_every_setting_can_be_set_by_its_variable_and_by_its_key() -> None:
    for place in PLACES:
        text = text_of(place.setting.default)
        variable = load(environment={place.variable: text})
        assert place.origin(variable) == place.variable
        assert place.value(load(assignments=[f"{place.key}={text}"])) == place.setting.default


def test_no_two_settings_share_a_name() -> None:
    assert len({place.variable for place in PLACES}) == len(PLACES)
    keys = {place.key for place in PLACES}
    assert len(keys) == len(PLACES)
    # Or `--set` would not know which one is meant.
    assert keys.isdisjoint(place.setting.name for place in PLACES)


def test_file_can_be_named_by_a_variable(config: Path) -> None:
    environment = {"MILLSTREAM_CONFIG": str(config)}
    assert load(environment=environment).log.segment_bytes == 1
    with pytest.raises(InvalidSetting, match=r"^MILLSTREAM_CONFIG = '/absent'"):
        load(environment={"MILLSTREAM_CONFIG": "/absent"})


def test_unknown_variable_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(environment={"MILLSTREAM_LOG_SEGMENT_BYTE": "1", "PATH": "/bin"})
    assert str(caught.value) == (
        "environment: MILLSTREAM_LOG_SEGMENT_BYTE = '1': expected the variable of a setting; "
        "did you mean MILLSTREAM_LOG_SEGMENT_BYTES?"
    )


@pytest.mark.parametrize(
    "name",
    [
        "MILLSTREAM_SERVICE_HOST",
        "MILLSTREAM_SERVICE_PORT_KAFKA",
        "MILLSTREAM_PORT",
        "MILLSTREAM_HTTP_PORT_8000_TCP_ADDR",
        "MILLSTREAM_BOOTSTRAP",
    ],
)
def test_variable_of_kubernetes_or_of_a_command_is_let_be(name: str) -> None:
    assert load(environment={name: "tcp://10.0.0.1:8000"}).origins == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("segment.bytes", "--set = 'segment.bytes': expected section.name=value"),
        (
            "max.connections=1",
            (
                "command line: max.connections = '1': expected a setting, as section.name; "
                "there are kafka.max.connections and pylogstreams.max.connections"
            ),
        ),
        (
            "log.segment.byte=1",
            (
                "command line: log.segment.byte = '1': expected a setting, as section.name; "
                "did you mean log.segment.bytes?"
            ),
        ),
    ],
)
def test_assignment_that_names_no_setting_is_refused(text: str, expected: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        load(assignments=[text])
    assert str(caught.value) == expected


def test_all_problems_are_told_at_once(config: Path) -> None:
    config.write_text("[log]\nsegment.bytes = 0\ncolour = 1\n[groups]\ngroup.max.size = 'x'\n")
    with pytest.raises(InvalidSettings) as caught:
        load(
            str(config),
            environment={"MILLSTREAM_TOPICS_NUM_PARTITIONS": "none"},
            assignments=["kafka.queued.max.request.bytes=1"],
        )
    lines = str(caught.value).replace(str(config), "broker.toml").splitlines()
    assert lines[0] == "5 settings cannot be as they are:"
    assert [line.strip().partition(": expected")[0] for line in lines[1:]] == [
        "broker.toml:2: segment.bytes = 0",
        "broker.toml:3: colour = 1",
        "broker.toml:5: group.max.size = 'x'",
        "MILLSTREAM_TOPICS_NUM_PARTITIONS: num.partitions = 'none'",
        "command line: queued.max.request.bytes = 1",
    ]


def test_reference_page_is_current() -> None:
    page = reference_page()
    assert REFERENCE.read_text() == page, "run: millstream config reference > " + str(REFERENCE)
    for section, component in SECTIONS.items():
        assert f"## [{section}]" in page
        for declaration in declarations(component).values():
            assert f"| `{declaration.name}`<br>" in page


def test_reference_file_holds_every_setting_at_its_default(config: Path) -> None:
    text = reference_file()
    assert tomllib.loads(text) == {section: {} for section in SECTIONS}
    config.write_text(re.sub(r"^#(?! )", "", text, flags=re.MULTILINE))
    settings = load(str(config))
    assert settings == load()
    assert len(settings.origins) == len(PLACES)
