"""Visits of users, for sessions.yaml. Spark keeps those that are not over in its state."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

GAP = "30 minutes"


def sessionize(clicks: DataFrame) -> DataFrame:
    """One row for each visit, once it is over: who, from when to when, and how many pages."""
    visits = clicks.groupBy("user", f.session_window("at", GAP).alias("visit")).agg(
        f.count("*").alias("pages"), f.collect_set("page").alias("seen")
    )
    return visits.select(
        "user",
        f.col("visit.start").alias("start"),
        f.col("visit.end").alias("end"),
        "pages",
        f.array_sort("seen").alias("seen"),
    )
