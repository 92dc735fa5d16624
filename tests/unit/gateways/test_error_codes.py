"""The door's table from our errors to Kafka's codes: complete, and by Kafka's numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from millstream import errors
from millstream.errors import InvalidName, MillstreamError, RefusedByBroker
from millstream.gateways.kafka import error_codes
from millstream.gateways.kafka.error_codes import ErrorCode, code_of


def _tree(root: type[MillstreamError] = MillstreamError) -> Iterator[type[MillstreamError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _tree(kind)


def _bare(kind: type[MillstreamError]) -> MillstreamError:
    """An error of this kind, with nothing in it."""
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", sorted(set(_tree()) - {InvalidName, RefusedByBroker}, key=str))
def test_every_error_of_the_tree_has_a_code(kind: type[MillstreamError]) -> None:
    code = code_of(_bare(kind))
    assert code in set(ErrorCode)
    assert code != ErrorCode.NONE


def test_every_top_of_the_tree_has_a_row_of_its_own() -> None:
    assert set(MillstreamError.__subclasses__()) <= set(error_codes._CODES)


def test_every_row_is_about_an_error_of_the_tree() -> None:
    assert set(error_codes._CODES) <= set(_tree())


@pytest.mark.parametrize("code", ErrorCode, ids=lambda code: code.name)
def test_number_of_a_code_is_kafkas(code: ErrorCode) -> None:
    theirs = {int(each.value): each.name.upper() for each in KioErrorCode}
    assert theirs[code.value].replace("_", "") == code.name.replace("_", "")


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("topic", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("group", ErrorCode.INVALID_GROUP_ID),
        ("anything else", ErrorCode.INVALID_REQUEST),
    ],
)
def test_bad_name_is_told_by_what_has_it(kind: str, code: ErrorCode) -> None:
    assert code_of(InvalidName(kind=kind, name="?", expected="a name")) == code


def test_refusal_of_a_broker_keeps_its_code() -> None:
    refusal = RefusedByBroker(operation="it", code=88, name="UNSTABLE_OFFSET_COMMIT")
    assert code_of(refusal) == ErrorCode.UNSTABLE_OFFSET_COMMIT


def test_no_error_is_code_0() -> None:
    assert code_of(None) == 0


def test_error_without_a_row_is_told_by_the_nearest_above_it() -> None:
    class NewKindOfTimeout(errors.TimedOut):
        """Nothing in the table is about it."""

    assert code_of(_bare(NewKindOfTimeout)) == ErrorCode.REQUEST_TIMED_OUT
