"""Opening a connection: the socket, TLS, what the broker speaks, and who we are.

Invariant: a connection that is given out is ready for any request; one that fails on the way
leaves no socket behind.
"""

from __future__ import annotations

import socket
import ssl

from millstream.client.kafka.address import Address
from millstream.client.kafka.connection import Connection
from millstream.client.kafka.error_codes import NONE, name_of
from millstream.client.kafka.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    UnprovenBroker,
    conversation,
)
from millstream.client.kafka.settings import ClusterSettings, Security
from millstream.client.kafka.tls import tls_context
from millstream.errors import AnswerLost, AuthenticationFailed, Unreachable
from millstream.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_CONNECT_S = 5.0


def open_connection(address: Address, settings: ClusterSettings, timeout_s: float) -> Connection:
    """A connection that is ready. Raises Unavailable or AuthenticationFailed."""
    sock = _open_socket(address, settings.security, min(timeout_s, _CONNECT_S))
    connection = Connection(sock, address, settings.client_id)
    try:
        connection.limit(timeout_s)
        answer = _ask_versions(connection)
        if answer.error_code != NONE:
            reason = f"it tells no versions, but {name_of(answer.error_code)}"
            raise Unreachable(address=str(address), reason=reason)
        connection.versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }
        if settings.security.has_sasl:
            _authenticate(connection, settings.security)
    except BaseException:
        connection.close()
        raise
    return connection


def _ask_versions(connection: Connection) -> ApiVersionsResponse:
    try:
        return connection.ask(ApiVersionsRequest(), ApiVersionsResponse)
    except AnswerLost as error:
        # As a broker does that expects TLS.
        reason = "it hung up at the first request: see security.protocol"
        raise Unreachable(address=str(connection.address), reason=reason) from error


def _open_socket(address: Address, security: Security, timeout_s: float) -> socket.socket:
    context = tls_context(security) if security.has_tls else None
    try:
        sock = socket.create_connection(address, timeout=timeout_s)
    except OSError as error:
        raise Unreachable(address=str(address), reason=_reason(error)) from error
    except UnicodeError as error:
        reason = "no host can be called so"
        raise Unreachable(address=ascii(str(address))[1:-1], reason=reason) from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return context.wrap_socket(sock, server_hostname=address.host) if context else sock
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise AuthenticationFailed(
            address=str(address),
            mechanism="its certificate",
            reason=f"{error.verify_message}: see ssl.ca.location",
        ) from error
    except OSError as error:
        sock.close()
        raise Unreachable(address=str(address), reason=_reason(error)) from error


def _reason(error: OSError) -> str:
    return "no answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)


def _authenticate(connection: Connection, security: Security) -> None:
    shaken = connection.ask(
        SaslHandshakeRequest(mechanism=security.mechanism), SaslHandshakeResponse
    )
    if shaken.error_code != NONE:
        offered = ", ".join(shaken.mechanisms) or "none"
        raise _failed(connection, security, f"the broker offers {offered} as sasl.mechanism")
    talk = conversation(security)
    said = next(talk)
    while True:
        answer = connection.ask(SaslAuthenticateRequest(auth_bytes=said), SaslAuthenticateResponse)
        if answer.error_code != NONE:
            reason = answer.error_message or name_of(answer.error_code)
            raise _failed(connection, security, reason)
        try:
            said = talk.send(answer.auth_bytes)
        except StopIteration:
            return
        except UnprovenBroker as error:
            raise _failed(connection, security, str(error)) from error


def _failed(connection: Connection, security: Security, reason: str) -> AuthenticationFailed:
    return AuthenticationFailed(
        address=str(connection.address),
        mechanism=f"{security.mechanism} as {security.username!r}",
        reason=reason,
    )
