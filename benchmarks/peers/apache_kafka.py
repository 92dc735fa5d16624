"""Apache Kafka, from jars in the directory that KAFKA_HOME names or where `make peers` puts them.

One process that is broker and controller. It leaves syncing to the kernel unless told to sync
every batch, which is what our acks=all does.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.kafka_wire import KafkaConnection
from benchmarks.peers.kafka_session import KafkaSession
from benchmarks.peers.session import Contender, Session
from benchmarks.server_process import ServerProcess, free_port

_START_S = 90
_CLUSTER_ID = "bWlsbHN0cmVhbS1iZW5jaA"
# As Kafka's own start script sets them.
_JAVA_FLAGS = ("-Xmx1G", "-Xms1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


def apache_kafka(*, synced: bool) -> Contender:
    libraries = os.path.join(os.environ.get("KAFKA_HOME", ".peers/kafka"), "libs")

    @contextmanager
    def run(directory: str, value: bytes) -> Iterator[Session]:
        port = free_port()
        settings = os.path.join(directory, "server.properties")
        with open(settings, "w", encoding="ascii") as file:
            file.write(_settings(directory, port=port, synced=synced))
        java = ["java", *_JAVA_FLAGS, "-cp", os.path.join(os.path.abspath(libraries), "*")]
        subprocess.run(  # noqa: S603 - our own command
            [*java, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", settings],
            check=True,
            capture_output=True,
        )
        log_path = os.path.join(directory, "kafka.log")
        with ServerProcess([*java, "kafka.Kafka", settings], log_path=log_path) as server:
            address = ("127.0.0.1", port)
            connection = server.until(lambda: KafkaConnection(address), within_s=_START_S)
            try:
                yield KafkaSession(server, connection, value, acks=1)
            finally:
                connection.close()

    return Contender(name="Apache Kafka", absent=_absent(libraries), run=run)


def _absent(libraries: str) -> str:
    if shutil.which("java") is None:
        return "no java"
    return "" if os.path.isdir(libraries) else f"no jars in {libraries}: make peers"


def _settings(directory: str, *, port: int, synced: bool) -> str:
    controller_port = free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": os.path.join(directory, "data"),
        "offsets.topic.replication.factor": 1,
        **({"log.flush.interval.messages": 1} if synced else {}),
    }
    return "".join(f"{name}={value}\n" for name, value in settings.items())
