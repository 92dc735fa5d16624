"""A program that uses the blocking client, in a process of its own: sends, or works on a queue.

    python -m tests.python_client.worker_process send URL TOPIC COUNT NAME
    python -m tests.python_client.worker_process work URL TOPIC COUNT NAME

It prints a line for each message whose sending or acknowledgement was answered. Who works ends when
nothing is left and its standard input has ended.
"""

from __future__ import annotations

import select
import sys

from tests.fakes.patient_client import connect


def main(task: str, url: str, topic: str, count: int, name: str) -> None:
    with connect(url, retries=1000) as connection:
        if task == "send":
            for number in range(count):
                connection.send(topic, f"{name}-{number}")
                print(f"{name}-{number}", flush=True)
            return
        with connection.subscribe(topic, subscription="work", prefetch=20) as queue:
            while True:
                message = queue.receive(timeout_s=0.1)
                if message is not None:
                    message.ack()
                    print(message.text, flush=True)
                elif select.select([sys.stdin], [], [], 0)[0]:
                    return


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5])
