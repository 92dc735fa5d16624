"""The checker finds each anomaly in a small history that is clean without it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.transactions.anomaly import Kind
from tests.transactions.checker import check
from tests.transactions.history import Action, Phase, Position, Recorder, read_history
from tests.transactions.history_script import TOPIC, HistoryScript

Play = Callable[[HistoryScript, bool], None]


def lost_write(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 0)
    script.send("plain", "b", 1)
    script.send("plain", "c", 2)
    script.assign("reader", 0)
    kept = [(0, "a"), (2, "c")]
    script.poll("reader", kept if is_seeded else [(0, "a"), (1, "b"), (2, "c")])


def lost_last_write(script: HistoryScript, is_seeded: bool) -> None:
    """What nobody went past by reading, a reader went past by reaching the end."""
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.commit("writer")
    script.assign("reader", 0)
    if not is_seeded:
        script.poll("reader", [(0, "a")])
    script.end("reader", 2)


def lost_write_of_unknown_offset(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a")
    script.assign("reader", 0)
    if not is_seeded:
        script.poll("reader", [(0, "a")])
    script.end("reader", 1)


def duplicate(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 0)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a")])
    if is_seeded:
        script.poll("reader", [(1, "a")])


def aborted_read(script: HistoryScript, is_seeded: bool) -> None:
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.abort("writer")
    script.send("plain", "b", 2)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a"), (2, "b")] if is_seeded else [(2, "b")])


def aborted_read_of_killed_worker(script: HistoryScript, is_seeded: bool) -> None:
    """Nobody asked to commit it, and the next worker fenced it."""
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.open("successor", "id")
    script.assign("reader", 0)
    if is_seeded:
        script.poll("reader", [(0, "a")])


def aborted_read_of_fenced_worker(script: HistoryScript, is_seeded: bool) -> None:
    """That the commit's answer is unknown does not help: it was fenced before."""
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    if is_seeded:
        script.open("successor", "id")
    script.commit("writer", Phase.UNKNOWN)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a")])


def aborted_read_of_failed_send(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", phase=Phase.FAIL)
    script.assign("reader", 0)
    if is_seeded:
        script.poll("reader", [(0, "a")])


def intermediate_read(script: HistoryScript, is_seeded: bool) -> None:
    script.open("writer", "id")
    script.assign("reader", 0)
    script.begin("writer")
    script.send("writer", "a", 0)
    if is_seeded:
        script.poll("reader", [(0, "a")])
    script.commit("writer")
    if not is_seeded:
        script.poll("reader", [(0, "a")])


def phantom_read(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 0)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a"), (1, "never sent")] if is_seeded else [(0, "a")])


def phantom_read_in_other_partition(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 0, partition=0)
    script.assign("reader", 0, partition=1 if is_seeded else 0)
    script.poll("reader", [(0, "a")], partition=1 if is_seeded else 0)


def torn_transaction(script: HistoryScript, is_seeded: bool) -> None:
    """The commit's answer was lost: it may be there or not, but not by half."""
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0, partition=0)
    script.send("writer", "b", 0, partition=1)
    script.commit("writer", Phase.UNKNOWN)
    for partition, value in enumerate("ab"):
        script.assign("reader", 0, partition=partition)
        if value == "a" or not is_seeded:
            script.poll("reader", [(0, value)], partition=partition)
        script.end("reader", 2, partition=partition)


def two_values_at_one_offset(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", phase=None)
    script.send("plain", "b", phase=None)
    for reader, value in (("first", "a"), ("second", "b" if is_seeded else "a")):
        script.assign(reader, 0)
        script.poll(reader, [(0, value)])


def two_values_told_one_offset(script: HistoryScript, is_seeded: bool) -> None:
    script.send("one", "a", 0)
    script.send("other", "b", 0 if is_seeded else 1)


def value_not_where_it_was_told(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 1 if is_seeded else 0)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a")])


def internal_nonmonotonic_poll(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("abc"):
        script.send("plain", value, offset)
    script.assign("reader", 0)
    found = [(0, "a"), (1, "b"), (2, "c")]
    script.poll("reader", [found[1], found[0], found[2]] if is_seeded else found)


def nonmonotonic_poll(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("abc"):
        script.send("plain", value, offset)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a"), (1, "b")])
    script.poll("reader", [(1, "b"), (2, "c")] if is_seeded else [(2, "c")])


def nonmonotonic_poll_after_seek(script: HistoryScript, is_seeded: bool) -> None:
    """A seek allows what is from there on, and nothing before."""
    for offset, value in enumerate("ab"):
        script.send("plain", value, offset)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a"), (1, "b")])
    script.move("reader", Action.SEEK, Position(TOPIC, 0, 1 if is_seeded else 0))
    script.poll("reader", [(0, "a"), (1, "b")])


def nonmonotonic_poll_without_revocation(script: HistoryScript, is_seeded: bool) -> None:
    """A partition that stays with its consumer goes on where it was."""
    script.send("plain", "a", 0)
    script.assign("member", group="group")
    script.poll("member", [(0, "a")], group="group")
    if not is_seeded:
        script.move("member", Action.REVOKE, Position(TOPIC, 0, -1))
    script.assign("member", group="group")
    script.poll("member", [(0, "a")], group="group")


def internal_poll_skip(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("abc"):
        script.send("plain", value, offset)
    for reader in ("first", "second"):
        script.assign(reader, 0)
    script.poll("first", [(0, "a"), (1, "b"), (2, "c")])
    kept = [(0, "a"), (2, "c")]
    script.poll("second", kept if is_seeded else [(0, "a"), (1, "b"), (2, "c")])


def poll_skip(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("abc"):
        script.send("plain", value, offset)
    for reader in ("first", "second"):
        script.assign(reader, 0)
    script.poll("first", [(0, "a"), (1, "b"), (2, "c")])
    script.poll("second", [(0, "a")] if is_seeded else [(0, "a"), (1, "b")])
    script.poll("second", [(2, "c")])


def poll_skip_at_the_start(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("ab"):
        script.send("plain", value, offset)
    script.assign("first", 0)
    script.poll("first", [(0, "a"), (1, "b")])
    script.assign("second", 0 if is_seeded else 1)
    script.poll("second", [(1, "b")])


def poll_skip_at_the_end(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("ab"):
        script.send("plain", value, offset)
    for reader in ("first", "second"):
        script.assign(reader, 0)
        script.poll(reader, [(0, "a")])
    script.poll("first", [(1, "b")])
    script.end("second", 2 if is_seeded else 1)


def group_skip(script: HistoryScript, is_seeded: bool) -> None:
    for offset, value in enumerate("abc"):
        script.send("plain", value, offset)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a"), (1, "b"), (2, "c")])
    script.assign("first", group="group")
    script.poll("first", [(0, "a")], group="group")
    script.move("first", Action.REVOKE, Position(TOPIC, 0, -1), group="group")
    script.assign("second", group="group")
    script.poll("second", [(2, "c")] if is_seeded else [(1, "b"), (2, "c")], group="group")


def internal_nonmonotonic_send(script: HistoryScript, is_seeded: bool) -> None:
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 1 if is_seeded else 0)
    script.send("writer", "b", 0 if is_seeded else 1)
    script.commit("writer")


def nonmonotonic_send(script: HistoryScript, is_seeded: bool) -> None:
    script.open("writer", "id")
    for value, offset in (("a", 5), ("b", 3 if is_seeded else 7)):
        script.begin("writer")
        script.send("writer", value, offset)
        script.commit("writer")


def nonmonotonic_plain_send(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 1)
    script.send("plain", "b", 0 if is_seeded else 2)


def zombie_commit(script: HistoryScript, is_seeded: bool) -> None:
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.open("successor", "id" if is_seeded else "another id")
    script.commit("writer")


def processed_twice(script: HistoryScript, is_seeded: bool) -> None:
    script.send("plain", "a", 0)
    _process(script, "worker", "a1", source=0, offset=0, phase=Phase.UNKNOWN)
    _process(script, "worker", "a2", source=0, offset=2)
    script.assign("reader", 0, topic="results")
    found = [(0, "a1"), (2, "a2")]
    script.poll("reader", found if is_seeded else found[1:], topic="results")
    script.end("reader", 4, topic="results")


def never_processed(script: HistoryScript, is_seeded: bool) -> None:
    """The offsets of a transaction are there, its results are not."""
    for offset, value in enumerate("ab"):
        script.send("plain", value, offset)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a"), (1, "b")])
    _process(script, "worker", "a1", source=0, offset=0, phase=Phase.UNKNOWN)
    _process(script, "worker", "b1", source=1, offset=2)
    script.assign("reader", 0, topic="results")
    found = [(0, "a1"), (2, "b1")]
    script.poll("reader", found[1:] if is_seeded else found, topic="results")
    script.end("reader", 4, topic="results")


def _process(
    script: HistoryScript,
    worker: str,
    value: str,
    *,
    source: int,
    offset: int,
    phase: Phase = Phase.OK,
) -> None:
    script.open(worker, "id")
    script.begin(worker)
    made_of = Position(TOPIC, 0, source)
    script.send(worker, value, offset, topic="results", source=made_of, group="group")
    script.commit(worker, phase)


PLAYS: list[tuple[Kind, Play]] = [
    (Kind.LOST_WRITE, lost_write),
    (Kind.LOST_WRITE, lost_last_write),
    (Kind.LOST_WRITE, lost_write_of_unknown_offset),
    (Kind.DUPLICATE, duplicate),
    (Kind.ABORTED_READ, aborted_read),
    (Kind.ABORTED_READ, aborted_read_of_killed_worker),
    (Kind.ABORTED_READ, aborted_read_of_fenced_worker),
    (Kind.ABORTED_READ, aborted_read_of_failed_send),
    (Kind.INTERMEDIATE_READ, intermediate_read),
    (Kind.PHANTOM_READ, phantom_read),
    (Kind.PHANTOM_READ, phantom_read_in_other_partition),
    (Kind.TORN_TRANSACTION, torn_transaction),
    (Kind.INCONSISTENT_OFFSETS, two_values_at_one_offset),
    (Kind.INCONSISTENT_OFFSETS, two_values_told_one_offset),
    (Kind.INCONSISTENT_OFFSETS, value_not_where_it_was_told),
    (Kind.INTERNAL_NONMONOTONIC_POLL, internal_nonmonotonic_poll),
    (Kind.NONMONOTONIC_POLL, nonmonotonic_poll),
    (Kind.NONMONOTONIC_POLL, nonmonotonic_poll_after_seek),
    (Kind.NONMONOTONIC_POLL, nonmonotonic_poll_without_revocation),
    (Kind.INTERNAL_POLL_SKIP, internal_poll_skip),
    (Kind.POLL_SKIP, poll_skip),
    (Kind.POLL_SKIP, poll_skip_at_the_start),
    (Kind.POLL_SKIP, poll_skip_at_the_end),
    (Kind.GROUP_SKIP, group_skip),
    (Kind.INTERNAL_NONMONOTONIC_SEND, internal_nonmonotonic_send),
    (Kind.NONMONOTONIC_SEND, nonmonotonic_send),
    (Kind.NONMONOTONIC_SEND, nonmonotonic_plain_send),
    (Kind.ZOMBIE_COMMIT, zombie_commit),
    (Kind.PROCESSED_TWICE, processed_twice),
    (Kind.NEVER_PROCESSED, never_processed),
]


def kinds_in(play: Play, *, is_seeded: bool) -> list[Kind]:
    script = HistoryScript()
    play(script, is_seeded)
    return [anomaly.kind for anomaly in check(script.events)]


@pytest.mark.parametrize(("kind", "play"), PLAYS, ids=lambda each: getattr(each, "__name__", ""))
def test_seeded_anomaly_is_found_and_nothing_else(kind: Kind, play: Play) -> None:
    assert kinds_in(play, is_seeded=False) == []
    assert kinds_in(play, is_seeded=True) == [kind]


def test_every_kind_is_seeded() -> None:
    assert {kind for kind, _ in PLAYS} == set(Kind)


def test_torn_transaction_with_acknowledged_commit_has_a_lost_write_too() -> None:
    script = HistoryScript()
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.send("writer", "b", 1)
    script.commit("writer")
    script.assign("reader", 0)
    script.poll("reader", [(0, "a")])
    script.end("reader", 3)
    found = {anomaly.kind for anomaly in check(script.events)}
    assert found == {Kind.TORN_TRANSACTION, Kind.LOST_WRITE}


def test_value_at_the_offset_of_another_is_a_duplicate_with_inconsistent_offsets() -> None:
    script = HistoryScript()
    script.send("plain", "a", 0)
    script.send("plain", "b", 1)
    for reader, second in (("first", "b"), ("second", "a")):
        script.assign(reader, 0)
        script.poll(reader, [(0, "a"), (1, second)])
    found = {anomaly.kind for anomaly in check(script.events)}
    assert found == {Kind.DUPLICATE, Kind.INCONSISTENT_OFFSETS}


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("phase", [Phase.UNKNOWN, None])
def test_commit_of_unknown_outcome_may_be_there_or_not(phase: Phase | None, is_there: bool) -> None:
    script = HistoryScript()
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.send("writer", "b", 1)
    script.commit("writer", phase)
    script.open("successor", "id")
    script.assign("reader", 0)
    if is_there:
        script.poll("reader", [(0, "a"), (1, "b")])
    script.end("reader", 3)
    assert check(script.events) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_plain_write_of_unknown_outcome_may_be_there_or_not(is_there: bool) -> None:
    script = HistoryScript()
    script.send("plain", "a", phase=Phase.UNKNOWN)
    script.assign("reader", 0)
    if is_there:
        script.poll("reader", [(0, "a")])
    script.end("reader", 1)
    assert check(script.events) == []


def test_abort_after_a_commit_of_unknown_outcome_proves_nothing() -> None:
    script = HistoryScript()
    script.open("writer", "id")
    script.begin("writer")
    script.send("writer", "a", 0)
    script.note("writer", Phase.INVOKE, Action.COMMIT, transaction=1)
    script.note("writer", Phase.UNKNOWN, Action.COMMIT, transaction=1)
    script.abort("writer")
    script.assign("reader", 0)
    script.poll("reader", [(0, "a")])
    assert check(script.events) == []


def test_write_past_all_readers_is_not_lost() -> None:
    script = HistoryScript()
    script.send("plain", "a", 0)
    script.send("plain", "b", 1)
    script.assign("reader", 0)
    script.poll("reader", [(0, "a")])
    assert check(script.events) == []


def test_history_comes_back_from_its_files_without_a_torn_line(tmp_path: Path) -> None:
    script = HistoryScript()
    torn_transaction(script, is_seeded=True)
    for worker in ("writer", "reader"):
        with Recorder(tmp_path, worker) as recorder:
            for event in script.events:
                if event.worker == worker:
                    recorder.note(**_noted(event._asdict()))
    with (tmp_path / "reader.jsonl").open("a") as file:
        file.write('{"worker":"reader","line":99,"ti')
    found = read_history(tmp_path)
    assert [_noted(event._asdict()) for event in found if event.worker == "reader"] == [
        _noted(event._asdict()) for event in script.events if event.worker == "reader"
    ]
    assert [anomaly.kind for anomaly in check(found)] == [Kind.TORN_TRANSACTION]


def _noted(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: each for name, each in fields.items() if name not in {"worker", "line", "time_ns"}
    }
