"""Which dead letters of a subscription were sent back, in one partition of the dead letter topic.

The marks are an offset of a consumer group and its metadata. The offset is the next letter to try.
The metadata is `1:<floor>:<bits>`: every offset below the floor is done, and the bits, packed by
zlib and written in base64, say which offsets from there on are. A letter below the next offset that
is not done was refused when it was tried.

Invariant: the lowest bit is not set, so the floor is the first that is not done.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import NamedTuple

_VERSION = "1"
_FIELDS = 3
_MOST_BYTES = 1 << 20
"""Of bits: no more are unpacked."""


class ReplayMarks(NamedTuple):
    next_offset: int = 0
    floor: int = 0
    bits: int = 0

    def is_done(self, offset: int) -> bool:
        """Whether the letter at an offset was sent back, or is not one of this subscription."""
        return offset < self.floor or bool(self.bits >> (offset - self.floor) & 1)

    def with_done(self, offsets: Iterable[int]) -> ReplayMarks:
        """These letters were sent back."""
        bits = self.bits
        for offset in offsets:
            if offset >= self.floor:
                bits |= 1 << (offset - self.floor)
        return _settled(self.next_offset, self.floor, bits)

    def passed(self, next_offset: int, failed: Iterable[int] = ()) -> ReplayMarks:
        """All letters up to before an offset were tried, and those that failed are not done."""
        if next_offset <= self.next_offset:
            return self
        begin = max(self.next_offset, self.floor) - self.floor
        end = max(next_offset - self.floor, begin)
        mask = (1 << end) - (1 << begin)
        for offset in failed:
            if offset >= self.floor:
                mask &= ~(1 << (offset - self.floor))
        return _settled(next_offset, self.floor, self.bits | mask)

    def forgetting(self, start_offset: int) -> ReplayMarks:
        """The log now begins at an offset: what is below is no letter any more."""
        if start_offset <= self.floor:
            return self
        bits = self.bits >> (start_offset - self.floor)
        return _settled(max(self.next_offset, start_offset), start_offset, bits)

    def fits(self, limit_bytes: int) -> bool:
        """Whether it can be stored with an offset, and read again."""
        return self.bits.bit_length() <= 8 * _MOST_BYTES and len(self.metadata()) <= limit_bytes

    def metadata(self) -> str:
        """What `read_marks` reads, where it `fits`."""
        packed = zlib.compress(self.bits.to_bytes((self.bits.bit_length() + 7) // 8, "little"), 9)
        return f"{_VERSION}:{self.floor}:{b64encode(packed).decode()}"


def read_marks(offset: int, metadata: str) -> ReplayMarks:
    """Without readable metadata, all letters below the offset count as sent back."""
    fields = metadata.split(":")
    if len(fields) == _FIELDS and fields[0] == _VERSION and _is_offset(fields[1]):
        unpacker = zlib.decompressobj()
        try:
            data = unpacker.decompress(b64decode(fields[2], validate=True), _MOST_BYTES)
        except (ValueError, zlib.error):
            data = None
        if data is not None and not unpacker.unconsumed_tail:
            return _settled(offset, int(fields[1]), int.from_bytes(data, "little"))
    return ReplayMarks(offset, offset)


def _is_offset(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


def _settled(next_offset: int, floor: int, bits: int) -> ReplayMarks:
    done = (~bits & (bits + 1)).bit_length() - 1
    return ReplayMarks(next_offset, floor + done, bits >> done)
