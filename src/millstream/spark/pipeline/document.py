"""A YAML file that remembers where in it everything stands.

Invariant: the place of a character of a scalar is the line and column at which an editor shows it,
also in block scalars, whose text lacks its indentation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import yaml


class Place(NamedTuple):
    """A line and a column, both counted from 1."""

    line: int
    column: int


class Problem(NamedTuple):
    """What is wrong, and where."""

    place: Place
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A value of the file: a scalar, a list of nodes or a mapping from text to nodes."""

    content: Any
    place: Place
    raw: str = ""
    """A scalar as the file has it."""
    key_places: Mapping[str, Place] | None = None

    def place_of(self, index: int) -> Place:
        """Where the character of a scalar stands, counted from 0."""
        if not isinstance(self.content, str) or not self.raw:
            return self.place
        return _place_of(self.raw, self.content, index, self.place)


def load(text: str) -> tuple[Node | None, list[Problem]]:
    """The file's one value, and what is wrong with its YAML."""
    problems: list[Problem] = []
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        return None, [_yaml_problem(error)]
    except yaml.YAMLError as error:
        return None, [Problem(Place(1, 1), f"this is no YAML: {error}")]
    if root is None:
        return None, [
            Problem(Place(1, 1), "the file is empty: `millstream pipeline init` makes one")
        ]
    return _node(root, text, problems, within=()), problems


def _yaml_problem(error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    place = _place(mark) if mark else Place(1, 1)
    said = ", ".join(part for part in (error.context, error.problem) if part)
    return Problem(place, f"this is no YAML: {said}")


def _node(
    node: yaml.Node, text: str, problems: list[Problem], *, within: tuple[yaml.Node, ...]
) -> Node:
    place = _place(node.start_mark)
    if any(each is node for each in within):
        problems.append(Problem(place, "an anchor that holds itself: write it out"))
        return Node(None, place)
    within = (*within, node)
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, text, problems, within)
    if isinstance(node, yaml.SequenceNode):
        return Node([_node(each, text, problems, within=within) for each in node.value], place)
    raw = text[node.start_mark.index : node.end_mark.index]
    return Node(_scalar(node, problems), place, raw)


def _mapping(
    node: yaml.MappingNode, text: str, problems: list[Problem], within: tuple[yaml.Node, ...]
) -> Node:
    entries: dict[str, Node] = {}
    places: dict[str, Place] = {}
    for key_node, value_node in node.value:
        place = _place(key_node.start_mark)
        if not isinstance(key_node, yaml.ScalarNode):
            problems.append(Problem(place, "a field's name must be plain text"))
            continue
        key = str(key_node.value)
        if key in entries:
            first = places[key].line
            problems.append(Problem(place, f"{key!r} is here twice: it is in line {first} too"))
            continue
        places[key] = place
        entries[key] = _node(value_node, text, problems, within=within)
    return Node(entries, _place(node.start_mark), key_places=places)


def _scalar(node: yaml.Node, problems: list[Problem]) -> object:
    loader = yaml.SafeLoader("")
    try:
        return loader.construct_object(node)
    except (yaml.YAMLError, ValueError) as error:
        problems.append(Problem(_place(node.start_mark), f"no value can be made of this: {error}"))
        return None
    finally:
        loader.dispose()


def _place(mark: yaml.Mark) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _place_of(raw: str, content: str, index: int, start: Place) -> Place:
    """Match text and file by what is not white space: folding and indenting change nothing else."""
    wanted = len("".join(content[:index].split()))
    (line, column), begin = _body_begin(raw, start)
    seen = 0
    for character in raw[begin:]:
        if not character.isspace():
            if seen == wanted:
                return Place(line, column)
            seen += 1
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return start


def _body_begin(raw: str, start: Place) -> tuple[Place, int]:
    """Where a scalar's text begins: behind the head of a block, or behind a quote."""
    if raw[0] in "|>":
        end = raw.find("\n")
        return (Place(start.line + 1, 1), end + 1) if end >= 0 else (start, len(raw))
    if raw[0] in "\"'":
        return Place(start.line, start.column + 1), 1
    return start, 0
