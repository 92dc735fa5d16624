"""What must be right around a process before it starts Spark: Java, and the Python of the workers.

Both are told to Spark by environment variables, which what the user has set wins over.
"""

from __future__ import annotations

import os
import sys

from millstream.spark.java import prepare_java


def prepare_spark() -> None:
    """Let Spark, started from this process, find Java and this very Python. Raises JavaMissing."""
    prepare_java()
    # Else workers run the first python3 in the PATH, which may know nothing of us.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
