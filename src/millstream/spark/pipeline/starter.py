"""A pipeline's file to begin with, and what to change in it."""

from __future__ import annotations

import re
import shlex

_STARTER = """\
# A pipeline: topics in, SQL, topics and tables out.
#   millstream pipeline validate {file}   finds what is wrong, with its line
#   millstream pipeline run {file}        runs it; SIGTERM ends it after the batch
name: {name}

kafka:
  bootstrap.servers: ${{MILLSTREAM_BOOTSTRAP:-127.0.0.1:9092}}

sources:
  - name: events            # a view for the SQL below
    topic: {topic}
    format: json            # or text, or raw: key and value as bytes
    schema:                 # what does not fit goes to the dead letter topic
      id: bigint not null
      kind: string
      amount: double
      at: timestamp
    watermark: {{column: at, delay: 10 minutes}}

steps:
  - name: per_minute
    sql: |
      SELECT window.start AS minute, kind, count(*) AS events, sum(amount) AS amount
      FROM events
      GROUP BY window(at, '1 minute'), kind

sinks:
  - from: per_minute        # each row as a JSON object
    topic: {topic}.per-minute
    key: kind
  - from: events
    parquet: out/{name}     # or delta: a Delta table

dead_letters: {name}.dead-letters
trigger: {{interval: 2 seconds}}   # or once: all that is there, then end
checkpoint: checkpoints/{name}
"""


def starter(*, name: str, topic: str, file: str) -> str:
    """What a name cannot have is left out of it."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip(".-") or "pipeline"
    return _STARTER.format(name=name, topic=topic, file=shlex.quote(file))
