"""`millstream serve` as a person or a supervisor meets it: a real process."""

from __future__ import annotations

import os
import pty
import re
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import millstream
from tests.fakes.child_process import ChildProcess

pytestmark = pytest.mark.system

Start = Callable[..., ChildProcess]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a broker with the given arguments; ends those that the test leaves running."""
    with ExitStack() as running:

        def start_one(*arguments: str) -> ChildProcess:
            return running.enter_context(
                ChildProcess(sys.executable, "-m", "millstream", *arguments)
            )

        yield start_one


def lines_until_ready(process: ChildProcess) -> list[str]:
    lines = [process.next_line()]
    while not lines[-1].startswith("ready"):
        lines.append(process.next_line())
    return lines


def failure(process: ChildProcess) -> str:
    """The one line of a start that must fail."""
    done = process.finish()
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("millstream: ")
    return done.stderr


def assert_stopped(process: ChildProcess) -> None:
    done = process.finish()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "stopped"


OTHERS_OFF = ("--http", "off", "--pylogstreams", "off")
SERVE = ("serve", "--kafka", "127.0.0.1:0", *OTHERS_OFF)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_signal_stops_the_broker_cleanly(
    start: Start, tmp_path: Path, signal_number: signal.Signals
) -> None:
    data = tmp_path / "data"
    process = start(*SERVE, "--data-dir", str(data))
    assert re.fullmatch(
        rf"ready data={data} kafka=127\.0\.0\.1:\d+", lines_until_ready(process)[-1]
    )
    assert data.is_dir()
    process.signal(signal_number)
    assert_stopped(process)


def test_stopped_broker_starts_again_on_its_data(start: Start, tmp_path: Path) -> None:
    for _ in range(2):
        process = start(*SERVE, "--data-dir", str(tmp_path / "data"))
        lines_until_ready(process)
        process.signal(signal.SIGTERM)
        assert_stopped(process)


def test_killed_broker_starts_again_on_its_data(start: Start, tmp_path: Path) -> None:
    for _ in range(2):
        process = start(*SERVE, "--data-dir", str(tmp_path / "data"))
        lines_until_ready(process)
        process.kill()


def test_second_broker_on_one_directory_is_refused(start: Start, tmp_path: Path) -> None:
    first = start(*SERVE, "--data-dir", str(tmp_path))
    lines_until_ready(first)
    message = failure(start(*SERVE, "--data-dir", str(tmp_path)))
    assert str(tmp_path) in message
    assert str(first.pid) in message


def test_data_directory_that_is_a_file_is_refused(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("not a directory")
    assert str(path) in failure(start(*SERVE, "--data-dir", str(path)))


def test_bad_setting_is_refused_with_its_line(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("[log]\nsegment.bytes = 0\n")
    message = failure(start(*SERVE, "--config", str(config)))
    assert message.startswith(f"millstream: {config}:2: segment.bytes = 0: expected")


def test_config_file_chooses_the_data_directory(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text(f'[storage]\ndata.dir = "{tmp_path}/chosen"\n')
    process = start(*SERVE, "--config", str(config))
    assert lines_until_ready(process)[-1].startswith(f"ready data={tmp_path}/chosen ")


def test_kafka_door_can_stay_closed(start: Start, tmp_path: Path) -> None:
    process = start("serve", "--data-dir", str(tmp_path), "--kafka", "off", *OTHERS_OFF)
    assert lines_until_ready(process)[-1] == f"ready data={tmp_path}"


def test_http_door_tells_its_address(start: Start, tmp_path: Path) -> None:
    process = start(*SERVE, "--data-dir", str(tmp_path), "--http", "127.0.0.1:0")
    ready = lines_until_ready(process)[-1]
    assert re.fullmatch(
        rf"ready data={tmp_path} kafka=127\.0\.0\.1:\d+ http=127\.0\.0\.1:\d+", ready
    )


@pytest.mark.parametrize(("host", "is_warned"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_address_that_others_can_reach_is_warned_of(
    start: Start, tmp_path: Path, host: str, is_warned: bool
) -> None:
    process = start("serve", "--data-dir", str(tmp_path), "--kafka", f"{host}:0", *OTHERS_OFF)
    said = "\n".join(lines_until_ready(process))
    assert ("there is no authentication" in said) == is_warned


def test_reload_while_the_broker_starts_is_done_when_it_stands(
    start: Start, tmp_path: Path
) -> None:
    config, data = tmp_path / "broker.toml", str(tmp_path / "data")
    os.mkfifo(config)
    process = start(*SERVE, "--data-dir", data, "--config", str(config))
    with config.open("w"):
        # It reads its settings now.
        process.signal(signal.SIGHUP)
        newer = tmp_path / "newer.toml"
        newer.write_text("[log]\nretention.ms = 5\n")
        newer.replace(config)
    lines_until_ready(process)
    assert "reloaded: log.retention.ms = 5" in process.next_error()


def test_terminal_that_closes_stops_the_broker(tmp_path: Path) -> None:
    terminal, stdin = pty.openpty()
    try:
        command = (sys.executable, "-m", "millstream", *SERVE, "--data-dir", str(tmp_path))
        with ChildProcess(*command, stdin=stdin) as process:
            lines_until_ready(process)
            process.signal(signal.SIGHUP)
            assert_stopped(process)
    finally:
        os.close(terminal)
        os.close(stdin)


def test_address_in_use_is_refused(start: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        message = failure(
            start("serve", "--data-dir", str(tmp_path), "--kafka", address, *OTHERS_OFF)
        )
    assert message.startswith(
        f"millstream: listeners = '{address}': expected an address that is free"
    )
    assert "in use" in message


@pytest.mark.parametrize("address", ["9092", "localhost:", ":9092", "localhost:65536", "a:b:1"])
def test_what_is_no_address_is_refused(start: Start, tmp_path: Path, address: str) -> None:
    message = failure(start("serve", "--data-dir", str(tmp_path), "--kafka", address))
    assert f"listeners = '{address}': expected HOST:PORT" in message


@pytest.mark.parametrize("flag", ["--kafka", "--http", "--pylogstreams"])
def test_host_that_cannot_be_is_refused(start: Start, tmp_path: Path, flag: str) -> None:
    doors = {"--kafka": "off", "--http": "off", "--pylogstreams": "off", flag: "a..b:0"}
    words = [word for pair in doors.items() for word in pair]
    message = failure(start("serve", "--data-dir", str(tmp_path), *words))
    assert "= 'a..b:0': expected an address that is free to listen on (" in message


def test_unknown_flag_is_a_usage_error(start: Start) -> None:
    done = start("serve", "--no-such-flag").finish()
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_version_is_printed(start: Start) -> None:
    assert start("--version").finish() == (0, f"millstream {millstream.__version__}\n", "")


def test_broker_runs_without_uvloop(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    process = start(*SERVE, "--data-dir", str(tmp_path / "data"))
    lines_until_ready(process)
    process.signal(signal.SIGTERM)
    assert_stopped(process)
