"""The syntax of expressions that choose topics: text to tree. See `consumer_regex`."""

from __future__ import annotations

import string
from enum import Enum
from typing import NamedTuple

_ASCII = frozenset(map(chr, range(128)))
_DIGITS = frozenset(string.digits)
_WORD = frozenset(string.ascii_letters + string.digits + "_")
_SPACE = frozenset("\t\n\f\r ")
_CLASSES = {
    "d": _DIGITS,
    "D": _ASCII - _DIGITS,
    "w": _WORD,
    "W": _ASCII - _WORD,
    "s": _SPACE,
    "S": _ASCII - _SPACE,
}
_NAMED_CLASSES = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "digit": _DIGITS,
    "lower": frozenset(string.ascii_lowercase),
    "punct": frozenset(string.punctuation),
    "space": _SPACE | {"\v"},
    "upper": frozenset(string.ascii_uppercase),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits),
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_MAX_REPETITIONS = 1000
_MAX_DEPTH = 50


class Characters(NamedTuple):
    """One of these."""

    characters: frozenset[str]


class Anchor(Enum):
    START = "^"
    END = "$"


class Series(NamedTuple):
    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    choices: tuple[Node, ...]


class Repetition(NamedTuple):
    part: Node
    minimum: int
    maximum: int | None


Node = Characters | Anchor | Series | Alternatives | Repetition


def parse(text: str) -> Node:
    """The tree of an expression; ValueError says what is wrong with it."""
    return _Parser(text).parse()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self._depth = 0
        self._ignores_case = False

    def parse(self) -> Node:
        node = self._alternatives()
        if self._position < len(self._text):
            raise ValueError("a ) without its (")
        return node

    def _alternatives(self) -> Node:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise ValueError("it is nested too deeply")
        ignores_case = self._ignores_case
        choices = [self._series()]
        while self._accept("|"):
            choices.append(self._series())
        self._ignores_case = ignores_case
        self._depth -= 1
        return choices[0] if len(choices) == 1 else Alternatives(tuple(choices))

    def _series(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in {"", "|", ")"}:
            if self._accept("\\Q"):
                end = self._text.find("\\E", self._position)
                literal = self._text[self._position : end if end >= 0 else None]
                self._position += len(literal) + (2 if end >= 0 else 0)
                parts += [self._literal(character) for character in literal]
            else:
                parts.append(self._repeated(self._atom()))
        return Series(tuple(parts))

    def _repeated(self, part: Node) -> Node:
        limits = self._limits()
        if limits is None:
            return part
        self._accept("?")  # greed
        if self._limits() is not None:
            raise ValueError("a repetition of a repetition")
        return Repetition(part, *limits)

    def _limits(self) -> tuple[int, int | None] | None:
        for sign, limits in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return limits
        if self._peek() != "{":
            return None
        inside, closed, _ = self._text[self._position + 1 :].partition("}")
        low, comma, high = inside.partition(",")
        if not closed or not low.isdecimal() or (high and not high.isdecimal()):
            return None  # a brace that means itself
        self._position += len(inside) + 2
        minimum = int(low[:5])
        maximum = int(high[:5]) if high else None if comma else minimum
        if max(minimum, maximum or 0) > _MAX_REPETITIONS:
            raise ValueError(f"more than {_MAX_REPETITIONS} repetitions")
        if maximum is not None and maximum < minimum:
            raise ValueError(f"a repetition from {minimum} to {maximum}")
        return minimum, maximum

    def _atom(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._set()
        if character == ".":
            return Characters(_ASCII - {"\n"})
        if character in {"^", "$"}:
            return Anchor(character)
        if character == "\\":
            return self._escape()
        if character in {"*", "+", "?"}:
            raise ValueError(f"nothing before {character}")
        return self._literal(character)

    def _group(self) -> Node:
        ignores_case = self._ignores_case
        if self._accept("?"):
            if self._accept("P<") or (self._peek() == "<" and self._peek(1) not in {"=", "!", ""}):
                name, closed, _ = self._text[self._position :].lstrip("<").partition(">")
                if not closed or not name.isidentifier():
                    raise ValueError("a group with a bad name")
                self._position = self._text.index(">", self._position) + 1
            elif self._flags() == ")":
                return Series(())  # flags for the rest of the group around it
        node = self._alternatives()
        if not self._accept(")"):
            raise ValueError("a ( without its )")
        self._ignores_case = ignores_case
        return node

    def _flags(self) -> str:
        """Read `i:` or `i)`. Flags other than i change nothing for names of topics."""
        value = True
        while (character := self._next()) not in {":", ")"}:
            if character == "-":
                value = False
            elif character == "i":
                self._ignores_case = value
            elif character not in {"m", "s", "U"}:
                raise ValueError(f"(?{character} is not supported")
        return character

    def _escape(self) -> Node:
        character = self._next()
        if character == "A":
            return Anchor.START
        if character == "z":
            return Anchor.END
        if character in _CLASSES:
            return Characters(_CLASSES[character])
        return self._literal(self._escaped(character))

    def _escaped(self, character: str) -> str:
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character == "x":
            return self._hexadecimal()
        if character.isascii() and not character.isalnum():
            return character
        raise ValueError(f"\\{character} is not supported")

    def _hexadecimal(self) -> str:
        digits = self._text[self._position : self._position + 2]
        self._position += 2
        if digits.startswith("{"):
            digits, closed, _ = self._text[self._position - 1 :].partition("}")
            self._position += len(digits) if closed else 0
        if not digits or len(digits) > 6 or not set(digits) <= set(string.hexdigits):
            raise ValueError("\\x without hexadecimal digits")
        code = int(digits, 16)
        return chr(code) if code <= 0x10FFFF else "\ufffd"

    def _set(self) -> Node:
        is_negated = self._accept("^")
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._accept("[:"):
                found |= self._named_class()
                continue
            low = self._set_item()
            if isinstance(low, str) and self._peek() == "-" and self._peek(1) not in {"]", ""}:
                self._position += 1
                high = self._set_item()
                if not isinstance(high, str) or high < low:
                    raise ValueError("a bad range of characters")
                found |= {c for c in _ASCII if low <= c <= high}
            else:
                found |= {low} if isinstance(low, str) else low
        self._position += 1
        folded = self._folded(found)
        return Characters(_ASCII - folded if is_negated else folded)

    def _set_item(self) -> str | frozenset[str]:
        character = self._next()
        if character != "\\":
            return character
        character = self._next()
        return _CLASSES[character] if character in _CLASSES else self._escaped(character)

    def _named_class(self) -> frozenset[str]:
        name, closed, _ = self._text[self._position :].partition(":]")
        is_negated = name.startswith("^")
        if not closed or name.lstrip("^") not in _NAMED_CLASSES:
            raise ValueError(f"[:{name}:] is not supported")
        self._position += len(name) + 2
        found = _NAMED_CLASSES[name.lstrip("^")]
        return _ASCII - found if is_negated else found

    def _literal(self, character: str) -> Characters:
        return Characters(self._folded({character}))

    def _folded(self, characters: set[str]) -> frozenset[str]:
        if self._ignores_case:
            characters |= {c.lower() for c in characters} | {c.upper() for c in characters}
        return frozenset(characters)

    def _accept(self, expected: str) -> bool:
        if self._text.startswith(expected, self._position):
            self._position += len(expected)
            return True
        return False

    def _peek(self, ahead: int = 0) -> str:
        return self._text[self._position + ahead : self._position + ahead + 1]

    def _next(self) -> str:
        if self._position >= len(self._text):
            raise ValueError("it ends too early")
        self._position += 1
        return self._text[self._position - 1]
