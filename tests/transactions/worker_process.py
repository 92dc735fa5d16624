"""A process of the workload: some roles, each in a thread, with a history of its own.

    python -m tests.transactions.worker_process \\
        ADDRESS HISTORY NAME SLOT SEED ROUND ISOLATION ROLE...

It works until it is told to end by SIGTERM, or is killed. NAME is its own; SLOT stays the same for
whoever comes after it.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from random import Random

from tests.transactions import aiokafka_readers, confluent_readers
from tests.transactions.history import Recorder
from tests.transactions.producer_client import AiokafkaProducer, ConfluentProducer
from tests.transactions.producer_roles import run_plain, run_transactions
from tests.transactions.worker_role import Work

ROLES: Mapping[str, Callable[[Work], None]] = {
    "confluent-transactions": partial(run_transactions, make_producer=ConfluentProducer),
    "aiokafka-transactions": partial(run_transactions, make_producer=AiokafkaProducer),
    "confluent-plain": partial(run_plain, make_producer=ConfluentProducer),
    "aiokafka-plain": partial(run_plain, make_producer=AiokafkaProducer),
    "confluent-reader": confluent_readers.run_reader,
    "aiokafka-reader": aiokafka_readers.run_reader,
    "confluent-member": confluent_readers.run_member,
    "aiokafka-member": aiokafka_readers.run_member,
    "processor": confluent_readers.run_processor,
}


def topics(number: int) -> dict[str, int]:
    """The topics of a round, with the number of their partitions."""
    return {f"events-{number}": 3, f"inputs-{number}": 2, f"results-{number}": 2}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("history", type=Path)
    parser.add_argument("name")
    parser.add_argument("slot")
    parser.add_argument("seed", type=int)
    parser.add_argument("round", type=int)
    parser.add_argument("isolation")
    parser.add_argument("roles", nargs="+", choices=ROLES)
    options = parser.parse_args()
    # Clients tell at length of a broker that is away.
    logging.disable(logging.CRITICAL)
    stop = threading.Event()
    # Tells what a worker that does not end is about.
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threads = []
    for index, role in enumerate(options.roles):
        work = _work(options, index, stop)
        threads.append(threading.Thread(target=_run, args=(ROLES[role], work)))
        threads[-1].start()
    for thread in threads:
        # Without a limit, the signal would wait for the thread.
        while thread.is_alive():
            thread.join(0.2)
    sys.stdout.flush()
    # Threads of clients that were given up on do not matter.
    os._exit(0)


def _work(options: argparse.Namespace, index: int, stop: threading.Event) -> Work:
    events, inputs, results = topics(options.round)
    return Work(
        bootstrap=options.address,
        topics=topics(options.round),
        sinks=(events, inputs),
        inputs=inputs,
        results=results,
        recorder=Recorder(options.history, f"{options.name}-{index}"),
        random=Random(options.seed + index),
        stop=stop,
        slot=f"{options.slot}-{index}",
        isolation=options.isolation,
    )


def _run(role: Callable[[Work], None], work: Work) -> None:
    try:
        role(work)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


if __name__ == "__main__":
    main()
