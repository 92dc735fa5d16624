"""SaslAuthenticate (36): the bytes of an authentication, back and forth.

1: a session may end; the answer gains session_lifetime_ms.
2: flexible.
"""

from __future__ import annotations

from millstream.protocol.notation import Bytes, Int16, Int64, String, Struct, field


class SaslAuthenticateRequest(Struct, api_key=36, versions=(0, 2), flexible=2):
    auth_bytes: Bytes = field()


class SaslAuthenticateResponse(Struct, api_key=36, versions=(0, 2), flexible=2):
    error_code: Int16 = field()
    error_message: String | None = field(nullable=0)
    auth_bytes: Bytes = field()
    session_lifetime_ms: Int64 = field(since=1)
