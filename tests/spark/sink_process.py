"""A query that writes files of numbers to a topic, each once, until somebody kills it.

    python -m tests.spark.sink_process <home> <address> <topic>

Says `running` when the query has begun, and ends by itself when all is written.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.spark.short_session import short_session


def main() -> None:
    home, address, topic = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    spark = short_session()
    query = (
        spark.readStream.schema("id long")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(home / "numbers"))
        .repartition(2)
        .selectExpr("cast(id as string) as key", "cast(id as string) as value")
        .writeStream.format("millstream")
        .option("kafka.bootstrap.servers", address)
        .option("topic", topic)
        .option("name", topic)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    print("running", flush=True)
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
