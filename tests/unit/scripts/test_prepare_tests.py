"""Preparing the tests: a program that cannot be installed keeps no other one out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.child_process import ROOT

# Only root installs anything.
AS_ROOT = """
import os, runpy, sys
os.geteuid = lambda: 0
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
APT_GET = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in *{refused}*)
    echo "E: $* is refused" >&2
    exit 100
esac
"""


def prepare(folder: Path, *programs: str, refused: str) -> tuple[str, str, list[str]]:
    """With no program installed; returns stdout, stderr and the calls of apt-get."""
    apt_get, calls = folder / "bin" / "apt-get", folder / "calls"
    apt_get.parent.mkdir()
    apt_get.write_text(APT_GET.format(refused=refused))
    apt_get.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", AS_ROOT, str(ROOT / "scripts" / "prepare_tests.py"), *programs],
        env={"PATH": str(apt_get.parent), "CALLS": str(calls), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr, calls.read_text().splitlines()


def test_package_that_is_refused_keeps_no_other_one_out(tmp_path: Path) -> None:
    stdout, stderr, calls = prepare(tmp_path, "kcat", "curl", refused="kcat")
    assert "Continuing without kcat" in stdout
    assert "Continuing without curl" not in stdout
    assert "kcat is refused" in stderr, "the last lines of apt-get are shown"
    assert [call.split()[-1] for call in calls] == ["update", "kcat", "curl"]


def test_update_that_fails_keeps_nothing_out(tmp_path: Path) -> None:
    stdout, _, calls = prepare(tmp_path, "curl", refused="update")
    assert "Continuing" not in stdout
    assert [call.split()[-1] for call in calls] == ["update", "curl"]


@pytest.mark.parametrize("names", [[], ["mount"]])
def test_nothing_to_install_asks_for_nothing(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "calls").touch()
    assert prepare(tmp_path, *names, refused="update") == ("", "", [])
