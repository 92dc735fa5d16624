"""What tests of a broker in this process rely on: a wait that hangs says what it waits for."""

from __future__ import annotations

import pytest

from tests.fakes.open_door import Runner, run, run_plainly, until


@pytest.mark.parametrize("run_on", [run, run_plainly])
@pytest.mark.parametrize(
    ("what", "told"), [("rain", "for rain"), ("", r"the condition at .*test_open_door\.py:\d+")]
)
def test_event_that_does_not_come_is_named(
    run_on: Runner, what: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fakes.open_door.HANG_S", 0.01)
    with pytest.raises(AssertionError, match=told):
        run_on(until(lambda: False, what))


def test_event_that_comes_ends_the_wait() -> None:
    answers = iter([False, False, True])
    run(until(lambda: next(answers)))
    assert list(answers) == []
