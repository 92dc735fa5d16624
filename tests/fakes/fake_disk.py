"""What a disk holds, and what is left of it when the power fails.

Files and directories each have two sides: what processes see, and what is durable. Changes wait
in order until a sync moves them over. A crash decides the fate of those that still wait:

    kept   the process died; everything written is there, and what was unsynced still is
    lost   the power failed; only what was synced is there
    torn   the power failed; each unsynced write reached the disk whole, in some of its sectors,
           or not at all; a file's size is anywhere between the durable and the visible one; of
           the changes to the names in a directory, some first ones came through
"""

from __future__ import annotations

import copy
import mmap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, NamedTuple, TypeAlias

SECTOR_BYTES = 512

CrashMode: TypeAlias = Literal["kept", "lost", "torn"]


class Write(NamedTuple):
    position: int
    data: bytes

    def sectors(self) -> Iterator[Write]:
        """The write cut where sectors end, each of which is stored whole or not at all."""
        position, end = self.position, self.position + len(self.data)
        while position < end:
            stop = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
            yield Write(position, self.data[position - self.position : stop - self.position])
            position = stop


class Resize(NamedTuple):
    size: int


class Image:
    """The content of a file. What its size claims beyond its data is zeros."""

    def __init__(self, data: bytes = b"", size: int = 0) -> None:
        self.data = bytearray(data)
        self.size = max(size, len(data))

    def __deepcopy__(self, memo: dict[int, Any]) -> Image:
        return Image(bytes(self.data), self.size)

    def apply(self, change: Write | Resize) -> None:
        if isinstance(change, Resize):
            del self.data[change.size :]
            self.size = change.size
            return
        position, data = change
        if not data:
            return
        self.data.extend(bytes(max(0, position - len(self.data))))
        self.data[position : position + len(data)] = data
        self.size = max(self.size, position + len(data))


class FileNode:
    """A file, whatever its name is.

    Its visible bytes lie in anonymous memory of fixed capacity, so that a view of them shows later
    writes and outlives the file's name and its handles. Pages never written take no memory.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self.visible = mmap.mmap(-1, capacity_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.size = 0
        self.durable = Image()
        self.pending: list[Write | Resize] = []
        self.sectors: set[int] = set()
        self.handles = 0
        self.has_name = True

    @classmethod
    def holding(cls, image: Image, capacity_bytes: int) -> FileNode:
        """A file with this content, all of it durable."""
        node = cls(capacity_bytes)
        node.visible[: len(image.data)] = bytes(image.data)
        node.size = image.size
        node.durable = image
        node.sectors = set(_sectors_of(0, len(image.data)))
        return node

    def missing_sectors(self, position: int, size: int) -> list[int]:
        """The sectors that a write would have to allocate."""
        return [number for number in _sectors_of(position, size) if number not in self.sectors]

    def write(self, position: int, data: bytes) -> None:
        end = position + len(data)
        assert end <= len(self.visible), "give FakeFilesystem a larger file_capacity_bytes"
        if not data:
            return
        self.visible[position:end] = data
        self.sectors.update(_sectors_of(position, len(data)))
        self.size = max(self.size, end)
        self.pending.append(Write(position, data))

    def resize(self, size: int) -> None:
        assert size <= len(self.visible), "give FakeFilesystem a larger file_capacity_bytes"
        for number in [number for number in self.sectors if (number + 1) * SECTOR_BYTES > size]:
            first = max(size, number * SECTOR_BYTES)
            self.visible[first : (number + 1) * SECTOR_BYTES] = bytes(
                (number + 1) * SECTOR_BYTES - first
            )
            if number * SECTOR_BYTES >= size:
                self.sectors.discard(number)
        self.size = size
        self.pending.append(Resize(size))

    def sync(self) -> None:
        for change in self.pending:
            self.durable.apply(change)
        self.pending.clear()

    def damage(self, change: Write | Resize) -> None:
        """Change what lies on the disk and what is seen of it, behind everyone's back."""
        waiting, self.pending = self.pending, []
        if isinstance(change, Resize):
            self.resize(change.size)
        else:
            self.write(change.position, change.data)
        self.sync()
        self.pending = waiting

    def torn(self, random: Random) -> Image:
        image = copy.deepcopy(self.durable)
        sizes = [self.durable.size, self.size]
        for change in self.pending:
            if isinstance(change, Resize):
                sizes.append(change.size)
            match random.choice(("whole", "partly", "gone")):
                case "whole":
                    image.apply(change)
                case "partly" if isinstance(change, Write):
                    for sector in change.sectors():
                        if random.random() < 0.5:
                            image.apply(sector)
        smallest, largest = min(sizes), max(self.durable.size, self.size)
        size = random.choice((smallest, largest, random.randint(smallest, largest)))
        image.apply(Resize(size))
        return image

    def __deepcopy__(self, memo: dict[int, Any]) -> FileNode:
        node = FileNode(len(self.visible))
        memo[id(self)] = node
        for number in self.sectors:
            first, end = number * SECTOR_BYTES, (number + 1) * SECTOR_BYTES
            node.visible[first:end] = self.visible[first:end]
        node.size = self.size
        node.durable = copy.deepcopy(self.durable)
        node.pending = list(self.pending)
        node.sectors = set(self.sectors)
        node.has_name = self.has_name
        return node


class DirectoryNode:
    """A directory: the names that processes see, and those that are durable."""

    def __init__(self) -> None:
        self.visible: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> DirectoryNode:
        node = memo[id(self)] = DirectoryNode()
        for copied, names in ((node.visible, self.visible), (node.durable, self.durable)):
            for name, child in names.items():
                copied[name] = memo.get(id(child)) or copy.deepcopy(child, memo)
        return node


Node: TypeAlias = FileNode | DirectoryNode


class Link(NamedTuple):
    """A name in a directory comes to mean a node, or nothing."""

    directory: DirectoryNode
    name: str
    node: Node | None


@dataclass(frozen=True)
class NameChange:
    """One or two links that change together: a rename takes one name and gives another."""

    links: tuple[Link, ...]

    def touches(self, directories: Iterable[DirectoryNode]) -> bool:
        return any(link.directory is directory for link in self.links for directory in directories)


@dataclass
class Disk:
    """A tree of files and directories, with the changes of names that are not durable yet."""

    root: DirectoryNode = field(default_factory=DirectoryNode)
    pending: list[NameChange] = field(default_factory=list)

    def change(self, *links: Link) -> None:
        for link in links:
            set_name(link.directory.visible, link)
        self.pending.append(NameChange(links))

    def sync(self, directory: DirectoryNode) -> None:
        for change in self._take_pending_of(directory):
            for link in change.links:
                set_name(link.directory.durable, link)

    def lose_pending_of(self, directory: DirectoryNode) -> None:
        self._take_pending_of(directory)

    def after_crash(self, mode: CrashMode, random: Random, capacity_bytes: int) -> Disk:
        if mode == "kept":
            return copy.deepcopy(self)
        torn = random if mode == "torn" else None
        names: dict[int, dict[str, Node]] = {}
        for change in self._surviving(torn) if torn else ():
            for link in change.links:
                set_name(names.setdefault(id(link.directory), dict(link.directory.durable)), link)

        def found(node: Node) -> Node:
            if isinstance(node, FileNode):
                image = node.torn(torn) if torn else copy.deepcopy(node.durable)
                return FileNode.holding(image, capacity_bytes)
            directory = DirectoryNode()
            for name, child in names.get(id(node), node.durable).items():
                directory.visible[name] = directory.durable[name] = found(child)
            return directory

        root = found(self.root)
        assert isinstance(root, DirectoryNode)
        return Disk(root)

    def _take_pending_of(self, directory: DirectoryNode) -> list[NameChange]:
        """Remove the changes in a directory, and all that they stand on, from the pending ones."""
        directories = [directory]
        taken: list[NameChange] = []
        left: list[NameChange] = []
        for change in reversed(self.pending):
            if change.touches(directories):
                directories.extend(link.directory for link in change.links)
                taken.append(change)
            else:
                left.append(change)
        self.pending = left[::-1]
        return taken[::-1]

    def _surviving(self, random: Random) -> Iterator[NameChange]:
        """For each directory some number of its first changes."""
        left: dict[int, int] = {}
        for change in self.pending:
            for link in change.links:
                left[id(link.directory)] = left.get(id(link.directory), 0) + 1
        left = {directory: random.randint(0, count) for directory, count in left.items()}
        for change in self.pending:
            directories = {id(link.directory) for link in change.links}
            if all(left[directory] > 0 for directory in directories):
                yield change
                for directory in directories:
                    left[directory] -= 1
            else:
                left.update(dict.fromkeys(directories, 0))


def set_name(names: dict[str, Node], link: Link) -> None:
    if link.node is None:
        names.pop(link.name, None)
    else:
        names[link.name] = link.node


def _sectors_of(position: int, size: int) -> range:
    return (
        range(position // SECTOR_BYTES, -(-(position + size) // SECTOR_BYTES)) if size else range(0)
    )
