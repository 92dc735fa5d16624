"""Errors that the broker tells of, as the errors that they are."""

from __future__ import annotations

import pytest

from millstream import errors
from millstream.client.failures import failure_of
from millstream.errors import MillstreamError, OffsetOutOfRange, UnknownTopic
from millstream.gateways.http.problems import problem_of

# The others of the package are what errors carry.
KINDS = [
    kind
    for name in errors.__all__
    if issubclass(kind := getattr(errors, name), MillstreamError) and kind is not MillstreamError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_that_the_broker_can_tell_of_is_known(kind: type[MillstreamError]) -> None:
    class Plain(kind):  # type: ignore[misc, valid-type]
        def __str__(self) -> str:
            return "the text"

        def __getattr__(self, name: str) -> int:
            return 7

    Plain.__name__ = kind.__name__
    told = failure_of(problem_of(Plain.__new__(Plain)))
    assert isinstance(told, kind)
    assert str(told) == "the text"
    assert repr(told) == f"{kind.__name__}('the text')"


def test_data_of_an_error_comes_with_it() -> None:
    error = OffsetOutOfRange(offset=9, start_offset=2, end_offset=5)
    told = failure_of(problem_of(error))
    assert isinstance(told, OffsetOutOfRange)
    assert (told.offset, told.start_offset, told.end_offset) == (9, 2, 5)
    assert str(told) == str(error)


def test_short_name_is_as_good_as_the_whole() -> None:
    problem = {"type": "unknown-topic", "status": 404, "detail": "gone"}
    assert isinstance(failure_of(problem), UnknownTopic)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (422, errors.InvalidRequest),
        (429, errors.Unavailable),
        (500, errors.Unavailable),
        (503, errors.Unavailable),
    ],
)
def test_unknown_error_is_judged_by_its_status(status: int, kind: type[MillstreamError]) -> None:
    error = failure_of({"type": "about:blank", "status": status, "detail": "new"})
    assert type(error).__mro__[2] is kind


def test_problem_without_anything_is_an_error_all_the_same() -> None:
    assert isinstance(failure_of({}), errors.Unavailable)
