"""CRC-32C (Castagnoli), the checksum of record batches and of index entries.

Takes any contiguous buffer, read-only or writable, without copying it.
"""

from __future__ import annotations

from crc32c import crc32c

__all__ = ["crc32c"]
