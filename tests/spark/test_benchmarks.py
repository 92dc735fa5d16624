"""The measures on Spark run, and are reported like others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.fakes.child_process import ChildProcess


@pytest.mark.torture
def test_measures_on_spark_are_reported(java: None, tmp_path: Path) -> None:
    flags = ["--quick", "--json", "--only", "spark", "--directory", str(tmp_path)]
    with ChildProcess(sys.executable, "-m", "benchmarks", *flags) as process:
        ran = process.finish()
    assert ran.returncode == 0, ran.stderr
    measures = json.loads(ran.stdout)["measures"]
    assert len(measures) == 6
    assert all(measure["figure"] >= 0 for measure in measures)
    assert not list(tmp_path.iterdir())
