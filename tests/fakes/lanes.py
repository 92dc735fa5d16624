"""Which tests run one after the other in one process, however many processes there are.

They share what is costly to start: a browser, or a session of Spark. Tests that start Java
themselves have a lane of their own. Lanes take longest, so that they start before all other tests.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import PurePosixPath

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

# In the order in which they start.
LANES = ("spark", "java", "browser")
_OWN_JAVA = {
    "test_benchmarks.py",
    "test_cluster.py",
    "test_demo.py",
    "test_driver_kill.py",
    "test_pipeline_command.py",
}
# They share a broker, and no session.
_NO_JAVA = {"test_replay.py", "test_sink_protocol.py", "test_stream_planning.py"}


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Gives each lane to one process, and all other tests one by one."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self.workqueue = _LanesFirst()

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid) or nodeid


class _LanesFirst(OrderedDict[str, dict[str, bool]]):
    """What is still to be given to a process."""

    def popitem(self, last: bool = True) -> tuple[str, dict[str, bool]]:
        for lane in LANES:
            if lane in self:
                return lane, self.pop(lane)
        return super().popitem(last)


def lane_of(nodeid: str) -> str:
    """The lane of a test; nothing for one that may run anywhere."""
    path = PurePosixPath(nodeid.partition("::")[0])
    match str(path.parent):
        case "tests/browser":
            return "browser"
        case "tests/spark" if path.name in _OWN_JAVA:
            return "java"
        case "tests/spark" if path.name in _NO_JAVA:
            return str(path)
        case "tests/spark":
            return "spark"
    return ""
