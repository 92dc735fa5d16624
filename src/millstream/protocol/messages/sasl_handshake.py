"""SaslHandshake (17): choose how to authenticate.

1: the bytes that follow come in SaslAuthenticate.
"""

from __future__ import annotations

from collections.abc import Sequence

from millstream.protocol.notation import Int16, String, Struct, field


class SaslHandshakeRequest(Struct, api_key=17, versions=(0, 1)):
    mechanism: String = field()


class SaslHandshakeResponse(Struct, api_key=17, versions=(0, 1)):
    error_code: Int16 = field()
    mechanisms: Sequence[String] = field()
