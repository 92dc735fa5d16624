"""A Spark standalone cluster on loopback, from the scripts of the pip package."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Self

import pyspark

from millstream.spark.environment import prepare_spark
from tests.fakes.patience import wait_until

_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_MASTER_AT = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = "Successfully registered with master"


class StandaloneCluster:
    """One master and some workers, each in a process group of its own."""

    def __init__(self, home: Path, *, workers: int, cores: int = 2) -> None:
        self._home = home
        self._cores = cores
        self._count = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        prepare_spark()
        self._home.mkdir(parents=True)
        address = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
        try:
            self._start("master", [_MASTER, *address])
            self.url = self._said("master", _MASTER_AT)
            sizes = ["--cores", str(self._cores), "--memory", "1g"]
            for number in range(self._count):
                name = f"worker-{number}"
                work = ["--work-dir", str(self._home / name)]
                worker = self._start(name, [_WORKER, *address, *sizes, *work, self.url])
                self.workers.append(worker)
            for number in range(self._count):
                self._said(f"worker-{number}", re.compile(f"({_REGISTERED})"))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def kill_worker(self, number: int) -> None:
        """As when the machine goes: the worker, and all executors that it runs."""
        _kill(self.workers[number])

    def executors(self, number: int) -> list[Path]:
        """Folders of the executors that a worker has been given so far."""
        return sorted((self._home / f"worker-{number}").glob("app-*/*"))

    def _start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        }
        with (self._home / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [str(_CLASS), *words],
                env=environment,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._processes.append(process)
        return process

    def _said(self, name: str, wanted: re.Pattern[str]) -> str:
        """What a process has logged, as soon as it does."""
        log = self._home / f"{name}.log"
        wait_until(lambda: wanted.search(log.read_text()), f"{wanted.pattern!r} in {log}")
        found = wanted.search(log.read_text())
        assert found is not None
        return found[1]

    def _end(self) -> None:
        for process in reversed(self._processes):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # Its group is its own: see start_new_session.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
