"""Whatever clients of a right log do, the checker finds nothing; however it is spoiled, it does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes.examples import examples
from tests.transactions.anomaly import Kind
from tests.transactions.checker import check
from tests.transactions.history_mutation import MUTATIONS, Mutation
from tests.transactions.model_run import ModelRun, Step

NUMBERS = st.integers(0, 11)
STEPS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), max_size=80)


def random_steps(count: int, *, seed: int) -> list[Step]:
    random = Random(seed)
    return [
        (random.randrange(12), random.randrange(12), random.randrange(12)) for _ in range(count)
    ]


@settings(max_examples=examples(60))
@given(steps=STEPS)
def test_history_of_a_right_log_is_clean(steps: list[Step]) -> None:
    assert check(ModelRun().play(steps)) == []


@pytest.mark.parametrize("seed", range(5))
def test_long_history_of_a_right_log_is_clean(seed: int) -> None:
    assert check(ModelRun().play(random_steps(1000, seed=seed))) == []


@pytest.mark.parametrize(
    ("mutation", "kinds"), MUTATIONS, ids=lambda each: getattr(each, "__name__", "")
)
@settings(max_examples=examples(10))
@given(steps=STEPS, seed=st.integers(0, 1 << 32))
def test_spoiled_history_is_found_out(
    mutation: Mutation, kinds: frozenset[Kind], steps: list[Step], seed: int
) -> None:
    # A beginning in which everything happens, so that there is always something to spoil.
    history = ModelRun().play([*random_steps(150, seed=1), *steps])
    spoiled = mutation(history, Random(seed))
    assert spoiled is not None
    assert kinds & {anomaly.kind for anomaly in check(spoiled)}
