"""The values a setting can take.

A domain turns what a person wrote (a TOML value, or the text of a flag) into a value of the
setting's type, says whether a value is allowed, and describes what is allowed in a few words.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Domain(Protocol):
    """A set of values with a description."""

    @property
    def expected(self) -> str:
        """What is allowed, to follow the word "expected"."""

    def convert(self, raw: object) -> object:
        """The value that `raw` stands for; `raw` itself when it stands for none."""

    def contains(self, value: object) -> bool: ...


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range, both ends included."""

    minimum: int
    maximum: int
    note: str = ""

    @property
    def expected(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"a whole number from {self.minimum} to {self.maximum}{note}"

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            with suppress(ValueError):
                return int(raw)
        return raw

    def contains(self, value: object) -> bool:
        if not isinstance(value, int) or isinstance(value, bool):
            return False
        return self.minimum <= value <= self.maximum


@dataclass(frozen=True, slots=True)
class Fraction:
    """A number in a range, both ends included."""

    minimum: float
    maximum: float

    @property
    def expected(self) -> str:
        return f"a number from {self.minimum:g} to {self.maximum:g}"

    def convert(self, raw: object) -> object:
        if isinstance(raw, int | str) and not isinstance(raw, bool):
            with suppress(ValueError):
                return float(raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, float) and self.minimum <= value <= self.maximum


@dataclass(frozen=True, slots=True)
class SomeOf:
    """One or more words of a list, written with commas between them."""

    words: tuple[str, ...]

    @property
    def expected(self) -> str:
        return f"one or more of {', '.join(self.words)}"

    def convert(self, raw: object) -> object:
        if isinstance(raw, str):
            raw = raw.split(",")
        if isinstance(raw, list) and all(isinstance(word, str) for word in raw):
            return frozenset(word.strip() for word in raw)
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, frozenset) and bool(value) and value <= set(self.words)


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one, without NUL, which no path can have."""

    expected: str

    def convert(self, raw: object) -> object:
        return raw

    def contains(self, value: object) -> bool:
        return isinstance(value, str) and value != "" and "\0" not in value
