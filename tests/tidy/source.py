"""The project's text files, as the tidy rules see them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_DIRECTORIES = ("src", "tests", "benchmarks", "examples", "docs", "requirements", "scripts", ".ci")
_SUFFIXES = (".py", ".pyi", ".md", ".toml", ".txt", ".sh", "")
_PICTURES = (".png",)
"""They have no text, and links may lead to them."""


@dataclass(frozen=True)
class Source:
    """One file. The path is relative to the project's root, with slashes."""

    path: str
    text: str

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_shipped(self) -> bool:
        return self.path.startswith("src/") and self.is_python

    @property
    def is_test(self) -> bool:
        return self.path.startswith("tests/")

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


def project() -> list[Source]:
    """Every text file of the project, and its pictures."""
    return [Source(path.relative_to(ROOT).as_posix(), _text_of(path)) for path in sorted(_paths())]


def _text_of(path: Path) -> str:
    return "" if path.suffix in _PICTURES else path.read_text(encoding="utf-8")


def _paths() -> Iterator[Path]:
    candidates = list(ROOT.iterdir())
    for directory in _DIRECTORIES:
        candidates += (ROOT / directory).rglob("*")
    for path in candidates:
        hidden = path.name.startswith(".") and path.name != ".gitignore"
        if path.is_file() and path.suffix in _SUFFIXES + _PICTURES and not hidden:
            yield path
