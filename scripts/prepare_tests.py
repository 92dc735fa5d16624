#!/usr/bin/env python3
"""Prepare what tests need besides Python's packages: prepare_tests.py PROGRAM...

Installs absent programs with apt-get, as root on Debian or Ubuntu. Then compiles the native module,
if it is absent and there is a C compiler. A failure is printed and is not fatal: pytest leaves out
the tests that need an absent program, and prints what installs it.
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

from tests.fakes.programs import PROGRAMS, Program  # noqa: E402 - not installed, but in the line above

NATIVE_MODULE = "millstream.records._arrow"
SHOWN_LINES = 15
# A machine that was just started may be updating itself.
APT_GET = ("apt-get", "-o", "DPkg::Lock::Timeout=600")


def main(names: Sequence[str]) -> None:
    absent = [PROGRAMS[name] for name in names if not PROGRAMS[name].is_usable()]
    if os.geteuid() == 0 and shutil.which("apt-get"):
        install([program for program in absent if program.packages()])
    if importlib.util.find_spec(NATIVE_MODULE) is None and PROGRAMS["compiler"].is_usable():
        print("Compiling the native module", flush=True)
        # Installing the project compiles it.
        pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
        if not succeeds([*pip, "--no-deps", "--editable", str(ROOT)]):
            print("Continuing without the native module", flush=True)


def install(programs: Sequence[Program]) -> None:
    """One by one, so that a package that cannot be installed keeps no other one out."""
    if programs:
        # Where it fails, the lists of the last update may do.
        succeeds([*APT_GET, "update"])
    for program in programs:
        packages = program.packages()
        print(f"Installing {' '.join(packages)} with apt-get", flush=True)
        if not succeeds([*APT_GET, "install", "-y", "--no-install-recommends", *packages]):
            print(f"Continuing without {program.name}", flush=True)


def succeeds(command: Sequence[str]) -> bool:
    """Run it quietly; if it fails, print the last lines that it printed."""
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
        print(f"{last_lines}\nmillstream: {' '.join(command)} failed", file=sys.stderr, flush=True)
    return done.returncode == 0


if __name__ == "__main__":
    main(sys.argv[1:])
