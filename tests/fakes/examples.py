"""How many examples a property is tried with.

`make test` tries a few, the same ones in every run. `make torture` tries many, chosen at random.
"""

from __future__ import annotations

from hypothesis import settings

_FEW = 50
_MANY = 1000

# No deadline: a slow machine is not a failure.
settings.register_profile("same", max_examples=_FEW, derandomize=True, deadline=None)
settings.register_profile("random", max_examples=_MANY, deadline=None)
settings.load_profile("same")


def examples(few: int) -> int:
    """`few`, or as many times more as the profile that is loaded tries more."""
    assert settings.default is not None, "a profile is loaded above"
    return few * settings.default.max_examples // _FEW
