"""Stands in for `pip install` in documents: proves that what is asked for is known and is there."""

from __future__ import annotations

import sys
from importlib.metadata import distribution

from packaging.requirements import Requirement


def check(words: list[str]) -> None:
    command, *requirements = words
    assert command == "install", words
    for requirement in map(Requirement, (word for word in requirements if word != ".")):
        found = distribution(requirement.name)
        assert found.version in requirement.specifier, f"{requirement}: there is {found.version}"
        extras = set(found.metadata.get_all("Provides-Extra") or ())
        assert requirement.extras <= extras, f"{requirement}: there are {sorted(extras)}"


if __name__ == "__main__":
    check(sys.argv[1:])
