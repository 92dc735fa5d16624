"""`millstream config` shows, checks and explains settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.settings.reference import reference_file, reference_page
from millstream.settings.sections import PLACES
from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "broker.toml"
    path.write_text("[log]\ncleanup.policy = 'compact,delete'\nsegment.ms = 5\n")
    return path


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **{f"MILLSTREAM_{name}": text for name, text in variables.items()}}
    return subprocess.run(
        [sys.executable, "-m", "millstream", "config", *words],
        capture_output=True,
        text=True,
        env=environment,
        timeout=HANG_S,
        check=False,
    )


def test_show_tells_where_each_value_comes_from(config: Path) -> None:
    shown = run(
        "show",
        "--changed",
        "--config",
        str(config),
        "--set",
        "num.partitions=3",
        LOG_SEGMENT_MS="6",
    )
    rows = [line.split(maxsplit=2) for line in shown.stdout.splitlines()[2:]]
    assert rows == [
        ["log.segment.ms", "6", "MILLSTREAM_LOG_SEGMENT_MS"],
        ["log.cleanup.policy", "compact,delete", f"{config}:2"],
        ["topics.num.partitions", "3", "command line"],
    ]


def test_show_gives_programs_every_setting(config: Path) -> None:
    shown = run("show", "--json", CONFIG=str(config))
    settings = [json.loads(line) for line in shown.stdout.splitlines()]
    assert len(settings) == len(PLACES)
    [policy] = [each for each in settings if each["name"] == "cleanup.policy"]
    assert policy == {
        "section": "log",
        "name": "cleanup.policy",
        "value": ["compact", "delete"],
        "origin": f"{config}:2",
        "variable": "MILLSTREAM_LOG_CLEANUP_POLICY",
        "needs_restart": False,
    }


def test_show_asks_a_running_broker(tmp_path: Path) -> None:
    settings = "[log]\nretention.ms = 12345\n"
    with BrokerProcess(tmp_path, settings=settings, http="127.0.0.1:0") as broker:
        shown = run("show", "--changed", "--json", "--url", broker.url)
    told = {each["name"]: each for each in map(json.loads, shown.stdout.splitlines())}
    assert told["retention.ms"]["value"] == 12345
    assert told["retention.ms"]["origin"] == f"{tmp_path / 'broker.toml'}:2"
    assert told["http.listener"]["origin"] == "command line"


def test_check_is_content_or_tells_all_that_is_wrong(config: Path) -> None:
    good = run("check", str(config))
    assert (good.returncode, good.stderr) == (0, "")
    assert good.stdout == "good; set here, and not left at the default: 2\n"
    config.write_text("[log]\nsegment.ms = 'x'\nsegmet.ms = 1\n")
    bad = run("check", str(config))
    assert (bad.returncode, bad.stdout) == (1, "")
    assert bad.stderr.splitlines() == [
        "millstream: 2 settings cannot be as they are:",
        f"  {config}:2: segment.ms = 'x': expected a whole number from 1 to 9223372036854775807",
        (
            f"  {config}:3: segmet.ms = 1: expected the name of a setting in [log]; "
            "did you mean segment.ms?"
        ),
    ]


def test_check_tells_programs_what_is_wrong(config: Path) -> None:
    good = run("check", str(config), "--json")
    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    config.write_text("[log]\nsegment.ms = 2026-01-01\nsegmet.ms = 1\n")
    bad = run("check", str(config), "--json")
    assert (bad.returncode, bad.stderr) == (1, "")
    first, second = map(json.loads, bad.stdout.splitlines())
    assert first == {
        "source": f"{config}:2",
        "name": "segment.ms",
        "value": "datetime.date(2026, 1, 1)",
        "expected": "a whole number from 1 to 9223372036854775807",
    }
    assert (second["source"], second["value"]) == (f"{config}:3", "1")
    config.unlink()
    [absent] = map(json.loads, run("check", str(config), "--json").stdout.splitlines())
    assert (absent["name"], absent["source"]) == ("--config", "")


def test_reference_is_for_programs_too() -> None:
    told = [json.loads(line) for line in run("reference", "--json").stdout.splitlines()]
    assert len(told) == len(PLACES)
    [retention] = [each for each in told if each["name"] == "retention.ms"]
    assert retention["value"] == 604_800_000
    assert retention["allowed"].startswith("a whole number from -1")
    assert retention["meaning"].startswith("Segments whose newest record")


def test_reference_is_printed() -> None:
    assert run("reference").stdout == reference_page()
    assert run("reference", "--toml").stdout == reference_file()
