"""Recognises a client that begins with TLS on a listener that has none."""

from __future__ import annotations

HINT = "this looks like TLS; this listener has none"

_HANDSHAKE = b"\x16\x03"


def is_tls_hello(first_bytes: bytes) -> bool:
    """Whether a connection begins as TLS does: a handshake record of version 3."""
    return first_bytes.startswith(_HANDSHAKE)
