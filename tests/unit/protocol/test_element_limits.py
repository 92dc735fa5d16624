"""Every array of every request, at the limit of elements and over it."""

from __future__ import annotations

import tracemalloc

import pytest

from millstream.errors import TooManyElements
from millstream.gateways.kafka.routes import ROUTES
from millstream.protocol.codec import decode_prefix, encode
from millstream.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.hostile.full_requests import FullArray, full_arrays

LIMIT = 1000
# A struct, its fields, and the texts in it.
ELEMENT_BYTES = 1024


def _decode(array: FullArray, content: bytes, limit: int) -> object:
    request = ROUTES[array.api_key].request
    return decode_prefix(request, array.version, content, max_elements=limit)


@pytest.mark.parametrize("array", list(full_arrays()), ids=str)
def test_request_at_the_limit_is_decoded_and_one_over_it_is_refused(array: FullArray) -> None:
    # What leads to the array counts, too.
    outer = len(array.path) - 1
    _decode(array, encode(array.request(LIMIT), array.version), LIMIT + outer)
    content = encode(array.request(LIMIT + 1), array.version)
    with pytest.raises(TooManyElements, match=r"millstream\.request\.max\.elements"):
        _decode(array, content, LIMIT + outer)


@pytest.mark.parametrize("array", list(full_arrays()), ids=str)
def test_refused_request_costs_no_more_memory_than_what_is_allowed(array: FullArray) -> None:
    content = encode(array.request(50 * LIMIT), array.version)
    with pytest.raises(TooManyElements):
        _decode(array, content, LIMIT)
    tracemalloc.start()
    try:
        with pytest.raises(TooManyElements):
            _decode(array, content, LIMIT)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < LIMIT * ELEMENT_BYTES


def test_elements_are_counted_over_all_arrays_and_tagged_fields() -> None:
    tags = dict.fromkeys(range(100), b"")
    topics = [MetadataRequestTopic(name="t") for _ in range(10)]
    for topic in topics:
        topic.unknown_tags = tags
    content = encode(MetadataRequest(topics=topics), 12)
    decode_prefix(MetadataRequest, 12, content, max_elements=1010)
    with pytest.raises(TooManyElements):
        decode_prefix(MetadataRequest, 12, content, max_elements=1009)
