"""Apache Kafka, from the jars in KAFKA_HOME, or in the folder where `make peers` puts them.

One process is broker and controller. It has a plain listener, and one with TLS and passwords.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

from millstream.client.kafka import Cluster
from millstream.errors import Unavailable
from tests.clients.broker_process import ROOT
from tests.fakes.certificate import make_certificate

USER, PASSWORD = "alice", "a-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
START_S = 300.0
STOP_S = 120.0
_CLUSTER_ID = "bWlsbHN0cmVhbS10ZXN0cw"
_LOGIN = "org.apache.kafka.common.security"


def libraries() -> Path:
    return Path(os.environ.get("KAFKA_HOME", ROOT / ".peers" / "kafka")) / "libs"


def _require() -> None:
    """Fail the test, in one line, where Apache Kafka is missing."""
    if not libraries().is_dir():
        pytest.fail(f"no jars in {libraries()}: run 'make peers' first", pytrace=False)
    if shutil.which("java") is None:
        pytest.fail("no java: install it, then run 'make peers' first", pytrace=False)


class ApacheKafka:
    """A process that runs until its context ends."""

    def __init__(self, home: Path) -> None:
        _require()
        self.certificate = make_certificate(home).with_name("certificate.pem")
        self._reserved = [_reserved_port() for _ in range(3)]
        plain, secure, controller = (each.getsockname()[1] for each in self._reserved)
        self.address = f"127.0.0.1:{plain}"
        self.secure_address = f"127.0.0.1:{secure}"
        settings = home / "server.properties"
        settings.write_text(_settings(home, plain, secure, controller))
        java = ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{libraries()}/*"]
        users = [
            word
            for name in MECHANISMS[1:]
            for word in ("--add-scram", f"{name}=[name={USER},password={PASSWORD}]")
        ]
        format_it = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(settings)]
        subprocess.run([*java, *format_it, *users], check=True, capture_output=True)
        self._log = home / "kafka.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*java, "kafka.Kafka", str(settings)], stdout=log, stderr=subprocess.STDOUT
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self._stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for each in self._reserved:
            each.close()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_S
        with Cluster(self.address, timeout_s=1.0) as cluster:
            while True:
                try:
                    cluster.partitions()
                    return
                except Unavailable:
                    if self._process.poll() is not None or time.monotonic() > deadline:
                        raise AssertionError(self._log.read_text()[-5000:]) from None


def _settings(home: Path, plain: int, secure: int, controller: int) -> str:
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "listeners": (
            f"PLAINTEXT://127.0.0.1:{plain},SECURE://127.0.0.1:{secure},"
            f"CONTROLLER://127.0.0.1:{controller}"
        ),
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,SECURE:SASL_SSL,CONTROLLER:PLAINTEXT"
        ),
        "controller.listener.names": "CONTROLLER",
        "listener.name.secure.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "listener.name.secure.plain.sasl.jaas.config": (
            f'{_LOGIN}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
        ),
        **{
            f"listener.name.secure.{name.lower()}.sasl.jaas.config": (
                f"{_LOGIN}.scram.ScramLoginModule required;"
            )
            for name in MECHANISMS[1:]
        },
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": home / "both.pem",
        "log.dirs": home / "data",
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())


def _reserved_port() -> socket.socket:
    """A socket that keeps its port from all others but Java, which may share it to listen there.

    Linux allows this while both sockets have SO_REUSEADDR and only one of them listens.
    """
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved
