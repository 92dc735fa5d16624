"""The code that documents show, block by block.

A block is what stands between two fences. `<!-- not run: reason -->` on the line above the first
one says that it cannot be run, and why. A block whose first line is a comment with the name of a
file, as `# broker.toml`, is that file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).parents[2]
README = "README.md"
PAGES = (
    README,
    "CONTRIBUTING.md",
    "docs/reference/settings.md",
    *(f"docs/guides/{page.name}" for page in sorted(ROOT.glob("docs/guides/*.md"))),
)
SPARK_PAGES = tuple(
    f"docs/guides/{name}.md" for name in ("lakehouse", "pipelines", "spark", "spark_sink")
)
"""What stands here needs a session of Spark: tests/spark has one."""

CODE = frozenset({"ini", "javascript", "json", "python", "sh", "sql", "toml", "yaml"})
SHOWN = frozenset({"console", "text"})
"""What programs say, which nobody can run."""

_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FILE = re.compile(r"# (\w+\.(?:py|toml|yaml|yml))")


class Addresses(Protocol):
    """Where a broker is that runs."""

    @property
    def address(self) -> str: ...

    @property
    def url(self) -> str: ...


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    language: str
    text: str
    not_run: str | None = None
    """Why it cannot be run, if it cannot."""

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        """The name of the file that it is."""
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found and found[1]

    @property
    def needs_spark(self) -> bool:
        return self.page in SPARK_PAGES or "pyspark" in self.text


def blocks_of(page: str) -> list[Block]:
    """All of them, in the order in which they stand there."""
    blocks: list[Block] = []
    lines = (ROOT / page).read_text().splitlines()
    fence: tuple[int, str] | None = None
    for number, line in enumerate(lines, start=1):
        if not line.startswith("```"):
            continue
        if fence is None:
            fence = number, line.removeprefix("```").strip()
            continue
        start, language = fence
        mark = _NOT_RUN.fullmatch(lines[start - 2]) if start > 1 else None
        text = "\n".join(lines[start : number - 1]) + "\n"
        blocks.append(Block(page, start, language, text, mark and mark[1]))
        fence = None
    assert fence is None, f"{page}:{fence}: a fence without its end"
    return blocks


def with_addresses(text: str, broker: Addresses) -> str:
    """As it stands there, but for the broker that it talks to."""
    http = broker.url.removeprefix("http://")
    for shown, real in (
        ("127.0.0.1:9092", broker.address),
        ("127.0.0.1:8000", http),
        ("localhost:8000", http),
    ):
        text = text.replace(shown, real)
    return text
