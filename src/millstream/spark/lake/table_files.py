"""The files of a table, in its directory.

Paths are relative to the table, with forward slashes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa


def open_files(path: str) -> TableFiles:
    """Where the files of a table are, whether they are there yet or not."""
    return TableFiles(Path(path))


class TableFiles:
    """Opens, lists and deletes them."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def create(self, path: str) -> pa.NativeFile:
        place = self._root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(place), "wb")

    def open(self, path: str) -> pa.NativeFile:
        return pa.memory_map(str(self._root / path))

    def delete(self, path: str) -> None:
        """Gone afterwards, whether it was there or not."""
        (self._root / path).unlink(missing_ok=True)

    def folders(self, path: str) -> list[str]:
        """Names of the folders in one, none if it is not there."""
        place = self._root / path
        return sorted(each.name for each in place.iterdir()) if place.is_dir() else []

    def delete_folder(self, path: str) -> None:
        shutil.rmtree(self._root / path)
