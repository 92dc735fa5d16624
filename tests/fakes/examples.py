"""How many examples a property is tried with.

`make test` tries a few, the same ones in every run. `make test-system` tries others, chosen at
random, and `make torture` many of those. One that fails is printed, with the line that tries it
again.
"""

from __future__ import annotations

from hypothesis import settings

_FEW = 50
_OTHERS = 20
_MANY = 1000

# No deadline: a slow machine is not a failure.
settings.register_profile("same", max_examples=_FEW, derandomize=True, deadline=None)
settings.register_profile("others", max_examples=_OTHERS, deadline=None, print_blob=True)
settings.register_profile("random", max_examples=_MANY, deadline=None, print_blob=True)
settings.load_profile("same")


def examples(few: int) -> int:
    """`few`, times what the profile that is loaded tries more or less."""
    assert settings.default is not None, "a profile is loaded above"
    return max(few * settings.default.max_examples // _FEW, 1)
