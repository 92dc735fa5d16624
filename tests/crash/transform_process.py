"""A worker that reads records, writes them elsewhere and commits its offsets, in one transaction.

    python -m tests.crash.transform_process KIND ADDRESS NAME INPUT OUTPUT PARTITIONS

KIND is a client, and for librdkafka the protocol of its group. NAME is the worker's own; INPUT is
the group's name too. Each record goes to partition OFFSET modulo PARTITIONS of OUTPUT, with where
it comes from as its key. Now and then a worker thinks better of it and aborts.

It ends when its stdin does. On stdout it says what it is about, each time with a count of records:

    open 17          the records of a transaction are at the broker
    ending 17        so are its offsets, and the commit begins
    committed 17
    aborted 17
    trouble WHAT     it begins again, where its group has committed
"""

from __future__ import annotations

import argparse
import select
import sys
from random import Random

# Of so many transactions, one is aborted for no reason.
ABORTED_IN = 20
MAX_RECORDS = 50
POLL_S = 0.1
CALL_S = 10.0
SESSION_MS = 2000


class Job:
    """What a worker has to do, and how it tells of it."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.address: str = options.address
        self.name: str = options.name
        self.input: str = options.input
        self.group: str = options.input
        self.output: str = options.output
        self._partitions: int = options.partitions
        self._random = Random(self.name)

    def has_time(self) -> bool:
        return not select.select([sys.stdin], [], [], 0)[0]

    def changes_its_mind(self) -> bool:
        return self._random.randrange(ABORTED_IN) == 0

    def target(self, offset: int) -> int:
        return offset % self._partitions

    def say(self, *words: object) -> None:
        print(*words, flush=True)


def key_of(partition: int, offset: int) -> bytes:
    return b"%d %d" % (partition, offset)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=["confluent", "confluent-consumer", "aiokafka"])
    parser.add_argument("address")
    parser.add_argument("name")
    parser.add_argument("input")
    parser.add_argument("output")
    parser.add_argument("partitions", type=int)
    options = parser.parse_args()
    job = Job(options)
    if options.kind == "aiokafka":
        from tests.crash.aiokafka_transform import work
    elif options.kind == "confluent":
        from tests.crash.confluent_transform import work_classic as work
    else:
        from tests.crash.confluent_transform import work_consumer as work
    work(job)


if __name__ == "__main__":
    main()
