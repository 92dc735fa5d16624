"""How a setting is declared: once, with its name, default, allowed values and meaning.

A component's settings are a frozen dataclass whose fields are made by `setting`. The check on
construction, the loader and the reference page all read the same declaration.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, TypeVar

from millstream.errors import InvalidSetting
from millstream.settings.domain import Domain

T = TypeVar("T")

_KEY = "setting"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting's declaration. The name is Kafka's where Kafka has one."""

    name: str
    default: object
    domain: Domain
    doc: str
    needs_restart: bool = False
    """Whether a change takes effect only when the broker is started again."""

    def parse(self, raw: object, *, source: str = "") -> object:
        """The value that `raw` stands for, or InvalidSetting naming the source."""
        value = self.domain.convert(raw)
        if not self.domain.contains(value):
            raise InvalidSetting(
                name=self.name, value=raw, expected=self.domain.expected, source=source
            )
        return value


def setting(name: str, default: T, domain: Domain, doc: str, *, needs_restart: bool = False) -> T:
    """A dataclass field that carries its declaration."""
    declaration = Setting(
        name=name, default=default, domain=domain, doc=doc, needs_restart=needs_restart
    )
    return field(default=default, metadata={_KEY: declaration})


def declarations(component: Any) -> dict[str, Setting]:
    """Declarations of a settings class, or of an instance, by field name, in order."""
    kind = component if isinstance(component, type) else type(component)
    return dict(_declarations(kind))


@cache
def _declarations(kind: type) -> dict[str, Setting]:
    return {each.name: each.metadata[_KEY] for each in fields(kind)}


def check(component: object) -> None:
    """Raise InvalidSetting for the first field outside its domain."""
    for field_name, declaration in declarations(component).items():
        value = getattr(component, field_name)
        if not declaration.domain.contains(value):
            raise InvalidSetting(
                name=declaration.name, value=value, expected=declaration.domain.expected
            )
