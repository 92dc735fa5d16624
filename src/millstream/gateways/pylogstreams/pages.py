"""Records of partitions as the frames that clients get: read and encoded once for all of them.

Subscribers that are at the same place, as all are who keep up, share one page. The rest pay for
their own. Memory is bounded: the pages least recently used go first.

Invariant: frames are in the order of their offsets, and each stands for a record that counts: none
of an aborted transaction, and no marker.
Cost: benchmarks/pylogstreams.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from itertools import accumulate
from typing import NamedTuple

from millstream.broker.partition import Partition
from millstream.broker.reading import Reader
from millstream.errors import OffsetOutOfRange
from millstream.gateways.pylogstreams.frames import DeliveryHeads

_READ_BYTES = 128 * 1024
_KEPT_BYTES = 32 << 20


class Part(NamedTuple):
    """Some frames, and where to go on after them."""

    frames: bytes
    next_offset: int
    messages: int
    payload_bytes: int


class _Page:
    """The frames of a stretch of a partition."""

    __slots__ = (
        "_offsets",
        "_parts",
        "_payloads",
        "_whole",
        "next_offset",
        "size_bytes",
        "start_offset",
    )

    def __init__(
        self, start_offset: int, next_offset: int, offsets: list[int], parts: list[bytes]
    ) -> None:
        """`parts` has the head and the payload of each frame, one after the other."""
        self.start_offset = start_offset
        self.next_offset = next_offset
        self._offsets = offsets
        self._parts = parts
        self._whole: bytes | None = None
        self.size_bytes = sum(map(len, parts))
        # Sizes of the payloads before each frame, and of all.
        self._payloads = [0, *accumulate(map(len, parts[1::2]))]

    def part(self, offset: int, limit: int) -> Part:
        """At most so many frames from an offset on."""
        first = bisect_left(self._offsets, offset)
        last = first + limit
        if last < len(self._offsets):
            frames = b"".join(self._parts[2 * first : 2 * last])
            payload_bytes = self._payloads[last] - self._payloads[first]
            return Part(frames, self._offsets[last], limit, payload_bytes)
        count, payload_bytes = (
            len(self._offsets) - first,
            self._payloads[-1] - self._payloads[first],
        )
        if first:
            frames = b"".join(self._parts[2 * first :])
            return Part(frames, self.next_offset, count, payload_bytes)
        if self._whole is None:
            self._whole = b"".join(self._parts)
        return Part(self._whole, self.next_offset, count, payload_bytes)


class Pages:
    """The pages that are in use."""

    def __init__(self, reader: Reader, *, message_max_bytes: int) -> None:
        self._reader = reader
        self._message_max_bytes = message_max_bytes
        self._pages: OrderedDict[Partition, _Page] = OrderedDict()
        self._heads: dict[str, DeliveryHeads] = {}
        self._kept_bytes = 0

    def part(self, partition: Partition, offset: int, limit: int) -> Part | None:
        """At most so many frames from an offset on; None when there is nothing after it.

        Raises OffsetOutOfRange, CorruptData, RecordTooLarge, StorageFailure.
        """
        log = partition.log
        if offset == log.last_stable_offset:
            return None
        page = self._pages.get(partition)
        if page is None or not page.start_offset <= offset < page.next_offset:
            page = self._read(partition, offset)
        elif offset < log.start_offset:
            raise OffsetOutOfRange(
                offset=offset, start_offset=log.start_offset, end_offset=log.end_offset
            )
        return page.part(offset, limit)

    def forget(self, partition: Partition) -> None:
        """A partition is gone."""
        page = self._pages.pop(partition, None)
        if page is not None:
            self._kept_bytes -= page.size_bytes
        self._heads.pop(partition.topic.name, None)

    def _read(self, partition: Partition, offset: int) -> _Page:
        records, next_offset, _, _ = self._reader.read(
            partition,
            offset,
            limit=_READ_BYTES,
            max_bytes=_READ_BYTES,
            max_record_bytes=self._message_max_bytes,
        )
        name = partition.topic.name
        heads = self._heads.get(name)
        if heads is None:
            heads = self._heads[name] = DeliveryHeads(name)
        head_of = heads.of
        parts: list[bytes] = []
        for _, _, _, value, _ in records:
            payload = value or b""
            parts += (head_of(len(payload)), payload)
        page = _Page(offset, next_offset, [record[0] for record in records], parts)
        self._keep(partition, page)
        return page

    def _keep(self, partition: Partition, page: _Page) -> None:
        former = self._pages.pop(partition, None)
        if former is not None:
            self._kept_bytes -= former.size_bytes
        self._pages[partition] = page
        self._kept_bytes += page.size_bytes
        while self._kept_bytes > _KEPT_BYTES and len(self._pages) > 1:
            _, oldest = self._pages.popitem(last=False)
            self._kept_bytes -= oldest.size_bytes
