"""The programs in examples/, as a newcomer runs them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.broker_process import BrokerProcess
from tests.fakes.child_process import ROOT, ChildProcess
from tests.fakes.patience import HANG_S
from tests.fakes.patient_client import connect

pytestmark = pytest.mark.system

# What each demonstration says.
SAID = {
    "analytics": (
        r"since 20:00:00:\n20:00:00    300 views: / .*\n20:00:30    300 .*\n20:01:00    300 .*\n"
        r"20:01:30    300 .*\nsince 20:01:00:\n20:01:00    300 .*\n20:01:30    300 .*\n"
    ),
    "chat": (
        r"\[.*\] ada: Hello! Is anybody here\?\n\[.*\] bob: I am.*\n\[.*\] ada: .*\n"
        r"\[.*\] bob: See you tomorrow, then\.\n"
    ),
    "log_collection": (
        r"Monday: collected 300 lines, 0 are left\nTuesday: collected 300 lines, 0 are left\n"
        r"db-1.log: 200 lines, from 'Monday 0: db-1 is fine' to 'Tuesday 99: db-1 is fine'\n"
        r"web-1.log: 200 lines, .*\nweb-2.log: 200 lines, .*\n"
    ),
    "orders": (
        r"(?s).*ada has paid 12 EUR\n.*attempt 3: NotCharged: 1900 EUR is more than 1000\n"
        r".*dead letters:\norder 0:1: .*gold.*3 attempts, the last: NotCharged.*"
        r"1 orders will be tried again\n.*bob has paid 900 EUR\npaid in all: 918 EUR\n"
    ),
}
PROGRAMS = sorted(SAID)


def run(program: str, *words: str, typed: str = "") -> str:
    """What a program says, which has to end well."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{program}.py"), *words],
        input=typed,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    return done.stdout


def test_every_program_is_tested_here() -> None:
    assert sorted(path.stem for path in (ROOT / "examples").glob("*.py")) == PROGRAMS


@pytest.mark.parametrize("program", PROGRAMS)
def test_demonstration_ends_by_itself_and_leaves_nothing(
    broker: BrokerProcess, program: str
) -> None:
    assert re.fullmatch(SAID[program], run(program, "--demo", "--url", broker.url))
    with connect(broker.url) as connection:
        assert not [each for each in connection.topics.list() if "-demo-" in each]


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_says_how_to_run_it(program: str) -> None:
    said = run(program, "--help")
    assert "millstream serve" in " ".join(said.split())
    assert f"python examples/{program}.py --demo" in said


def test_who_enters_a_room_sees_what_was_said(broker: BrokerProcess, name: str) -> None:
    where = ("--room", name, "--url", broker.url)
    run("chat", "ada", *where, typed="hello\n\nand bye\n")
    program = str(ROOT / "examples" / "chat.py")
    with ChildProcess(sys.executable, program, "bob", *where) as bob:
        assert bob.next_line().endswith("ada: hello")
        assert bob.next_line().endswith("ada: and bye")
        assert bob.finish() == (0, "", "")


def test_shipped_file_is_collected(broker: BrokerProcess, name: str, tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_text("one\ntwo\n")
    where = ("--topic", name, "--url", broker.url)
    shipped = run("log_collection", "ship", str(tmp_path / "log.txt"), "--machine", "../x", *where)
    collected = run("log_collection", "collect", str(tmp_path / "all"), "--once", *where)
    assert (shipped, collected) == ("2 lines\n", "2 lines\n")
    assert [path.name for path in (tmp_path / "all").iterdir()] == ["___x.log"]
    assert (tmp_path / "all" / "___x.log").read_text() == "one\ntwo\n"


def test_order_is_placed_worked_off_put_aside_and_tried_again(
    broker: BrokerProcess, name: str
) -> None:
    where = ("--topic", name, "--url", broker.url)
    assert run("orders", "place", "bob", "silver", "1", *where).startswith("order 0:0: bob")
    assert "attempt 3: KeyError: 'silver'" in run("orders", "work", "--until-done", *where)
    assert "3 attempts, the last: KeyError" in run("orders", "letters", *where)
    assert run("orders", "replay", *where) == "1 orders will be tried again\n"
