"""A setting is declared once and checked wherever a value enters."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest

from millstream.errors import InvalidSetting
from millstream.settings import LogSettings, StorageSettings
from millstream.settings.declaration import check, declarations, setting
from millstream.settings.domain import Whole

COMPONENTS = [LogSettings, StorageSettings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mill:
    wheel_count: int = setting("wheel.count", 2, Whole(1, 8), "Wheels that turn.")

    def __post_init__(self) -> None:
        check(self)


def test_declaration_is_found_by_field_name() -> None:
    declaration = declarations(Mill)["wheel_count"]
    assert declaration.name == "wheel.count"
    assert declaration.default == 2
    assert declaration.doc == "Wheels that turn."


def test_value_in_range_is_kept() -> None:
    assert Mill().wheel_count == 2
    assert Mill(wheel_count=8).wheel_count == 8


def test_value_out_of_range_is_refused_on_construction() -> None:
    with pytest.raises(InvalidSetting) as caught:
        Mill(wheel_count=9)
    assert str(caught.value) == "wheel.count = 9: expected a whole number from 1 to 8"


def test_changed_copy_is_checked_too() -> None:
    with pytest.raises(InvalidSetting):
        replace(Mill(), wheel_count=0)


def test_parsing_names_the_source_of_a_bad_value() -> None:
    with pytest.raises(InvalidSetting) as caught:
        declarations(Mill)["wheel_count"].parse("many", source="mill.toml:3")
    assert caught.value.source == "mill.toml:3"
    assert caught.value.value == "many"


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        Mill().wheel_count = 3  # type: ignore[misc]


@pytest.mark.parametrize("component", COMPONENTS)
def test_defaults_are_allowed_and_documented(component: type[Any]) -> None:
    component()
    for declaration in declarations(component).values():
        assert declaration.doc.endswith(".")
        assert declaration.domain.contains(declaration.default)


def test_setting_names_are_unique() -> None:
    names = [each.name for component in COMPONENTS for each in declarations(component).values()]
    assert len(names) == len(set(names))


def test_defaults_are_those_that_users_know() -> None:
    log = LogSettings()
    assert log.segment_bytes == 1024**3
    assert log.index_interval_bytes == 1024
    assert log.retention_ms == log.segment_ms == 7 * 24 * 60 * 60 * 1000
    assert log.cleanup_policy == {"delete"}
    assert log.flush_ms == 1000
