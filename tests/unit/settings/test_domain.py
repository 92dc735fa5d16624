"""Domains convert what a person writes and know what they allow."""

from __future__ import annotations

import pytest

from millstream.settings.domain import (
    Address,
    Domain,
    Flag,
    Fraction,
    OneOf,
    Reachable,
    SomeOf,
    Text,
    Whole,
    split_address,
)
from millstream.settings.telemetry import Url


@pytest.mark.parametrize(
    ("domain", "raw", "value"),
    [
        (Whole(1, 10), 1, 1),
        (Whole(1, 10), "10", 10),
        (Whole(-1, 10), "-1", -1),
        (Fraction(0, 1), 0.5, 0.5),
        (Fraction(0, 1), 1, 1.0),
        (Fraction(0, 1), "0.25", 0.25),
        (SomeOf(("delete", "compact")), "delete", frozenset({"delete"})),
        (SomeOf(("delete", "compact")), "compact, delete", frozenset({"compact", "delete"})),
        (SomeOf(("delete", "compact")), ["compact"], frozenset({"compact"})),
        (Text("a directory"), "./data", "./data"),
        (Flag(), True, True),
        (Flag(), "false", False),
        (OneOf(("up", "down")), "up", "up"),
        (Address(), "localhost:0", "localhost:0"),
        (Address(), "PLAINTEXT://0.0.0.0:9092", "PLAINTEXT://0.0.0.0:9092"),
        (Address(), "off", "off"),
        (Reachable(), "", ""),
        (Url(), "http://collector:4318/v1/traces", "http://collector:4318/v1/traces"),
        (Url(), "https://[::1]", "https://[::1]"),
        (Reachable(), "broker.example:9092", "broker.example:9092"),
    ],
)
def test_allowed_value_is_converted(domain: Domain, raw: object, value: object) -> None:
    converted = domain.convert(raw)
    assert converted == value
    assert type(converted) is type(value)
    assert domain.contains(converted)


@pytest.mark.parametrize(
    ("domain", "raw"),
    [
        (Whole(1, 10), 0),
        (Whole(1, 10), 11),
        (Whole(1, 10), 1.5),
        (Whole(0, 10), True),
        (Whole(1, 10), "ten"),
        (Whole(1, 10), None),
        (Fraction(0, 1), -0.1),
        (Fraction(0, 1), 1.1),
        (Fraction(0, 1), float("nan")),
        (Fraction(0, 1), "half"),
        (Fraction(0, 1), True),
        (SomeOf(("delete", "compact")), ""),
        (SomeOf(("delete", "compact")), "delete,archive"),
        (SomeOf(("delete", "compact")), [1]),
        (SomeOf(("delete", "compact")), []),
        (Text("a directory"), ""),
        (Flag(), 1),
        (Flag(), "yes"),
        (OneOf(("up", "down")), "sideways"),
        (OneOf(("up", "down")), ["up"]),
        (Reachable(), "off"),
        (Url(), "collector:4318"),
        (Url(), "ftp://collector"),
        (Url(), "http://"),
        (Url(), "http://collector:0/"),
        (Url(), "http://collector/v1 traces"),
        (Reachable(), "broker.example:0"),
        (Reachable(), "0.0.0.0:9092"),
        (Reachable(), "[::]:9092"),
        (Address(), ""),
        (Address(), "localhost"),
        (Address(), "localhost:65536"),
        (Address(), "::1:9092"),
        (Address(), 9092),
        (Text("a directory"), 1),
    ],
)
def test_value_outside_the_domain_is_not_contained(domain: Domain, raw: object) -> None:
    assert not domain.contains(domain.convert(raw))


@pytest.mark.parametrize(
    ("domain", "expected"),
    [
        (Whole(1, 10), "a whole number from 1 to 10"),
        (Whole(-1, 10, "-1 for ever"), "a whole number from -1 to 10 (-1 for ever)"),
        (Fraction(0, 1), "a number from 0 to 1"),
        (SomeOf(("delete", "compact")), "one or more of delete, compact"),
        (Text("a directory"), "a directory"),
    ],
)
def test_domain_describes_itself(domain: Domain, expected: str) -> None:
    assert domain.expected == expected


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("localhost:9092", ("localhost", 9092)),
        ("PLAINTEXT://localhost:9092", ("localhost", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("SSL://localhost:9092", None),
        ("off", None),
        ("", None),
    ],
)
def test_address_is_split(text: str, parts: tuple[str, int] | None) -> None:
    assert split_address(text) == parts
