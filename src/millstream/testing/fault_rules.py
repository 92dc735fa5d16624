"""The faults that a broker is told to have, and how often each was met.

Invariant: all of it lives on the broker's event loop. A rule that was met as often as it may be, or
was taken away, meets nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from millstream.errors import NotFound

Action = Literal["delay", "refuse", "drop", "disconnect", "stall"]


class Place(NamedTuple):
    """What a request touches: a topic, or one partition of it. None is all there are."""

    topic: str | None
    partition: int | None = None


@dataclass(eq=False, kw_only=True)
class Rule:
    """What to do to which requests."""

    action: Action
    api_keys: frozenset[int]
    """Empty is all of them."""
    topic: str | None = None
    partition: int | None = None
    times: int | None = None
    seconds: float = 0.0
    error_code: int = 0
    after_work: bool = False
    hits: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    met: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with every hit."""

    def covers(self, place: Place) -> bool:
        return _fits(self.topic, place.topic) and _fits(self.partition, place.partition)

    def is_for(self, api_key: int) -> bool:
        return not self.api_keys or api_key in self.api_keys

    @property
    def is_spent(self) -> bool:
        return self.gone.is_set() or (self.times is not None and self.hits >= self.times)


class FaultRules:
    """All rules of one broker, in the order in which they were made."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        # Those of them that may still be met.
        self._active: list[Rule] = []
        self.generation = 0
        """Grows with every change, so that others can remember what they found."""
        self.on_changed: list[Callable[[], None]] = []

    def add(self, number: int, rule: Rule) -> None:
        """The number is what it is known by, and never that of another."""
        self._rules[number] = rule
        self._active.append(rule)
        self._changed()

    def remove(self, number: int) -> None:
        """Let go of what it holds, too. How often it was met stays known.

        One that ended with a restart of the broker is gone already.
        """
        if number in self._rules:
            self._rules[number].gone.set()
            self._changed()

    def clear(self) -> None:
        for rule in self._active:
            rule.gone.set()
        self._changed()

    def get(self, number: int) -> Rule:
        """Raises NotFound for one of before a restart."""
        if number not in self._rules:
            hint = "a restart of the broker ends all faults, and forgets how often they were met"
            raise NotFound(kind="fault", name=str(number), hint=hint)
        return self._rules[number]

    def might_meet(self, api_key: int) -> bool:
        """Whether it is worth a look at what a request touches."""
        if any(rule.is_spent for rule in self._active):
            self._active = [rule for rule in self._active if not rule.is_spent]
        return any(rule.is_for(api_key) for rule in self._active)

    def meet(self, api_key: int, places: Sequence[Place]) -> list[Rule]:
        """The rules that a request meets; each is counted."""
        met = []
        for rule in self._active:
            if rule.is_spent or not rule.is_for(api_key):
                continue
            if rule.topic is None or any(map(rule.covers, places)):
                rule.hits += 1
                rule.met.set()
                met.append(rule)
        return met

    def is_stalled(self, place: Place) -> bool:
        return any(
            rule.action == "stall" and not rule.is_spent and rule.covers(place)
            for rule in self._active
        )

    def _changed(self) -> None:
        self.generation += 1
        for tell in self.on_changed:
            tell()


def of_action(rules: Iterable[Rule], action: Action) -> list[Rule]:
    return [rule for rule in rules if rule.action == action]


def _fits(wanted: object, given: object) -> bool:
    return wanted is None or given is None or wanted == given
