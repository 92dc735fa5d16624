"""Parameters of which `make test` takes a sample, and `make test-system` the rest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def sampled(values: Iterable[Any], count: int) -> list[Any]:
    """Of these values for `parametrize`, the first `count` are in `make test`."""
    values = list(values)
    rest = [pytest.param(value, marks=pytest.mark.system) for value in values[count:]]
    return [*values[:count], *rest]
