"""The file that remembers where a log begins after records were deleted from its front.

Eight bytes of offset and the CRC-32C of them, big-endian, in `log-start-offset`. Absent until
records are deleted, by command or by retention.
After a crash: holds the old start or the new one, whole.
"""

from __future__ import annotations

import os
import struct

from millstream.errors import CorruptData
from millstream.records.checksum import crc32c
from millstream.storage.filesystem import Filesystem, read_whole, write_atomically

NAME = "log-start-offset"
_OFFSET = struct.Struct(">q")
_FILE = struct.Struct(">qI")


def read_log_start(filesystem: Filesystem, directory: str) -> int:
    """The offset written last; 0 if none was."""
    path = os.path.join(directory, NAME)
    content = read_whole(filesystem, path)
    if content is None:
        return 0
    if len(content) == _FILE.size:
        offset, checksum = _FILE.unpack(content)
        if crc32c(content[: _OFFSET.size]) == checksum:
            return int(offset)
    raise CorruptData(
        path=path,
        position=0,
        reason="the checksum does not match; remove the file to begin at the first segment",
    )


def settled_log_start(
    filesystem: Filesystem, directory: str, *, base_offset: int, end_offset: int
) -> int:
    """Where a log begins that reaches from one offset to another."""
    start = read_log_start(filesystem, directory)
    if start > end_offset:
        # Else it would hide what is appended from here on, after the next start.
        write_log_start(filesystem, directory, end_offset)
    return min(max(start, base_offset), end_offset)


def write_log_start(filesystem: Filesystem, directory: str, offset: int) -> None:
    body = _OFFSET.pack(offset)
    content = body + crc32c(body).to_bytes(4, "big")
    write_atomically(filesystem, os.path.join(directory, NAME), content)
