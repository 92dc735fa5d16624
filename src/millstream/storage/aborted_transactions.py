"""The transactions that were aborted in one segment, which readers of committed records pass over.

An entry says: the records of `producer_id` from `first_offset` up to its marker at `last_offset` do
not count. It lies with the segment that holds the marker; the records may be in segments before.
Entries are in the order of their markers. The file ends with a seal: how far the log was stable
when the segment was closed, and the segment's next offset. So a search need not go on to segments
that hold no end of a transaction it can meet.

A closed segment has such a file when it holds any batch of a transaction, and the seal of its
offset index says so; no other segment has one. While a segment is active, its entries are kept
with the state of its producers.

Invariant: markers strictly increase; a file that lost an entry lost its seal, or fails a checksum.
After a crash: trusted if a producer snapshot vouches for its segment, else replayed from the log.
Format: docs/formats/aborted_transactions.md.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from millstream.records.checksum import crc32c
from millstream.storage.filesystem import Filesystem
from millstream.storage.offset_index import DamagedIndex, map_index

ENTRY_BYTES = 36

_BODY = struct.Struct(">qqqq")
_BODY_BYTES = 32
_SEAL_ID = -1


class AbortedTransaction(NamedTuple):
    """One producer's records that do not count: all it wrote from the first offset to the last."""

    producer_id: int
    first_offset: int
    # That of the marker which ended it.
    last_offset: int
    # How far the log was stable right after the marker: what aborts later begins there or above.
    last_stable_offset: int


class AbortedIndex(NamedTuple):
    """What the file of a closed segment says."""

    transactions: Sequence[AbortedTransaction]
    # How far the log was stable when the segment was closed.
    last_stable_offset: int

    @classmethod
    def open(cls, filesystem: Filesystem, path: str, *, next_offset: int) -> AbortedIndex:
        """Read the file of a segment that ends at an offset, all of it. Raises DamagedIndex."""
        content = bytes(map_index(filesystem, path))
        if not content or len(content) % ENTRY_BYTES:
            raise DamagedIndex(path, len(content), "it is cut")
        entries = []
        for at in range(0, len(content), ENTRY_BYTES):
            body = content[at : at + _BODY_BYTES]
            if crc32c(body).to_bytes(4, "big") != content[at + _BODY_BYTES : at + ENTRY_BYTES]:
                raise DamagedIndex(path, at, "an entry fails its checksum")
            entries.append(AbortedTransaction(*_BODY.unpack(body)))
        seal = entries.pop()
        if (
            seal.producer_id != _SEAL_ID
            or seal.first_offset != len(entries)
            or seal.last_offset != next_offset
        ):
            raise DamagedIndex(path, len(content), "it was not sealed for this segment")
        return cls(entries, seal.last_stable_offset)

    def encode(self, *, next_offset: int) -> bytes:
        """The content of the file of a segment that ends at an offset."""
        seal = AbortedTransaction(
            _SEAL_ID, len(self.transactions), next_offset, self.last_stable_offset
        )
        return b"".join(map(_encode_entry, (*self.transactions, seal)))


def overlapping(
    transactions: Sequence[AbortedTransaction], from_offset: int, to_offset: int
) -> list[AbortedTransaction]:
    """Those of a sequence, ordered by their markers, that reach into a range of offsets."""
    found = []
    first = bisect_left(transactions, from_offset, key=lambda aborted: aborted.last_offset)
    for number in range(first, len(transactions)):
        aborted = transactions[number]
        if aborted.first_offset < to_offset:
            found.append(aborted)
        if aborted.last_stable_offset >= to_offset:
            break
    return found


def index_between(
    transactions: Sequence[AbortedTransaction], *, base_offset: int, next_offset: int
) -> AbortedIndex:
    """What the file of a segment says, where a log's aborted transactions are known up to there.

    All that began before the end of the segment must have ended, and those that aborted be known.
    """
    return AbortedIndex(
        [each for each in transactions if base_offset <= each.last_offset < next_offset],
        min(
            (
                each.first_offset
                for each in transactions
                if each.first_offset < next_offset <= each.last_offset
            ),
            default=next_offset,
        ),
    )


def _encode_entry(entry: AbortedTransaction) -> bytes:
    body = _BODY.pack(*entry)
    return body + crc32c(body).to_bytes(4, "big")
