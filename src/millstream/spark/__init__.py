"""Topics as Spark tables and streams: `format("millstream")`, with no jar.

Everything here is a client of a broker, ours or Apache Kafka, and never a part of one. Spark finds
the format by itself through the package pyspark_millstream. Needs the extra `spark`.
Guide: docs/guides/spark.md.
"""
