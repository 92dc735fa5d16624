"""CPU time of another process counts all of its threads and children."""

from __future__ import annotations

from benchmarks.server_meter import ServerMeter, Usage, _ended_children_s, cpu_s
from tests.fakes.child_process import ChildProcess

BURN = """
import subprocess, sys, time
while time.process_time() < 0.05: pass
child = sys.argv[1:] and subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=0)
if not child: print("burnt", flush=True)
sys.stdin.read()
if child: child.wait()
"""


def test_work_of_a_process_and_its_child_is_counted() -> None:
    with ChildProcess.python("-c", BURN, BURN) as process:
        assert process.next_line() == "burnt"
        with ServerMeter(process.pid) as meter:
            pass
        # Most of 0.1 s: the scheduler may be a tick behind.
        assert cpu_s(process.pid) > 0.09
        process.finish()
    assert meter.usage.server_cpu_s >= 0
    assert cpu_s(process.pid) == 0


def test_work_of_a_child_that_has_ended_still_counts() -> None:
    parent = f"""
import subprocess, sys
nothing = subprocess.DEVNULL
subprocess.run([sys.executable, "-c", {BURN!r}], stdin=nothing, stdout=nothing)
print("ended", flush=True)
sys.stdin.read()
"""
    with ChildProcess.python("-c", parent) as process:
        assert process.next_line() == "ended"
        # Most of 0.05 s, less a tick of user and one of system time.
        assert _ended_children_s(process.pid) > 0.02
        process.finish()


def test_best_of_two_runs_takes_each_figure_by_itself() -> None:
    assert Usage(1, 5, 3).best(Usage(2, 4, 3)) == Usage(1, 4, 3)
