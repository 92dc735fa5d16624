"""Regular expressions that choose topics, matched in time linear in the name.

Members send them and the broker evaluates them, so nothing a client writes may keep the event loop
busy: an automaton without backtracking, in the spirit of RE2, whose syntax Kafka uses (KIP-848).
An expression must match a whole name. Topic names are ASCII, and so is everything that matches.

Left out, and refused: word boundaries, Unicode classes, and what RE2 refuses (look-around,
back-references). Greed makes no difference to whether something matches, and is ignored.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

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

_MAX_INSTRUCTIONS = 2000
_MAX_CACHED_PLACES = 20_000
"""Bounds the memory of one expression, whatever a client makes of it."""


class _Take(NamedTuple):
    """Go on with the next instruction after one of these characters."""

    characters: frozenset[str]


class _Fork(NamedTuple):
    """Go on in all of these places."""

    places: tuple[int, ...]


class _Require(NamedTuple):
    """Go on with the next instruction at the start, or the end, of the name."""

    anchor: Anchor


class _Done(NamedTuple):
    """The name matches, if it ends here."""


_Instruction = _Take | _Fork | _Require | _Done
_State = frozenset[int]


class TopicRegex:
    """A compiled expression. Raises InvalidRegex for what is none."""

    def __init__(self, text: str) -> None:
        self._program: list[_Instruction] = []
        try:
            self._emit(parse(text))
        except ValueError as error:
            raise InvalidRegex(text=text, reason=str(error)) from error
        self._program.append(_Done())
        self._start = self._reach([0], frozenset((Anchor.START,)))
        # Filled while matching: what each state becomes after a character.
        self._moves: dict[tuple[_State, str], _State] = {}
        self._cached_places = 0

    def matches(self, name: str) -> bool:
        state = self._start
        for character in name:
            move = self._moves.get((state, character))
            state = self._learned(state, character) if move is None else move
        anchors = frozenset((Anchor.END,)) if name else frozenset(Anchor)
        end = self._reach(state, anchors)
        return any(isinstance(self._program[place], _Done) for place in end)

    def _learned(self, state: _State, character: str) -> _State:
        move = self._step(state, character)
        self._cached_places += len(move) + 1
        if self._cached_places > _MAX_CACHED_PLACES:
            self._moves.clear()
            self._cached_places = 0
        self._moves[state, character] = move
        return move

    def _step(self, state: _State, character: str) -> _State:
        following = (
            place + 1
            for place in state
            if isinstance(taken := self._program[place], _Take) and character in taken.characters
        )
        return self._reach(following, frozenset())

    def _reach(self, places: Iterable[int], anchors: frozenset[Anchor]) -> _State:
        """All places to be in without taking a character."""
        found: set[int] = set()
        waiting = list(places)
        while waiting:
            place = waiting.pop()
            if place in found:
                continue
            found.add(place)
            instruction = self._program[place]
            if isinstance(instruction, _Fork):
                waiting.extend(instruction.places)
            elif isinstance(instruction, _Require) and instruction.anchor in anchors:
                waiting.append(place + 1)
        return frozenset(found)

    def _emit(self, node: Node) -> None:
        if len(self._program) > _MAX_INSTRUCTIONS:
            raise ValueError("it is too large")
        if isinstance(node, Characters):
            self._program.append(_Take(node.characters))
        elif isinstance(node, Anchor):
            self._program.append(_Require(node))
        elif isinstance(node, Series):
            for part in node.parts:
                self._emit(part)
        elif isinstance(node, Alternatives):
            self._emit_alternatives(node)
        else:
            self._emit_repetition(node)

    def _emit_alternatives(self, node: Alternatives) -> None:
        fork = self._reserve()
        starts, ends = [], []
        for choice in node.choices:
            starts.append(len(self._program))
            self._emit(choice)
            ends.append(self._reserve())
        self._program[fork] = _Fork(tuple(starts))
        for end in ends:
            self._program[end] = _Fork((len(self._program),))

    def _emit_repetition(self, node: Repetition) -> None:
        for _ in range(node.minimum):
            before = len(self._program)
            self._emit(node.part)
            if len(self._program) == before:
                return  # nothing, however often, is nothing
        if node.maximum is None:
            fork = self._reserve()
            self._emit(node.part)
            self._program.append(_Fork((fork,)))
            self._program[fork] = _Fork((fork + 1, len(self._program)))
            return
        forks = []
        for _ in range(node.maximum - node.minimum):
            forks.append(self._reserve())
            self._emit(node.part)
        for fork in forks:
            self._program[fork] = _Fork((fork + 1, len(self._program)))

    def _reserve(self) -> int:
        """A place whose instruction is known later."""
        self._program.append(_Fork(()))
        return len(self._program) - 1


@lru_cache(maxsize=64)
def compiled(text: str) -> TopicRegex:
    return TopicRegex(text)
