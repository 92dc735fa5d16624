"""The Python that Spark's workers run."""

from __future__ import annotations

import os
import sys
import venv
from pathlib import Path

import pytest

from millstream.errors import SparkRefused
from millstream.spark import environment
from millstream.spark.environment import prepare_spark


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "prepare_java", lambda: None)


def test_workers_run_this_python_unless_another_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    monkeypatch.delenv("PYSPARK_PYTHON")
    prepare_spark()
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_other_python_that_does_not_find_millstream_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    other = str(tmp_path / "bare" / "bin" / "python")
    monkeypatch.setenv("PYSPARK_PYTHON", other)
    with pytest.raises(SparkRefused, match="does not find millstream") as refused:
        prepare_spark()
    assert other in str(refused.value)
    assert sys.executable in str(refused.value)


def test_python_of_other_machines_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/elsewhere/bin/python")
    prepare_spark()
