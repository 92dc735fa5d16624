"""Apache Kafka, from the jars in KAFKA_HOME, or in the folder where `make peers` puts them.

One process is broker and controller. It has a plain listener, and one with TLS and passwords.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Self

import pytest

from millstream.client.kafka import Cluster
from millstream.errors import Unavailable
from tests.fakes.certificate import make_certificate
from tests.fakes.child_process import ROOT, ChildProcess
from tests.fakes.patience import wait_until
from tests.fakes.ports import fixed_port

USER, PASSWORD = "alice", "a-secret"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
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
        plain, secure, controller = fixed_port(), fixed_port(), fixed_port()
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
        with ChildProcess(*java, *format_it, *users) as formatting:
            formatted = formatting.finish()
        assert formatted.returncode == 0, formatted.stdout + formatted.stderr
        self._log = home / "kafka.log"
        with self._log.open("wb") as log:
            command = [*java, "kafka.Kafka", str(settings)]
            self._process = ChildProcess(*command, stdout=log, stderr=log)

    def __enter__(self) -> Self:
        try:
            with Cluster(self.address, timeout_s=1.0) as cluster:
                wait_until(lambda: self._answers(cluster), f"Apache Kafka: see {self._log}")
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()

    def _answers(self, cluster: Cluster) -> bool:
        assert self._process.is_running, self._log.read_text()[-5000:]
        try:
            cluster.partitions()
        except Unavailable:
            return False
        return True


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
