"""Parameters of which each tier of tests takes a part."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], test: int, system: int | None = None) -> list[Any]:
    """Values for `parametrize`: the first `test` of them are in `make test`, the next `system` in
    `make test-system`, all that are left if it is not given, and the rest in `make torture`.
    """
    values = list(values)
    last = len(values) if system is None else test + system
    return [
        *values[:test],
        *(pytest.param(value, marks=pytest.mark.system) for value in values[test:last]),
        *(pytest.param(value, marks=pytest.mark.torture) for value in values[last:]),
    ]
