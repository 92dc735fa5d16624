"""A value that a client sent, as an error shows it: short, whatever its size and depth.

`repr` of a value that is nested deeply fails, and that of a large one takes long.
"""

from __future__ import annotations

from typing import Any

_LONGEST = 100
_MOST_SHOWN = 10
_SCALARS = {str, int, float, bool, type(None)}


def excerpt(value: Any) -> str:
    """The value itself if it is short; else its beginning, or what kind of thing it is."""
    if type(value) is str:
        return repr(value) if len(value) <= _LONGEST else f"{value[:_LONGEST]!r}..."
    if type(value) in _SCALARS:
        return repr(value)
    if type(value) is list:
        return _whole(value, value) or f"an array of {len(value)}"
    if type(value) is dict:
        is_small = len(value) <= _MOST_SHOWN
        return (is_small and _whole(value, [*value.values()])) or f"an object of {len(value)}"
    return "a JSON value"


def _whole(value: Any, members: list[Any]) -> str:
    """All of it, if that is not much and not deep; else nothing."""
    if len(members) > _MOST_SHOWN or not all(type(each) in _SCALARS for each in members):
        return ""
    if any(len(each) > _LONGEST for each in (*value, *members) if type(each) is str):
        return ""
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else ""
