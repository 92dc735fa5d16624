"""JSON of clients: how much is parsed at once, and that numbers stay what they are."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidRequest
from millstream.gateways.http.json_text import MOST_CONTAINERS, MOST_VALUES, check, parse
from millstream.gateways.http.message_shapes import new_record, new_records

LONG = "123456789012345678901"
NUMBERS = [
    LONG,
    "0.12345678901234567890",
    "1e-400",
    "-9223372036854775809",
    "1.7976931348623157081e308",
]


def parsed(text: bytes | str) -> Any:
    return asyncio.run(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        b"[" + b"[]," * (MOST_CONTAINERS + 1) + b"1]",
        b'{"a":' * (MOST_CONTAINERS + 1),
        b"[" + b"1," * (MOST_VALUES + 1) + b"1]",
        b'["' + b"[,{" * 200_000 + b'",' + b"[]," * (MOST_CONTAINERS + 1) + b"1]",
        b'""' * (2 * MOST_VALUES + 2) + b"," * (MOST_VALUES + 1),
    ],
    ids=["arrays", "objects", "values", "behind text", "texts"],
)
def test_more_than_is_parsed_at_once_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest, match=str(MOST_CONTAINERS)):
        parsed(text)


@pytest.mark.parametrize(
    "text",
    ["[,{" * 200_000, '\\"[' * 100_000, "\\" * 200_001 + "[" * 100_000, '",["' * 100_000],
    ids=["marks", "quotes", "backslashes", "like JSON"],
)
def test_what_stands_in_text_does_not_count(text: str) -> None:
    assert parsed(json.dumps({"value": text})) == {"value": text}


@given(st.lists(st.text('"\\[{,a', max_size=40), max_size=10))
def test_count_is_that_of_what_stands_outside_of_texts(texts: list[str]) -> None:
    async def main() -> None:
        data = json.dumps(texts).encode()
        values = max(len(texts) - 1, 0)
        await check(data, most_values=values)

    asyncio.run(main())


@pytest.mark.parametrize("number", NUMBERS)
def test_number_is_stored_as_it_was_sent(number: str) -> None:
    for value in (number, f'{{"id":{number}}}', f"[1,[{number}]]"):
        one = f'{{"value":{value},"key":"k"}}'
        for text in (one, one.encode()):
            assert new_record(parsed(text), delayed=lambda _: ()).value == value.encode()
        for many in (f'[{{"value":"x"}},{one}]', f'{{"messages":[{{"value":1}},{one}]}}'):
            shapes = parsed(many)
            records = new_records(
                shapes if isinstance(shapes, list) else shapes["messages"], delayed=lambda _: ()
            )
            assert records[1].value == value.encode()
