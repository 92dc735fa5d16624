"""Both sides of a conversation in which each proves that it knows the password."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.client.kafka import Cluster, Security
from millstream.client.kafka.sasl import (
    SaslAuthenticateResponse,
    SaslHandshakeResponse,
    UnprovenBroker,
    scram,
)
from millstream.errors import AuthenticationFailed, InvalidSetting, Unreachable
from millstream.protocol.notation import Struct
from tests.fakes.certificate import make_certificate
from tests.fakes.patience import IMPATIENT_S
from tests.fakes.scripted_kafka import SASL_AUTHENTICATE, SASL_HANDSHAKE, ScriptedKafka

SALT = b"salt of the sea"
FAILED = 58


class ScramServer:
    """What a broker does that has a user's password."""

    def __init__(self, password: str, hash_name: str) -> None:
        self._salted = hashlib.pbkdf2_hmac(hash_name, password.encode(), SALT, 4096)
        self._hash = hash_name
        self._said: list[bytes] = []

    def answer(self, request: Any) -> Struct:
        message: bytes = request.auth_bytes
        if message.startswith(b"n,,"):
            nonce = dict(part.split("=", 1) for part in message.decode()[3:].split(","))["r"]
            salt = base64.b64encode(SALT).decode()
            first = f"r={nonce}and-ours,s={salt},i=4096".encode()
            self._said = [message[3:], first]
            return SaslAuthenticateResponse(auth_bytes=first)
        bare, _, proof = message.rpartition(b",p=")
        signed = b",".join([*self._said, bare])
        key = hmac.digest(self._salted, b"Client Key", self._hash)
        stored = hashlib.new(self._hash, key).digest()
        signature = hmac.digest(stored, signed, self._hash)
        expected = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        if base64.b64decode(proof) != expected:
            return SaslAuthenticateResponse(error_code=FAILED, error_message="wrong password")
        server_key = hmac.digest(self._salted, b"Server Key", self._hash)
        proved = base64.b64encode(hmac.digest(server_key, signed, self._hash))
        return SaslAuthenticateResponse(auth_bytes=b"v=" + proved)


@pytest.fixture
def kafka() -> Iterator[ScriptedKafka]:
    with ScriptedKafka() as cluster:
        cluster.leaders = {"orders": [0]}
        cluster.scripts[SASL_HANDSHAKE] = lambda _: SaslHandshakeResponse()
        yield cluster


def security(mechanism: str, password: str = "secret") -> Security:
    return Security(
        protocol="SASL_PLAINTEXT", mechanism=mechanism, username="al,i=ce", password=password
    )


@pytest.mark.parametrize("bits", [256, 512])
def test_both_prove_themselves(kafka: ScriptedKafka, bits: int) -> None:
    kafka.scripts[SASL_AUTHENTICATE] = ScramServer("secret", f"sha{bits}").answer
    with Cluster(kafka.bootstrap, security=security(f"SCRAM-SHA-{bits}")) as cluster:
        assert cluster.partitions() == {"orders": [0]}
    assert b"n=al=2Ci=3Dce" in kafka.brokers[0].requests(SASL_AUTHENTICATE)[0].auth_bytes


def test_wrong_password_is_told_at_once(kafka: ScriptedKafka) -> None:
    kafka.scripts[SASL_AUTHENTICATE] = ScramServer("other", "sha256").answer
    with (
        Cluster(kafka.bootstrap, security=security("SCRAM-SHA-256")) as cluster,
        pytest.raises(AuthenticationFailed, match="SCRAM-SHA-256 as 'al,i=ce': wrong pass"),
    ):
        cluster.partitions()
    assert kafka.brokers[0].connections == 1


def test_broker_that_does_not_know_the_password_is_found_out(kafka: ScriptedKafka) -> None:
    server = ScramServer("secret", "sha256")

    def pretend(request: Any) -> Struct:
        answer = server.answer(request)
        if request.auth_bytes.startswith(b"c="):
            return SaslAuthenticateResponse(auth_bytes=b"v=" + base64.b64encode(b"anything"))
        return answer

    kafka.scripts[SASL_AUTHENTICATE] = pretend
    with (
        Cluster(kafka.bootstrap, security=security("SCRAM-SHA-256")) as cluster,
        pytest.raises(AuthenticationFailed, match="it does not know the password"),
    ):
        cluster.partitions()


@pytest.mark.parametrize(
    "answer",
    [
        b"r=other,s=c2FsdA==,i=4096",
        b"r=mine,s=c2FsdA==,i=4096",
        b"r=mine1,s=c2FsdA==,i=1",
        b"r=mine1,s=c2FsdA==,i=many",
        b"r=mine1,s=!,i=4096",
        b"r=mine1",
        b"\xff",
        b"",
    ],
)
def test_answer_that_proves_nothing_ends_the_conversation(answer: bytes) -> None:
    talk = scram("sha256", "alice", "secret", nonce="mine")
    assert next(talk) == b"n,,n=alice,r=mine"
    with pytest.raises(UnprovenBroker):
        talk.send(answer)


def test_plain_sends_name_and_password(kafka: ScriptedKafka) -> None:
    kafka.scripts[SASL_AUTHENTICATE] = lambda _: SaslAuthenticateResponse()
    with Cluster(kafka.bootstrap, security=security("PLAIN")) as cluster:
        cluster.partitions()
    [said] = kafka.brokers[0].requests(SASL_AUTHENTICATE)
    assert said.auth_bytes == b"\0al,i=ce\0secret"


def test_mechanism_that_the_broker_does_not_offer_is_told(kafka: ScriptedKafka) -> None:
    kafka.scripts[SASL_HANDSHAKE] = lambda _: SaslHandshakeResponse(
        error_code=33, mechanisms=["GSSAPI", "PLAIN"]
    )
    with (
        Cluster(kafka.bootstrap, security=security("SCRAM-SHA-256")) as cluster,
        pytest.raises(AuthenticationFailed, match="the broker offers GSSAPI, PLAIN"),
    ):
        cluster.partitions()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def tls_kafka(certificate: Path) -> Iterator[ScriptedKafka]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with ScriptedKafka(tls=context) as cluster:
        cluster.leaders = {"orders": [0]}
        yield cluster


def test_certificate_that_is_trusted_opens_the_way(
    tls_kafka: ScriptedKafka, certificate: Path
) -> None:
    trusting = Security(protocol="SSL", ca_location=str(certificate.with_name("certificate.pem")))
    with Cluster(tls_kafka.bootstrap, security=trusting) as cluster:
        assert cluster.partitions() == {"orders": [0]}


def test_certificate_that_nobody_vouches_for_is_told_at_once(tls_kafka: ScriptedKafka) -> None:
    with (
        Cluster(tls_kafka.bootstrap, security=Security(protocol="SSL")) as cluster,
        pytest.raises(AuthenticationFailed, match=r"see ssl\.ca\.location"),
    ):
        cluster.partitions()


def test_plain_client_of_a_broker_with_tls_is_pointed_at_its_setting(
    tls_kafka: ScriptedKafka,
) -> None:
    with (
        Cluster(tls_kafka.bootstrap, timeout_s=IMPATIENT_S) as cluster,
        pytest.raises(Unreachable, match=r"security\.protocol|it answers with"),
    ):
        cluster.partitions()


@pytest.mark.parametrize("name", ["ca_location", "certificate_location"])
def test_file_that_is_no_certificate_is_told(
    kafka: ScriptedKafka, tmp_path: Path, name: str
) -> None:
    path = tmp_path / "empty.pem"
    path.write_text("")
    wrong = Security(**{"protocol": "SSL", name: str(path)})  # type: ignore[arg-type]
    with (
        Cluster(kafka.bootstrap, security=wrong) as cluster,
        pytest.raises(InvalidSetting, match=r"ssl\.(ca|certificate)\.location"),
    ):
        cluster.partitions()
