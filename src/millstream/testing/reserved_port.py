"""A port of loopback that stays ours while the broker behind it comes and goes.

The socket is bound and never listens. So the broker may listen there, nobody is given the port
meanwhile, and a client that tries to reach a broker that is down cannot be given it either, and
reach itself.
"""

from __future__ import annotations

import socket

_HOST = "127.0.0.1"


class ReservedPort:
    """Held until it is released."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((_HOST, 0))
        self.address = f"{_HOST}:{self._socket.getsockname()[1]}"

    def release(self) -> None:
        self._socket.close()
