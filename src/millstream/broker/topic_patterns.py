"""Finds out which topics an expression chooses, some at a time.

What a group then does with the expression takes one turn of the event loop, however many topics
there are: the expression remembers what it was held against.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final

from millstream.groups.consumer_regex import compiled

_NAMES_AT_ONCE: Final = 50


async def study(regex: str, names: Iterable[str]) -> None:
    """Hold an expression against names. Raises InvalidRegex."""
    pattern = compiled(regex)
    for number, name in enumerate(tuple(names), 1):
        pattern.chooses(name)
        if number % _NAMES_AT_ONCE == 0:
            await asyncio.sleep(0)
