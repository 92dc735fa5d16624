"""Expressions that choose topics, held against Python's own where both understand them."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import InvalidRegex
from millstream.groups.consumer_regex import TopicRegex

names = st.text("abAB1.-_", max_size=6)


def _joined(parts: list[str]) -> str:
    return "".join(parts)


atoms = st.sampled_from(
    ["a", "b", "A", "1", ".", r"\.", "-", "[ab]", "[^a]", "[a-c1]", r"\d", r"\w", r"[\d_]", r"\S"]
)
quantifiers = st.sampled_from(["*", "+", "?", "*?", "{2}", "{1,2}", "{0,}", "{2,3}"])


def _extended(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = st.one_of(inner.map("({})".format), inner.map("(?:{})".format))
    return st.one_of(
        st.lists(st.one_of(inner, group), min_size=1, max_size=3).map(_joined),
        st.tuples(group, quantifiers).map(lambda pair: pair[0] + pair[1]),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"(?:{'|'.join(parts)})"),
    )


expressions = st.recursive(
    st.one_of(atoms, st.tuples(atoms, quantifiers).map("".join), st.sampled_from(["^", "$"])),
    _extended,
    max_leaves=6,
)


@given(expression=expressions, name=names)
def test_agrees_with_another_implementation(expression: str, name: str) -> None:
    expected = re.fullmatch(expression, name, re.ASCII) is not None
    assert TopicRegex(expression).matches(name) == expected


@pytest.mark.parametrize(
    ("expression", "matching", "others"),
    [
        (r"orders\..*", ["orders.eu", "orders."], ["orders", "my.orders.eu"]),
        ("^orders$", ["orders"], ["orders2", "1orders"]),
        ("(?i)Orders", ["orders", "ORDERS"], ["order"]),
        ("a(?i:b)c", ["abc", "aBc"], ["abC", "Abc"]),
        ("a|bc|", ["a", "bc", ""], ["b", "abc"]),
        (r"\Qa.b*\E.", ["a.b*c"], ["aab*c"]),
        ("[[:alpha:]_]+", ["ab_c"], ["a1"]),
        ("[^[:digit:]]+", ["ab"], ["a1"]),
        ("[]a-]+", ["]a-"], ["b"]),
        (r"\x61\x{62}", ["ab"], ["aB"]),
        ("a{,2}", ["a{,2}"], ["aa"]),
        ("(?P<region>eu|us)-(?<n>1)", ["eu-1"], ["eu-2"]),
        (r"\Aa\z", ["a"], ["b"]),
        ("", [""], ["a"]),
    ],
)
def test_chooses_names(expression: str, matching: list[str], others: list[str]) -> None:
    regex = TopicRegex(expression)
    assert [name for name in matching if not regex.matches(name)] == []
    assert [name for name in others if regex.matches(name)] == []


@pytest.mark.parametrize(
    "expression",
    [
        *("(", ")", "a)", "[a", "[z-a]", "*", "a**", "a{2}{3}", "a{3,2}", "a{1001}", "(?=a)"),
        *("(?<!a)", "(?#x)", r"(a)\1", r"\b", r"\pL", "\\", r"\xzz", "(?P<1>a)", "[[:vowel:]]"),
        *("(?x)a", "(" * 60 + ")" * 60, "(a{100}){100}", r"\x{110000000}"),
    ],
)
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(InvalidRegex) as refusal:
        TopicRegex(expression)
    assert refusal.value.text == expression


@pytest.mark.parametrize(
    "expression", ["(a+)+b", "(a|a)*b", "(a|aa)+$b", ".*.*.*.*.*.*b", "((){1000}){1000}a", "(a*)*b"]
)
def test_what_makes_others_backtrack_for_ever_is_answered_at_once(expression: str) -> None:
    assert not TopicRegex(expression).matches("a" * 249)


@pytest.mark.parametrize(
    "expression",
    [
        *("(.?){999}", "(.?){999,}", "((.?){30}){30}", "(a|.)*.{0,900}", ".*a.{300}"),
        *("(.{1,50}){19}x", "[a-z]{1,900}[^a]{1,90}q", "(a*|.?){400}", "((a?)*(b?)*){100}"),
    ],
)
def test_repetitions_cost_no_more_than_the_links_that_an_expression_may_have(
    expression: str,
) -> None:
    names = [f"{number}{letter * 246}" for number in range(10, 40) for letter in "abz"]
    with contextlib.suppress(InvalidRegex):
        regex = TopicRegex(expression)
        for name in names:
            regex.matches(name)


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("a" * 4097, "at most 4096"),
        (".{1000}.{1000}.", "too large"),
        ("(a?b?c?.?){200}", "too many different things"),
        ("[ab]x|" * 4_000_000, "at most 4096"),
    ],
)
def test_expressions_that_cost_too_much_are_refused(expression: str, reason: str) -> None:
    with pytest.raises(InvalidRegex, match=reason) as refusal:
        TopicRegex(expression)
    assert len(str(refusal.value)) < 1000


def test_long_list_of_topics_is_an_expression() -> None:
    regex = TopicRegex("|".join(f"orders-{number}" for number in range(180)))
    assert regex.matches("orders-179")
    assert not regex.matches("orders-180")


def test_what_was_found_out_about_a_name_is_remembered() -> None:
    regex = TopicRegex("orders-.*")
    assert [regex.chooses(name) for name in ["orders-1", "bills", "orders-1", "bills"]] == [
        True,
        False,
        True,
        False,
    ]


@given(st.text(max_size=12))
def test_any_text_is_an_expression_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidRegex):
        TopicRegex(text).matches("orders.eu-1")
