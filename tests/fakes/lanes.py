"""Which tests run one after the other in one process, however many processes there are.

They share what is costly to start: a browser, or Java. Those that start Java by themselves, to kill
it, have a lane of their own.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from xdist.scheduler import LoadScopeScheduling

_LANES = {"tests/browser": "browser", "tests/spark": "spark"}
_OWN_JAVA = {
    "test_benchmarks.py",
    "test_cluster.py",
    "test_demo.py",
    "test_lake_kill.py",
    "test_pipeline_command.py",
    "test_sink_kill.py",
}


class Lanes(LoadScopeScheduling):  # type: ignore[misc]  # xdist has no types here
    """Gives each lane to one process, the longest first, and all other tests one by one."""

    def _split_scope(self, nodeid: str) -> str:
        return lane_of(nodeid) or nodeid


def lane_of(nodeid: str) -> str:
    """The lane of a test; nothing for one that may run anywhere."""
    path = PurePosixPath(nodeid.partition("::")[0])
    lane = _LANES.get(str(path.parent), "")
    return "java" if lane == "spark" and path.name in _OWN_JAVA else lane
