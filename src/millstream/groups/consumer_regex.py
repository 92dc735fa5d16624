"""Regular expressions that choose topics, matched in time linear in the name.

Members send them and the broker evaluates them, so nothing a client writes may keep the event loop
busy. An expression becomes an automaton without backtracking, in the spirit of RE2, whose syntax
Kafka uses (KIP-848): the places of the expression that take a character are the bits of an integer,
and a character costs one operation for the whole state, plus one for each link between places that
are not neighbours. `_MAX_PLACES` and `_MAX_LINKS` bound both, `_MAX_TEXT` what is parsed.
An expression must match a whole name. Topic names are ASCII, and so is everything that matches.

Left out, and refused: word boundaries, Unicode classes, and what RE2 refuses (look-around,
back-references). Greed makes no difference to whether something matches, and is ignored.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from millstream.errors import InvalidRegex
from millstream.groups.consumer_regex_syntax import (
    Alternatives,
    Anchor,
    Characters,
    Node,
    Repetition,
    Series,
    parse,
)

_MAX_TEXT: Final = 4096
_MAX_PLACES: Final = 2000
_MAX_LINKS: Final = 128
_MAX_KNOWN: Final = 50_000
"""Names of which one expression remembers whether it matches them."""


_MIDDLE, _START, _END, _ALONE = 1, 2, 4, 8
"""Where in a name a part may match nothing at all: the last is the empty name."""
_ANYWHERE: Final = _MIDDLE | _START | _END | _ALONE


class _Part(NamedTuple):
    """What a part of an expression looks like from outside. Sets of places are bits of a number.

    An anchor inside holds only at its end of the name, so each fact is kept with and without.
    """

    empty: int
    """Where it matches nothing at all."""
    first: int
    """Places that can take its first character, in the middle of a name."""
    first_at_start: int
    last: int
    """Places that can take its last character, with more to come."""
    last_at_end: int

    @property
    def has_places(self) -> bool:
        return bool(self.first_at_start or self.last_at_end)


_NOTHING: Final = _Part(_ANYWHERE, 0, 0, 0, 0)
_AT_START: Final = _Part(_START | _ALONE, 0, 0, 0, 0)
_AT_END: Final = _Part(_END | _ALONE, 0, 0, 0, 0)
_IMPOSSIBLE: Final = _Part(0, 0, 0, 0, 0)


class TopicRegex:
    """A compiled expression. Raises InvalidRegex for what is none, or costs too much."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_TEXT:
            reason = f"it has {len(text)} characters, and at most {_MAX_TEXT} are allowed"
            raise InvalidRegex(text=f"{text[:40]}...", reason=reason)
        automaton = _Automaton()
        try:
            whole = automaton.add(parse(text))
        except ValueError as error:
            raise InvalidRegex(text=text, reason=str(error)) from error
        self._takers = automaton.takers()
        self._neighbours = automaton.neighbours
        self._links = tuple(automaton.links.items())
        self._first = whole.first_at_start
        self._last = whole.last_at_end
        self._is_empty = bool(whole.empty & _ALONE)
        self._known: dict[str, bool] = {}

    def matches(self, name: str) -> bool:
        if not name:
            return self._is_empty
        state, reachable = 0, self._first
        takers, neighbours, links = self._takers, self._neighbours, self._links
        for character in name:
            state = reachable & takers.get(character, 0)
            if not state:
                return False
            reachable = (state & neighbours) << 1
            for sources, targets in links:
                if state & sources:
                    reachable |= targets
        return bool(state & self._last)

    def chooses(self, name: str) -> bool:
        """The same, remembered: topics are many, and groups look at all of them again and again."""
        known = self._known.get(name)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = self._known[name] = self.matches(name)
        return known


class _Automaton:
    """The places of an expression and what leads from one to the next, while it is built."""

    def __init__(self) -> None:
        self._sets: dict[frozenset[str], int] = {}
        """The places that take one of these characters."""
        self.neighbours = 0
        """The places from which the next one can be reached."""
        self.links: dict[int, int] = {}
        """All other ways: from any of some places to all of some others."""
        self._places = 0

    def takers(self) -> dict[str, int]:
        """By character, the places that take it."""
        takers: dict[str, int] = {}
        for characters, places in self._sets.items():
            for character in characters:
                takers[character] = takers.get(character, 0) | places
        return takers

    def add(self, node: Node) -> _Part:
        if isinstance(node, Characters):
            return self._place(node.characters)
        if isinstance(node, Anchor):
            return _AT_START if node is Anchor.START else _AT_END
        if isinstance(node, Series):
            whole = _NOTHING
            for part in node.parts:
                whole = self._follow(whole, self.add(part))
            return whole
        if isinstance(node, Alternatives):
            return self._alternatives(node)
        return self._repetition(node)

    def _place(self, characters: frozenset[str]) -> _Part:
        if self._places >= _MAX_PLACES:
            raise ValueError("it is too large")
        bit = 1 << self._places
        self._places += 1
        self._sets[characters] = self._sets.get(characters, 0) | bit
        return _Part(0, bit, bit, bit, bit)

    def _alternatives(self, node: Alternatives) -> _Part:
        whole = _IMPOSSIBLE
        for choice in node.choices:
            whole = _either(whole, self.add(choice))
        return whole

    def _repetition(self, node: Repetition) -> _Part:
        part = self.add(node.part)
        if not part.has_places:
            return part if node.minimum else _optional(part)
        # What may be empty, at least so many times, is that any number of times.
        minimum = 0 if part.empty & _MIDDLE else node.minimum
        if node.maximum is None:
            whole = part
            for _ in range(minimum - 1):
                part = self.add(node.part)
                whole = self._follow(whole, part)
            self._link(part.last, part.first)
            return whole if minimum else _optional(whole)
        if node.maximum == 0:
            return _NOTHING
        parts = [part, *(self.add(node.part) for _ in range(node.maximum - 1))]
        return self._counted(parts if minimum else list(map(_filled, parts)), minimum)

    def _counted(self, parts: list[_Part], minimum: int) -> _Part:
        """At least so many of these, in a row: each one that may be missing ends the row."""
        whole = _NOTHING
        for number in range(len(parts), 0, -1):
            whole = self._follow(parts[number - 1], whole)
            if number > minimum:
                whole = _optional(whole)
        return whole

    def _follow(self, left: _Part, right: _Part) -> _Part:
        """One after the other."""
        self._link(left.last, right.first)
        return _Part(
            left.empty & right.empty,
            left.first | (right.first if left.empty & _MIDDLE else 0),
            left.first_at_start | (right.first_at_start if left.empty & _START else 0),
            right.last | (left.last if right.empty & _MIDDLE else 0),
            right.last_at_end | (left.last_at_end if right.empty & _END else 0),
        )

    def _link(self, sources: int, targets: int) -> None:
        if not sources or not targets:
            return
        if targets == sources << 1 and sources & (sources - 1) == 0:
            self.neighbours |= sources
            return
        self.links[sources] = self.links.get(sources, 0) | targets
        if len(self.links) > _MAX_LINKS:
            raise ValueError("it repeats or leaves out too many different things")


def _either(one: _Part, other: _Part) -> _Part:
    return _Part(*(a | b for a, b in zip(one, other, strict=True)))


def _optional(part: _Part) -> _Part:
    return _Part(_ANYWHERE, *part[1:])


def _filled(part: _Part) -> _Part:
    """The same, when it is not empty."""
    return _Part(0, *part[1:])


@lru_cache(maxsize=64)
def compiled(text: str) -> TopicRegex:
    return TopicRegex(text)
