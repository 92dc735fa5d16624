"""Files and folders that a command is given: one that is not there is told as not found."""

from __future__ import annotations

from pathlib import Path

from millstream.errors import NotFound


def present_file(path: Path) -> Path:
    """Raises NotFound."""
    return _present(path, "file")


def present_files(paths: list[Path] | None) -> list[Path] | None:
    """Raises NotFound for the first that is not there."""
    for path in paths or ():
        present_file(path)
    return paths


def present_folder(path: Path) -> Path:
    """Raises NotFound."""
    return _present(path, "folder")


def _present(path: Path, kind: str) -> Path:
    if not path.exists():
        raise NotFound(kind=kind, name=str(path))
    return path
