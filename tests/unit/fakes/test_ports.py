"""Ports of tests that run at once."""

from __future__ import annotations

import os
from contextlib import ExitStack

from tests.fakes.child_process import ChildProcess
from tests.fakes.ports import fixed_port

PROCESSES, EACH = 4, 50
# All of them begin at the same port.
CLAIM = f"""
import os, sys
os.getpid = lambda: {os.getpid()}
from tests.fakes.ports import fixed_port
print(*(fixed_port() for _ in range({EACH})), flush=True)
sys.stdin.read()
"""


def test_no_port_is_given_twice_in_one_process_or_in_several() -> None:
    with ExitStack() as running:
        children = [
            running.enter_context(ChildProcess.python("-c", CLAIM)) for _ in range(PROCESSES)
        ]
        found = [int(port) for child in children for port in child.next_line().split()]
        found += [fixed_port() for _ in range(EACH)]
    assert len(set(found)) == len(found) == (PROCESSES + 1) * EACH
