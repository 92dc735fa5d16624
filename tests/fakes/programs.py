"""Programs that some tests need and pip cannot install, and a plugin of pytest that knows them.

`@pytest.mark.needs("chromium")` marks a test that needs one. Where it is absent, the test is left
out of the run, and a line at the end says how many tests were left out and what installs the
program. With --all-programs such a test fails instead.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

_CHECK_TIMEOUT_S = 300
_REPORT = "absent_programs_report"


@dataclass(frozen=True)
class Program:
    name: str
    is_usable: Callable[[], bool]
    """Tries the program as the tests use it."""
    packages: Callable[[], list[str]] = list
    """The packages of Debian that bring it."""
    otherwise: str = ""
    """What helps where no package does."""


def chromium_path() -> str | None:
    return shutil.which("chromium") or shutil.which("chromium-browser")


def _runs(*command: str) -> bool:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_CHECK_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _has_chromium() -> bool:
    path = chromium_path()
    # On Ubuntu it may be a placeholder that asks for a snap.
    return path is not None and _runs(path, "--version")


def _has_compiler() -> bool:
    """A C compiler that finds the headers of C and of this Python, as hatch_build.py needs it."""
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch, "module.c")
        source.write_text("#include <Python.h>\n")
        flags = ["-shared", "-fPIC", f"-I{sysconfig.get_path('include')}"]
        return _runs(*compiler, *flags, str(source), "-o", f"{scratch}/module.so")


def _compiler_packages() -> list[str]:
    if Path(sysconfig.get_path("include"), "Python.h").exists():
        return ["gcc", "libc6-dev"]
    return ["gcc", "libc6-dev", "python{}.{}-dev".format(*sys.version_info)]


def _may_mount() -> bool:
    with tempfile.TemporaryDirectory() as folder:
        is_mounted = _runs("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
        return is_mounted and _runs("umount", folder)


PROGRAMS = {
    program.name: program
    for program in (
        Program("chromium", _has_chromium, lambda: ["chromium"]),
        Program("compiler", _has_compiler, _compiler_packages),
        # --json came with version 7.82.
        Program("curl", lambda: _runs("curl", "--json", "{}", "--version"), lambda: ["curl"]),
        Program("kcat", lambda: _runs("kcat", "-V"), lambda: ["kcat"]),
        Program("mount", _may_mount, otherwise="run as root on a machine where root may mount"),
        Program("strace", lambda: _runs("strace", "-f", "true"), lambda: ["strace"]),
    )
}


@cache
def is_usable(name: str) -> bool:
    return PROGRAMS[name].is_usable()


def remedy(names: Iterable[str]) -> str:
    """What installs these programs, as a command where there is one."""
    programs = [PROGRAMS[name] for name in sorted(names)]
    packages = [package for program in programs for package in program.packages()]
    advice = {program.otherwise: None for program in programs if program.otherwise}
    if packages:
        advice = {f"sudo apt-get install -y {' '.join(packages)}": None, **advice}
    return "; ".join(advice)


def _needs(item: pytest.Item) -> list[str]:
    names = [name for mark in item.iter_markers("needs") for name in mark.args]
    for name in names:
        if name not in PROGRAMS:
            raise pytest.UsageError(f"{item.nodeid} needs {name!r}: add it to {__file__}")
    return names


def _absent(item: pytest.Item) -> list[str]:
    return [name for name in _needs(item) if not is_usable(name)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--all-programs",
        action="store_true",
        help="fail tests that need a program that is absent, instead of leaving them out",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(*programs): left out where one of them is absent")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Controller())


@pytest.hookimpl(trylast=True)  # after -m and -k, so that only tests of this run are counted
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.all_programs:
        return
    absent = {item: _absent(item) for item in items}
    left_out = [item for item in items if absent[item]]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not absent[item]]
    needed = Counter(name for names in absent.values() for name in names)
    config.stash[_LEFT_OUT] = LeftOut(len(left_out), needed)
    if report := getattr(config, "workerinput", {}).get(_REPORT):
        _write_report(Path(report), config.stash[_LEFT_OUT])


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.option.all_programs and (absent := _absent(item)):
        pytest.fail(f"needs {', '.join(absent)}: {remedy(absent)}", pytrace=False)


class LeftOut(NamedTuple):
    tests: int
    programs: Mapping[str, int]
    """How many of the tests need each; a test may need several."""

    def __str__(self) -> str:
        tests = "1 test" if self.tests == 1 else f"{self.tests} tests"
        names = ", ".join(f"{name} ({count})" for name, count in sorted(self.programs.items()))
        return f"left out {tests} for want of {names}; to run them: {remedy(self.programs)}"


_LEFT_OUT = pytest.StashKey[LeftOut]()


class _Controller:
    """Prints the line. Workers of xdist, which collect the tests and cannot print, report to it."""

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput[_REPORT] = str(self._report)

    def pytest_terminal_summary(self, terminalreporter: Any, config: pytest.Config) -> None:
        left_out = config.stash.get(_LEFT_OUT, None)
        if left_out is None and self._folder is not None and self._report.exists():
            left_out = LeftOut(*json.loads(self._report.read_text()))
        if left_out is not None and left_out.tests:
            terminalreporter.write_line(str(left_out))

    def pytest_unconfigure(self) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def _report(self) -> Path:
        if self._folder is None:
            self._folder = tempfile.TemporaryDirectory(prefix="absent-programs-")
        return Path(self._folder.name, "left_out.json")


def _write_report(path: Path, left_out: LeftOut) -> None:
    """Workers collect the same tests, so that the last one to write changes nothing."""
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(left_out))
    fresh.replace(path)
