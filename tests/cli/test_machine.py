"""`millstream bench` and `millstream doctor`."""

from __future__ import annotations

import json
import socket
from pathlib import Path

from tests.cli.command import Command


def test_bench_measures_each_phase_and_leaves_nothing(cli: Command) -> None:
    options = ("-n", "3000", "--samples", "5", "-p", "2", "--compression", "lz4", "--size", "50")
    rows = cli.objects("bench", *options)
    assert [row["phase"] for row in rows] == ["produce", "consume", "latency"]
    assert [row["messages"] for row in rows] == [3000, 3000, 5]
    for row in rows:
        assert row["messages_per_second"] > 0
        assert 0 <= row["p50_ms"] <= row["p95_ms"] <= row["p99_ms"] <= row["max_ms"]
    assert "millstream-bench" not in cli.output("topic", "list")
    title = cli.output("bench", "latency", "--samples", "3", "--acks", "1").splitlines()
    assert title[0].endswith("acks=1, compression=none, batches of 1,000")
    assert title[2].split()[:2] == ["PHASE", "MESSAGES/S"]


def test_bench_refuses_batches_that_no_broker_takes(cli: Command) -> None:
    said = cli.failure(2, "bench", "--size", "99999999999", "-n", "1")
    assert said.startswith("no batch can be so large: give less for --size or --batch")


def test_doctor_says_what_is_wrong_and_what_to_do(cli: Command, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        options = ("doctor", "--data-dir", str(tmp_path / "not" / "yet"), "--port", str(port))
        done = cli.run(*options, "--json")
        found = {each["subject"]: each for each in map(json.loads, done.stdout.splitlines())}
        said = cli.run(*options).stdout.decode()
    assert done.returncode == int(any(each["verdict"] == "fail" for each in found.values()))
    assert found[f"port {port}"]["verdict"] == "warn"
    assert found[f"port {port}"]["advice"]
    assert "ms median" in found["disk sync"]["told"]
    assert {"python", "packages", "disk space", "disk type", "open files", "memory"} <= set(found)
    assert {"clock", "spark", "system", "millstream"} <= set(found)
    assert f"WARN  port {port}" in said
    assert list(tmp_path.iterdir()) == []


def test_doctor_goes_on_where_the_data_directory_is_a_file(cli: Command, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    done = cli.run("doctor", "--data-dir", str(path), "--port", "0", "--json")
    found = {each["subject"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, found["disk sync"]["verdict"]) == (1, "fail")
    assert found["disk sync"]["advice"] == "choose a folder for --data-dir"
    assert "clock" in found


def test_doctor_refuses_what_is_no_port(cli: Command) -> None:
    assert "65536 is not in the range" in cli.failure(2, "doctor", "--port", "65536")


def test_doctor_fails_where_the_broker_cannot_write(cli: Command) -> None:
    done = cli.run("doctor", "--data-dir", "/proc/self", "--port", "0", "--json")
    found = {each["subject"]: each for each in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, found["disk sync"]["verdict"]) == (1, "fail")
    assert found["disk sync"]["advice"] == "let the broker's user write there"
