"""Transactional clients of two libraries, with brokers and workers killed under them.

    TORTURE_SECONDS=3600 make torture ARGS="-k histories"

TORTURE_SEED gives the seed, which is otherwise a new one each time and is printed. What
a failed run leaves is kept, and where is printed as well.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.transactions.anomaly import Anomaly, Kind
from tests.transactions.checker import check
from tests.transactions.history import read_history
from tests.transactions.run_summary import summary
from tests.transactions.workload import Workload

pytestmark = pytest.mark.system

TEST_S = 60
TORTURE_S = 600
FAULTY_S = 10
FAULTY_ROUNDS = 20
# A longer run is made of rounds, each with a history that is small enough to be judged at once.
ROUND_S = 60
SPARE_ROUNDS = 4
EARLY_SHARE = 0.2
SETTINGS = """
[groups]
group.min.session.timeout.ms = 500
group.initial.rebalance.delay.ms = 50

[storage]
millstream.checkpoint.ms = 500
"""
# What a run must come to, at the least, for each minute; a run goes on until it has.
MINIMUM = {
    "committed transactions": 100,
    "aborted transactions": 5,
    "asked to abort": 2,
    "fenced": 1,
    "timed out": 1,
    "plain writes": 100,
    "results": 50,
    "reads": 1000,
    "assignments in groups": 4,
    "broker kills": 4,
    "worker kills": 4,
}
SHOWN_ANOMALIES = 10


def run_rounds(path: Path, *, seconds: float) -> None:
    seed = int(os.environ.get("TORTURE_SEED") or Random().getrandbits(32))
    print(f"seed {seed}")
    total: Counter[str] = Counter()
    rounds = max(round(seconds / ROUND_S), 1)
    minimum = {name: least * rounds for name, least in MINIMUM.items()}
    with (
        kept_on_failure(path, seed),
        BrokerProcess(path / "broker", settings=SETTINGS) as broker,
    ):
        random = Random(seed)
        # A slow machine needs more rounds.
        for number in range(rounds * 3 + SPARE_ROUNDS):
            workload = Workload(
                bootstrap=broker.address,
                directory=path / "history" / str(number),
                seed=random.getrandbits(32),
                round=number,
                kill_broker=lambda: kill_and_restart(broker, random),
            )
            workload.run(seconds / rounds)
            total += judge(workload)
            print(f"round {number}: {dict(sorted(total.items()))}")
            shutil.rmtree(workload.directory)
            if number + 1 >= rounds and not too_few(total, minimum):
                break
        else:
            pytest.fail(f"too few in all rounds: {too_few(total, minimum)}, of {minimum}")
        broker.stop()
        assert broker.complaints() == []


def too_few(total: Counter[str], minimum: dict[str, int]) -> dict[str, int]:
    return {name: total[name] for name in minimum if total[name] < minimum[name]}


def kill_and_restart(broker: BrokerProcess, random: Random) -> None:
    broker.kill()
    if random.random() < EARLY_SHARE:
        broker.start_and_kill(random.random())
    broker.start()


def judge(workload: Workload) -> Counter[str]:
    history = read_history(workload.directory)
    anomalies = check(history)
    assert not anomalies, told(anomalies)
    found = summary(history)
    found["broker kills"] = workload.broker_kills
    found["worker kills"] = workload.worker_kills
    return found


def told(anomalies: list[Anomaly]) -> str:
    counts = Counter(str(anomaly.kind) for anomaly in anomalies)
    shown = "\n".join(str(anomaly) for anomaly in anomalies[:SHOWN_ANOMALIES])
    return f"{dict(counts)}\n{shown}"


@contextmanager
def kept_on_failure(path: Path, seed: int) -> Iterator[None]:
    try:
        yield
    except BaseException:
        kept = Path(tempfile.mkdtemp(prefix="millstream-history-"))
        shutil.copytree(path, kept, dirs_exist_ok=True)
        print(f"seed {seed}: the histories and the broker's data are in {kept}")
        raise


def test_histories_of_a_minute_have_no_anomaly(tmp_path: Path) -> None:
    run_rounds(tmp_path / "run", seconds=TEST_S)


def test_readers_of_what_is_not_committed_are_found_out(tmp_path: Path) -> None:
    """The same load, with a fault that every broker would show: so the whole of it can fail."""
    with BrokerProcess(tmp_path / "broker", settings=SETTINGS) as broker:
        found: set[Kind] = set()
        for number in range(FAULTY_ROUNDS):
            workload = Workload(
                bootstrap=broker.address,
                directory=tmp_path / "history" / str(number),
                seed=number,
                round=number,
                isolation="read_uncommitted",
            )
            workload.run(FAULTY_S)
            found |= {anomaly.kind for anomaly in check(read_history(workload.directory))}
            if found & {Kind.ABORTED_READ, Kind.INTERMEDIATE_READ}:
                break
        else:
            pytest.fail(f"no read of what was not committed was found, only {found}")


@pytest.mark.torture
def test_histories_have_no_anomaly(tmp_path: Path) -> None:
    seconds = float(os.environ.get("TORTURE_SECONDS") or TORTURE_S)
    run_rounds(tmp_path / "run", seconds=seconds)
