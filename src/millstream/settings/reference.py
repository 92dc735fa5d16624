"""The reference of all settings, made from their declarations: a page, and a file to begin with.

Invariant: docs/reference/settings.md is this page; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from inspect import getdoc

from millstream.settings.overrides import text_of
from millstream.settings.sections import PLACES, SECTIONS, Place

_INTRODUCTION = """\
# Settings

<!-- Made by `millstream config reference`; a test keeps it current. -->

Every setting of the broker, with the name that Kafka has for it where Kafka has one. A value comes
from, in this order, where the later wins:

1. the default;
2. a TOML file: `millstream serve --config broker.toml`, or `MILLSTREAM_CONFIG=broker.toml`;
3. the environment: the variable that stands below the name;
4. the command line: `--set SECTION.NAME=VALUE`, or a flag of its own such as `--data-dir`.

```toml
[log]
segment.bytes = 268435456
retention.ms = 86400000

[topics]
num.partitions = 4
```

The broker does not start on a setting that it does not know or a value that is not allowed: it
tells all of them, each with its file and line, variable or flag. `millstream config check` tells
the same without a start, `millstream config show` prints each value and where it comes from, and
`millstream config reference --toml` prints a file with everything in it.

On SIGHUP the broker reads its file again and takes over what has changed. Settings with the word
*restart* wait for the next start; the broker says which of them have changed. If something is wrong
with the file, it says what, and nothing changes.
"""
_OF_TOPICS = """\
These are the defaults of all topics; a topic can have its own value of each (`millstream topic
create`, `topic alter`, or any Kafka tool).
"""


def reference_page() -> str:
    """All settings, as Markdown."""
    return "\n".join([_INTRODUCTION, *map(_section_text, SECTIONS)])


def reference_file() -> str:
    """A TOML file with every setting as a comment, at its default."""
    return "\n".join(_file_lines()) + "\n"


def _section_text(section: str) -> str:
    lines = [f"## [{section}]", "", getdoc(SECTIONS[section]) or ""]
    if section == "log":
        lines += ["", _OF_TOPICS.rstrip()]
    lines += ["", "| Setting | Default | Allowed | Meaning |", "|---|---|---|---|"]
    lines += [_row(place) for place in PLACES if place.section == section]
    return "\n".join(lines) + "\n"


def _row(place: Place) -> str:
    setting = place.setting
    default = text_of(setting.default)
    restart = " *restart*" if setting.needs_restart else ""
    cells = (
        f"`{setting.name}`<br>`{place.variable}`",
        f"`{default}`" if default else "empty",
        setting.domain.expected,
        setting.doc + restart,
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _file_lines() -> Iterator[str]:
    yield "# Every setting of a Millstream broker, at its default. Take the # away to change one."
    for section in SECTIONS:
        yield f"\n[{section}]"
        for place in PLACES:
            if place.section == section:
                yield f"\n# {place.setting.doc}"
                yield f"# Expected: {place.setting.domain.expected}."
                yield f"#{place.setting.name} = {_toml(place.setting.default)}"


def _toml(value: object) -> str:
    if isinstance(value, bool | int | float):
        return text_of(value)
    return f'"{text_of(value)}"'
