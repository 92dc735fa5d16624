"""A test whose program is absent is left out and named, or fails: it is never skipped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.source import ROOT

TESTS = """
import pytest

@pytest.mark.needs("kcat")
def test_with_kcat():
    pass

@pytest.mark.needs("curl", "kcat")
def test_with_both():
    pass

def test_with_nothing():
    pass
"""
LEFT_OUT = (
    "\nleft out 2 tests for want of curl (1), kcat (2); "
    "to run them: sudo apt-get install -y curl kcat\n"
)


def run_without_programs(folder: Path, *flags: str, tests: str = TESTS) -> tuple[int, str]:
    (folder / "test_it.py").write_text(tests)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.fakes.programs", *flags],
        cwd=folder,
        env={"PATH": "", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr


@pytest.mark.parametrize("workers", ["0", "2"])
def test_tests_that_lack_a_program_are_left_out_and_named_once(
    tmp_path: Path, workers: str
) -> None:
    exit_code, told = run_without_programs(tmp_path, "-n", workers)
    assert exit_code == 0, told
    assert told.count(LEFT_OUT) == 1, told
    assert "1 passed" in told.partition(LEFT_OUT)[2], "it is among the last lines"
    assert "skipped" not in told


def test_only_tests_of_this_run_are_counted(tmp_path: Path) -> None:
    _, told = run_without_programs(tmp_path, "-k", "nothing")
    assert "left out" not in told


@pytest.mark.parametrize("workers", ["0", "2"])
def test_with_all_programs_demanded_such_tests_fail(tmp_path: Path, workers: str) -> None:
    exit_code, told = run_without_programs(tmp_path, "-n", workers, "--all-programs")
    assert exit_code == 1
    assert "needs curl, kcat: sudo apt-get install -y curl kcat" in told
    assert "1 passed, 2 errors" in told


def test_unknown_program_is_refused(tmp_path: Path) -> None:
    tests = TESTS.replace("kcat", "cat")
    exit_code, told = run_without_programs(tmp_path, tests=tests)
    assert exit_code == 4
    assert "needs 'cat'" in told
