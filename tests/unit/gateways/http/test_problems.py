"""The door's table from our errors to HTTP's statuses: complete, and told so that it helps."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http import HTTPStatus

import pytest

from millstream import errors
from millstream.errors import MillstreamError
from millstream.gateways.http import problems
from millstream.gateways.http.problems import answer_of, plain_problem, problem_of, status_of


def _tree(root: type[MillstreamError] = MillstreamError) -> Iterator[type[MillstreamError]]:
    for kind in root.__subclasses__():
        yield kind
        yield from _tree(kind)


def _bare(kind: type[MillstreamError]) -> MillstreamError:
    """An error of this kind, with nothing in it."""
    return kind.__new__(kind)


@pytest.mark.parametrize("kind", sorted(set(_tree()), key=str))
def test_every_error_of_the_tree_has_a_status(kind: type[MillstreamError]) -> None:
    assert 400 <= status_of(_bare(kind)) < 600


def test_every_top_of_the_tree_has_a_row_of_its_own() -> None:
    assert set(MillstreamError.__subclasses__()) <= set(problems.STATUSES)


def test_every_row_is_about_an_error_of_the_tree() -> None:
    assert set(problems.STATUSES) <= set(_tree())


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidRequest("no"), 422),
        (errors.MalformedMessage("no"), 400),
        (errors.UnknownTopic("t"), 404),
        (errors.AlreadyExists(kind="topic", name="t"), 409),
        (errors.FencedInstance("i"), 409),
        (errors.OffsetOutOfRange(offset=3, start_offset=0, end_offset=2), 416),
        (errors.BodyTooLarge(10), 413),
        (errors.UnsupportedMediaType("a/b", expected="c/d"), 415),
        (errors.Unavailable("later"), 503),
        (errors.DiskFull("here"), 507),
        (errors.TimedOut(operation="it", timeout_ms=1), 504),
        (errors.StorageFailure(path="p", operation="sync", reason="broken"), 503),
        (errors.CorruptData(path="p", position=1, reason="flipped"), 500),
    ],
)
def test_status_tells_what_to_do(error: MillstreamError, status: int) -> None:
    assert status_of(error) == status
    answer = answer_of(error)
    assert answer.status_code == status
    assert answer.media_type == "application/problem+json"
    document = json.loads(bytes(answer.body))
    assert document["status"] == status
    assert document["detail"] == str(error)


def test_error_without_a_row_is_told_by_the_nearest_above_it() -> None:
    class NewKindOfTimeout(errors.TimedOut):
        """Nothing in the table is about it."""

    assert status_of(_bare(NewKindOfTimeout)) == HTTPStatus.GATEWAY_TIMEOUT


def test_type_and_title_come_from_the_name_of_the_error() -> None:
    document = problem_of(errors.UnknownTopic("t"))
    assert document["type"] == "urn:millstream:unknown-topic"
    assert document["title"] == "Unknown topic"
    assert document["detail"] == "there is no topic 't'"
    assert "PUT /topics/{topic} creates one" in document["hint"]


def test_unknown_partition_of_a_topic_is_told_as_such() -> None:
    document = problem_of(errors.UnknownPartition("orders", 9, count=1))
    assert document["type"] == "urn:millstream:unknown-partition"
    assert document["status"] == 404
    assert document["detail"] == "topic 'orders' has no partition 9: it has 1 (0 to 0)"


def test_program_finds_the_ends_of_the_log_in_the_document() -> None:
    document = problem_of(errors.OffsetOutOfRange(offset=3, start_offset=1, end_offset=2))
    assert (document["offset"], document["start_offset"], document["end_offset"]) == (3, 1, 2)


def test_detail_is_text_of_bounded_length_whatever_was_sent() -> None:
    answer = plain_problem(400, "\udcff" + "x" * 100_000)
    detail = json.loads(bytes(answer.body))["detail"]
    assert len(detail) < 2000
    assert detail.startswith("?xxx")
