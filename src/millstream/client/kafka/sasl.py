"""Proving who we are: PLAIN, and SCRAM (RFC 5802), which proves it in both directions.

A mechanism is a generator: it yields what to send, is sent what the broker answers, and ends when
the broker has proved itself. It knows no socket.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Generator, Sequence

from millstream.client.kafka.settings import Security
from millstream.identity import new_id
from millstream.protocol.notation import Bytes, Int16, String, Struct, field

Conversation = Generator[bytes, bytes, None]

_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FEWEST_ITERATIONS = 4096
# No channel binding: what follows `gs2-header` in base64.
_GS2_HEADER = b"n,,"


class SaslHandshakeRequest(Struct, api_key=17, versions=(1, 1)):
    mechanism: String = field()


class SaslHandshakeResponse(Struct, api_key=17, versions=(1, 1)):
    error_code: Int16 = field()
    mechanisms: Sequence[String] = field()


class SaslAuthenticateRequest(Struct, api_key=36, versions=(0, 0)):
    auth_bytes: Bytes = field()


class SaslAuthenticateResponse(Struct, api_key=36, versions=(0, 0)):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    auth_bytes: Bytes = field()


class UnprovenBroker(Exception):
    """The broker's part of the conversation is not that of one who knows the password."""


def conversation(security: Security) -> Conversation:
    """What to say for a mechanism. Raises UnprovenBroker when it is sent the wrong answer."""
    if security.mechanism == "PLAIN":
        return _plain(security.username, security.password)
    return scram(
        _HASHES[security.mechanism], security.username, security.password, nonce=new_id().hex()
    )


def _plain(username: str, password: str) -> Conversation:
    yield b"\0".join([b"", username.encode(), password.encode()])


def scram(hash_name: str, username: str, password: str, *, nonce: str) -> Conversation:
    name = username.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}".encode()
    server_first = yield _GS2_HEADER + first_bare
    told = _attributes(server_first)
    if not told.get("r", "").startswith(nonce) or told["r"] == nonce:
        raise UnprovenBroker("its nonce does not continue ours")
    salted = _salted(hash_name, password, told)
    channel = base64.b64encode(_GS2_HEADER).decode()
    final_bare = f"c={channel},r={told['r']}".encode()
    signed = b",".join([first_bare, server_first, final_bare])
    client_key = hmac.digest(salted, b"Client Key", hash_name)
    stored_key = hashlib.new(hash_name, client_key).digest()
    signature = hmac.digest(stored_key, signed, hash_name)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield final_bare + b",p=" + base64.b64encode(proof)
    server_key = hmac.digest(salted, b"Server Key", hash_name)
    expected = base64.b64encode(hmac.digest(server_key, signed, hash_name)).decode()
    if not hmac.compare_digest(_attributes(server_final).get("v", ""), expected):
        raise UnprovenBroker("it does not know the password")


def _salted(hash_name: str, password: str, told: dict[str, str]) -> bytes:
    try:
        salt, iterations = base64.b64decode(told["s"], validate=True), int(told["i"])
    except (KeyError, ValueError, binascii.Error) as error:
        raise UnprovenBroker("it gives no salt or no number of iterations") from error
    if iterations < _FEWEST_ITERATIONS:
        raise UnprovenBroker(f"{iterations} iterations are fewer than {_FEWEST_ITERATIONS}")
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def _attributes(message: bytes) -> dict[str, str]:
    try:
        text = message.decode()
    except UnicodeDecodeError as error:
        raise UnprovenBroker("its answer is no text") from error
    return {part[0]: part[2:] for part in text.split(",") if part[1:2] == "="}
