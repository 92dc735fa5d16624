#!/usr/bin/env python3
"""Prepare what tests need besides Python's packages: prepare_tests.py PROGRAM...

Installs absent programs with apt-get, as root on Debian and its kin. Elsewhere pytest says what to
install. Then compiles the native module, if it is absent and there is a C compiler.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.fakes.programs import PROGRAMS  # noqa: E402 - not installed, but in the line above

NATIVE_MODULE = "millstream.records._arrow"
SHOWN_LINES = 15


def main(names: Sequence[str]) -> None:
    absent = [PROGRAMS[name] for name in names if not PROGRAMS[name].is_usable()]
    packages = [package for program in absent for package in program.packages()]
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        print(f"Installing {' '.join(packages)} with apt-get", flush=True)
        run(["apt-get", "update"])
        run(["apt-get", "install", "-y", "--no-install-recommends", *packages])
    if importlib.util.find_spec(NATIVE_MODULE) is None and PROGRAMS["compiler"].is_usable():
        print("Compiling the native module", flush=True)
        # Installing the project compiles it.
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        run([*pip, "--no-deps", "--editable", str(ROOT)])


def run(command: Sequence[str]) -> None:
    """Quietly, unless it fails: then with the last lines that it printed."""
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last_lines = "\n".join(done.stdout.splitlines()[-SHOWN_LINES:])
        sys.exit(f"{last_lines}\nmillstream: {' '.join(command)} failed")


if __name__ == "__main__":
    main(sys.argv[1:])
