"""The cache of mapped segments."""

from __future__ import annotations

import gc
import os
from pathlib import Path

from millstream.storage.filesystem import LocalFilesystem
from millstream.storage.segment import Segment
from millstream.storage.segment_cache import SegmentCache
from millstream.storage.segment_reader import SegmentReader
from tests.unit.storage.laid_batches import lay_some, store_segment


def segments_in(directory: Path, count: int) -> list[Segment]:
    return [
        store_segment(directory, lay_some(4, base_offset=100 * number)) for number in range(count)
    ]


def opened(segment: Segment) -> SegmentReader:
    return SegmentReader.open(LocalFilesystem(), segment)


def handles_on(directory: Path) -> int:
    """Open file handles and mappings of this process that lead into a directory."""
    gc.collect()
    links = [os.readlink(link) for link in _handles()]
    return sum(link.startswith(str(directory)) for link in links) + mappings_of(directory)


def _handles() -> list[str]:
    return [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd") if _is_open(name)]


def _is_open(name: str) -> bool:
    return os.path.lexists(f"/proc/self/fd/{name}")


def mappings_of(directory: Path) -> int:
    return Path("/proc/self/maps").read_text().count(str(directory))


def test_cached_reader_is_found_again(tmp_path: Path) -> None:
    (segment,) = segments_in(tmp_path, 1)
    cache = SegmentCache(2)
    assert cache.get(segment.stem) is None
    reader = opened(segment)
    cache.put(segment.stem, reader)
    assert cache.get(segment.stem) is reader
    assert len(cache) == 1


def test_least_recently_used_reader_is_evicted_and_its_owner_told(tmp_path: Path) -> None:
    first, second, third, fourth = segments_in(tmp_path, 4)
    evicted: list[tuple[str, SegmentReader]] = []
    cache = SegmentCache(2, lambda stem, reader: evicted.append((stem, reader)))
    readers = {segment.stem: opened(segment) for segment in (first, second, third, fourth)}
    cache.put(first.stem, readers[first.stem])
    cache.put(second.stem, readers[second.stem])
    assert not evicted
    cache.get(first.stem)
    cache.put(third.stem, readers[third.stem])
    assert evicted == [(second.stem, readers[second.stem])]
    cache.put(fourth.stem, readers[fourth.stem])
    assert [stem for stem, _ in evicted] == [second.stem, first.stem]
    assert cache.get(second.stem) is None
    assert len(cache) == 2


def test_dropped_reader_is_evicted_and_an_unknown_one_is_none(tmp_path: Path) -> None:
    (segment,) = segments_in(tmp_path, 1)
    evicted: list[str] = []
    cache = SegmentCache(2, lambda stem, _: evicted.append(stem))
    cache.put(segment.stem, opened(segment))
    cache.drop(segment.stem)
    cache.drop(segment.stem)
    assert evicted == [segment.stem]
    assert len(cache) == 0


def test_evicted_segment_is_let_go_of(tmp_path: Path) -> None:
    first, second = segments_in(tmp_path, 2)
    cache = SegmentCache(1)
    cache.put(first.stem, opened(first))
    held = handles_on(tmp_path)
    assert held > 0
    cache.put(second.stem, opened(second))
    assert handles_on(tmp_path) == held
    cache.drop(second.stem)
    assert handles_on(tmp_path) == 0


def test_view_handed_out_keeps_the_mapping_of_an_evicted_segment(tmp_path: Path) -> None:
    first, second = segments_in(tmp_path, 2)
    cache = SegmentCache(1)
    cache.put(first.stem, opened(first))
    reader = cache.get(first.stem)
    assert reader is not None
    view = reader.read(0, 1000)
    assert view is not None
    del reader
    content = bytes(view)
    cache.put(second.stem, opened(second))
    cache.drop(second.stem)
    Path(first.log_path).unlink()
    assert handles_on(tmp_path) > 0
    assert bytes(view) == content
    del view
    assert handles_on(tmp_path) == 0
