"""What must be right around a process before it starts Spark: Java, and the Python of the workers.

Both are told to Spark by environment variables, which what the user has set wins over.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from millstream.errors import SparkRefused
from millstream.spark.java import prepare_java

_FINDS = "import importlib.util as u; raise SystemExit(u.find_spec('pyspark_millstream') is None)"


def other_python_reason() -> str:
    """Why Spark's Python processes may not find the source."""
    worker = os.environ.get("PYSPARK_PYTHON", "python3")
    return (
        f"Spark's Python processes run {worker!r}, which does not find millstream; this process "
        f"runs {sys.executable!r}: activate its virtual environment, or set "
        f"PYSPARK_PYTHON={sys.executable} (on every worker of a cluster)"
    )


def prepare_spark() -> None:
    """Let Spark, started from this process, find Java and this very Python.

    Raises JavaMissing, and SparkRefused where another Python is set that does not find millstream.
    """
    prepare_java()
    chosen = os.environ.get("PYSPARK_PYTHON")
    # One that is not here is one of the machines that the workers run on.
    if chosen and (found := shutil.which(chosen)) and found != sys.executable:
        _check_python(found)
    # Else workers run the first python3 in the PATH, which may know nothing of us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _check_python(python: str) -> None:
    command = [python, "-c", _FINDS]
    done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - the user set it
    if done.returncode:
        raise SparkRefused(reason=other_python_reason())
