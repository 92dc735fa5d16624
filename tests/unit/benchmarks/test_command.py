"""`python -m benchmarks` runs every measure, reports it, and judges the bars."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from benchmarks.suite import SUITE
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[3]
EMPTY: Mapping[str, str] = MappingProxyType({})
DOOR = [
    "produce",
    "consume",
    "small_requests",
    "metrics_cost",
    "round_trip",
    "end_to_end",
    "durable_requests",
    "transactions",
    "pylogstreams",
    "python_client",
    "start",
    "many_topics",
    "many_connections",
]
STORAGE = [name for name in SUITE if name not in {*DOOR, "peers", "spark"}]


def run(
    directory: Path, *flags: str, only: Sequence[str] = (), environment: Mapping[str, str] = EMPTY
) -> subprocess.CompletedProcess[str]:
    chosen = [flag for name in only for flag in ("--only", name)]
    return subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", "--quick"),
            *("--directory", str(directory), *chosen, *flags),
        ],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(STORAGE, id="storage"),
        # A minute of brokers and clients, which other tests start as well.
        pytest.param(DOOR, id="door", marks=pytest.mark.torture),
    ],
)
def test_every_measure_is_reported_as_json_and_strict_exits_by_the_bars(
    tmp_path: Path, names: list[str]
) -> None:
    result = run(tmp_path, "--json", "--strict", only=names)
    assert not result.stderr
    document = json.loads(result.stdout)
    measures = document["measures"]
    assert {measure["name"] for measure in measures} == set(names)
    assert all(measure["figure"] >= 0 for measure in measures)
    assert all((measure["bar"] is None) == (measure["met"] is None) for measure in measures)
    assert {"python", "cores", "kernel", "filesystem"} <= set(document["environment"])
    # Figures of a quick run prove nothing, so either verdict will do if the exit agrees with it.
    missed = any(measure["met"] is False for measure in measures)
    assert result.returncode == int(missed)
    assert not list(tmp_path.iterdir())


def test_peers_that_are_not_installed_are_named_and_the_others_compared(tmp_path: Path) -> None:
    nowhere = {"PATH": "", "KAFKA_HOME": str(tmp_path / "nowhere")}
    result = run(tmp_path, "--json", only=["peers"], environment=nowhere)
    assert not result.stderr
    measures = json.loads(result.stdout)["measures"]
    absent = {measure["compared_with"] for measure in measures if measure["absent"]}
    compared = {measure["compared_with"] for measure in measures if measure["comparison"]}
    assert absent == {"Apache Kafka", "RabbitMQ streams", "Redis Streams"}
    # Its server comes with the development dependencies.
    assert compared == {"NATS JetStream"}


def test_other_load_is_measured_without_a_bar(tmp_path: Path) -> None:
    flags = ("--json", "--message-bytes", "500", "--messages", "100", "--acks", "all")
    result = run(tmp_path, *flags, only=["produce"])
    (measure,) = json.loads(result.stdout)["measures"]
    assert measure["measure"] == "produce 500 B, acks=all"
    assert measure["bar"] is None


def test_table_shows_the_chosen_measure_beside_its_bar(tmp_path: Path) -> None:
    result = run(tmp_path, only=["reopen"])
    assert result.returncode == 0
    assert "open after a clean stop" in result.stdout
    assert "at most 1 s" in result.stdout
    assert "append" not in result.stdout


def test_unknown_measure_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, only=["nonsense"])
    assert result.returncode == 2
    assert "nonsense" in result.stderr
