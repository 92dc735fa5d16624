"""`python -m benchmarks` runs every measure, reports it, and judges the bars."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.suite import SUITE

ROOT = Path(__file__).resolve().parents[3]


def run(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "benchmarks", "--quick", "--directory", str(directory), *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_every_measure_is_reported_as_json_and_strict_exits_by_the_bars(tmp_path: Path) -> None:
    result = run(tmp_path, "--json", "--strict")
    assert not result.stderr
    document = json.loads(result.stdout)
    measures = document["measures"]
    assert {measure["name"] for measure in measures} == set(SUITE)
    assert all(measure["figure"] >= 0 for measure in measures)
    assert all((measure["bar"] is None) == (measure["met"] is None) for measure in measures)
    assert {"python", "cores", "kernel", "filesystem"} <= set(document["environment"])
    # Figures of a quick run prove nothing, so either verdict will do if the exit agrees with it.
    missed = any(measure["met"] is False for measure in measures)
    assert result.returncode == int(missed)
    assert not list(tmp_path.iterdir())


def test_table_shows_the_chosen_measure_beside_its_bar(tmp_path: Path) -> None:
    result = run(tmp_path, "--only", "reopen")
    assert result.returncode == 0
    assert "open after a clean stop" in result.stdout
    assert "at most 1 s" in result.stdout
    assert "append" not in result.stdout


def test_unknown_measure_is_refused(tmp_path: Path) -> None:
    result = run(tmp_path, "--only", "nonsense")
    assert result.returncode == 2
    assert "nonsense" in result.stderr
