"""The codecs: framings, damage and bombs."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import cramjam
import lz4.frame
import pytest
import zstandard

from millstream.errors import InvalidBatch, MessageTooLarge, UnsupportedCodec
from millstream.records import Codec, compress, decompress
from millstream.records.codecs import snappy

PACKING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b"line %d of a text that packs well\n" % n for n in range(9_000))
LIMIT_BYTES = 1 << 20


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("data", [b"", b"x", TEXT, random.Random(1).randbytes(100_000)])
def test_packed_data_unpacks_the_same(codec: Codec, data: bytes) -> None:
    assert decompress(codec, compress(codec, data), LIMIT_BYTES) == data


@pytest.mark.parametrize("codec", list(Codec))
def test_writable_and_sliced_buffers_are_taken_as_they_are(codec: Codec) -> None:
    around = memoryview(bytearray(b"--" + TEXT + b"--"))[2:-2]
    packed = memoryview(bytearray(b"-" + compress(codec, around) + b"-"))[1:-1]
    assert decompress(codec, packed, LIMIT_BYTES) == TEXT
    assert decompress(codec, packed.toreadonly(), LIMIT_BYTES) == TEXT


@pytest.mark.parametrize("codec", [-1, 5, 7, 99])
def test_unknown_codec_is_refused(codec: int) -> None:
    with pytest.raises(UnsupportedCodec):
        compress(codec, b"")
    with pytest.raises(UnsupportedCodec):
        decompress(codec, b"", LIMIT_BYTES)


@pytest.mark.parametrize("codec", list(Codec))
def test_output_at_the_limit_passes_and_one_byte_more_does_not(codec: Codec) -> None:
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(MessageTooLarge) as caught:
        decompress(codec, packed, len(TEXT) - 1)
    assert caught.value.limit_bytes == len(TEXT) - 1
    assert caught.value.size_bytes > caught.value.limit_bytes


@pytest.mark.parametrize("codec", list(Codec))
def test_limit_of_zero_takes_only_nothing(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), 0) == b""
    with pytest.raises(MessageTooLarge):
        decompress(codec, compress(codec, b"x"), 0)


@pytest.mark.parametrize("codec", PACKING)
def test_data_cut_anywhere_is_refused(codec: Codec) -> None:
    packed = compress(codec, random.Random(2).randbytes(150) * 3)
    # A stream of snappy-java has no end mark, so nothing but its header is a stream of no blocks.
    whole = {16} if codec is Codec.SNAPPY else set()
    for size_bytes in set(range(len(packed))) - whole:
        with pytest.raises(InvalidBatch):
            decompress(codec, packed[:size_bytes], LIMIT_BYTES)


@pytest.mark.parametrize("codec", PACKING)
@pytest.mark.parametrize("data", [b"", b"\0", b"not packed at all", bytes(100), b"\xff" * 100])
def test_foreign_bytes_are_refused_with_the_cause_where_there_is_one(
    codec: Codec, data: bytes
) -> None:
    if codec is Codec.SNAPPY and data == b"\0":
        assert decompress(codec, data, LIMIT_BYTES) == b""
        return
    with pytest.raises(InvalidBatch):
        decompress(codec, data, LIMIT_BYTES)


@pytest.mark.parametrize(
    ("codec", "cause"),
    [
        (Codec.GZIP, zlib.error),
        (Codec.SNAPPY, cramjam.DecompressionError),
        (Codec.LZ4, RuntimeError),
        (Codec.ZSTD, zstandard.ZstdError),
    ],
)
def test_damage_names_the_codec_and_chains_its_error(codec: Codec, cause: type[Exception]) -> None:
    with pytest.raises(InvalidBatch, match=codec.name.lower()) as caught:
        decompress(codec, b"not packed at all", LIMIT_BYTES)
    assert isinstance(caught.value.__cause__, cause)


@pytest.mark.parametrize("codec", PACKING)
def test_bytes_after_the_end_are_refused(codec: Codec) -> None:
    with pytest.raises(InvalidBatch):
        decompress(codec, compress(codec, TEXT) + b"more", LIMIT_BYTES)


@pytest.mark.parametrize("codec", PACKING)
def test_streams_after_one_another_are_one(codec: Codec) -> None:
    packed = compress(codec, b"one ") + compress(codec, b"") + compress(codec, TEXT)
    assert decompress(codec, packed, LIMIT_BYTES) == b"one " + TEXT


def test_many_empty_gzip_members_are_read() -> None:
    packed = gzip.compress(b"") * 20_000 + gzip.compress(b"x")
    assert decompress(Codec.GZIP, packed, 1) == b"x"


class TestSnappy:
    def test_raw_block_is_told_apart(self) -> None:
        raw = bytes(cramjam.snappy.compress_raw(TEXT))
        assert decompress(Codec.SNAPPY, raw, LIMIT_BYTES) == TEXT

    def test_stream_is_written_as_snappy_java_does(self) -> None:
        packed = compress(Codec.SNAPPY, TEXT)
        assert packed[:16] == b"\x82SNAPPY\0" + bytes([0, 0, 0, 1, 0, 0, 0, 1])
        size_bytes = int.from_bytes(packed[16:20], "big")
        block = bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size_bytes]))
        assert block == TEXT[: snappy.BLOCK_BYTES]

    def test_version_numbers_of_a_stream_are_not_looked_at(self) -> None:
        packed = compress(Codec.SNAPPY, TEXT)
        little_endian = packed[:8] + bytes([1, 0, 0, 0, 1, 0, 0, 0]) + packed[16:]
        assert decompress(Codec.SNAPPY, little_endian, LIMIT_BYTES) == TEXT

    @pytest.mark.parametrize("size_bytes", [-1, 2**31 - 1, 6])
    def test_block_that_reaches_past_the_end_is_refused(self, size_bytes: int) -> None:
        packed = compress(Codec.SNAPPY, b"")
        packed += size_bytes.to_bytes(4, "big", signed=True) + b"\x01\0x"
        with pytest.raises(InvalidBatch):
            decompress(Codec.SNAPPY, packed, LIMIT_BYTES)

    def test_raw_block_that_claims_gigabytes_is_refused(self) -> None:
        claim = bytes([0xFF, 0xFF, 0xFF, 0xFF, 0x0F]) + bytes(1_000)
        with pytest.raises(InvalidBatch, match="claim"):
            decompress(Codec.SNAPPY, claim, 2**40)

    def test_densest_block_there_is_passes(self) -> None:
        packed = bytes(cramjam.snappy.compress_raw(bytes(64 * 1024)))
        assert decompress(Codec.SNAPPY, packed, LIMIT_BYTES) == bytes(64 * 1024)


class TestLz4:
    @pytest.mark.parametrize("linked", [True, False])
    @pytest.mark.parametrize("sized", [True, False])
    @pytest.mark.parametrize("checksum", [True, False])
    def test_every_kind_of_frame_is_read(self, linked: bool, sized: bool, checksum: bool) -> None:
        packed = lz4.frame.compress(
            TEXT,
            block_linked=linked,
            store_size=sized,
            content_checksum=checksum,
            block_checksum=checksum,
        )
        assert decompress(Codec.LZ4, packed, LIMIT_BYTES) == TEXT

    def test_blocks_are_written_independent_as_java_needs_them(self) -> None:
        assert not lz4.frame.get_frame_info(compress(Codec.LZ4, TEXT))["block_linked"]


class TestZstd:
    @pytest.mark.parametrize("sized", [True, False])
    @pytest.mark.parametrize("checksum", [True, False])
    @pytest.mark.parametrize("level", [-5, 1, 22])
    def test_every_kind_of_frame_is_read(self, sized: bool, checksum: bool, level: int) -> None:
        packer = zstandard.ZstdCompressor(level, write_content_size=sized, write_checksum=checksum)
        assert decompress(Codec.ZSTD, packer.compress(TEXT), LIMIT_BYTES) == TEXT

    def test_skippable_frame_is_skipped(self) -> None:
        skippable = b"\x5a\x2a\x4d\x18" + bytes([3, 0, 0, 0]) + b"abc"
        packed = skippable + compress(Codec.ZSTD, b"x") + skippable
        assert decompress(Codec.ZSTD, packed, LIMIT_BYTES) == b"x"
        with pytest.raises(InvalidBatch):
            decompress(Codec.ZSTD, packed[:-1], LIMIT_BYTES)

    def test_frame_that_needs_a_giant_window_is_refused(self) -> None:
        frame = b"\x28\xb5\x2f\xfd\x00" + bytes([21 << 3]) + bytes([1, 0, 0])
        with pytest.raises(InvalidBatch, match="memory"):
            decompress(Codec.ZSTD, frame, LIMIT_BYTES)


# A block of zstd that repeats one byte 128 Ki times, and the frame around such blocks.
ZSTD_RUN = ((1 << 20) + 2).to_bytes(3, "little") + b"\0"
ZSTD_START = b"\x28\xb5\x2f\xfd\x00\x38"
ZSTD_END = bytes([1, 0, 0])

# What each unpacks to (512 MB for snappy, which packs least; 10 GB for the rest) is far more than
# the memory that unpacking may take.
BOMBS: dict[Codec, Callable[[], bytes]] = {
    Codec.GZIP: lambda: gzip.compress(bytes(1 << 26)) * 160,
    Codec.SNAPPY: lambda: compress(Codec.SNAPPY, bytes(1 << 24)) * 32,
    Codec.LZ4: lambda: compress(Codec.LZ4, bytes(1 << 26)) * 160,
    Codec.ZSTD: lambda: ZSTD_START + ZSTD_RUN * 80_000 + ZSTD_END,
}

# A process of its own, because the peak of this one is what other tests made it. The peak is read
# from /proc: the one that getrusage gives begins with that of the process before exec.
UNPACK_BOMB = """
import pathlib, re, sys
from millstream.errors import MessageTooLarge
from millstream.records import compress, decompress

def peak_kib():
    return int(re.search(r"VmHWM:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])

codec, limit_bytes = int(sys.argv[1]), int(sys.argv[3])
bomb = pathlib.Path(sys.argv[2]).read_bytes()
assert decompress(codec, compress(codec, b"warm"), 4) == b"warm"
before = peak_kib()
try:
    decompress(codec, bomb, limit_bytes)
except MessageTooLarge:
    print(peak_kib() - before)
"""


@pytest.mark.parametrize("codec", PACKING)
def test_bomb_is_refused_for_little_more_than_the_memory_allowed(
    codec: Codec, tmp_path: Path
) -> None:
    bomb = tmp_path / "bomb"
    bomb.write_bytes(BOMBS[codec]())
    limit_bytes = 4 << 20
    grown_kib = subprocess.run(
        [sys.executable, "-c", UNPACK_BOMB, str(int(codec)), str(bomb), str(limit_bytes)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert int(grown_kib) * 1024 < 4 * limit_bytes


def test_kilobyte_that_claims_ten_gigabytes_is_refused() -> None:
    claim = b"\x28\xb5\x2f\xfd\xc0\x38" + (10 << 30).to_bytes(8, "little")
    bomb = claim + ZSTD_RUN * 250 + ZSTD_END
    assert len(bomb) < 1_024
    with pytest.raises(MessageTooLarge):
        decompress(Codec.ZSTD, bomb, LIMIT_BYTES)
