"""Log lines about one connection, limited as all lines are that clients cause."""

from __future__ import annotations

import logging

from millstream.telemetry.client_log import ClientLog


class ConnectionLog:
    """Writes lines that name the connection's peer."""

    __slots__ = ("_client_log", "_logger", "peer")

    def __init__(self, client_log: ClientLog, logger: logging.Logger) -> None:
        self._client_log = client_log
        self._logger = logger
        self.peer = "?"
        """HOST:PORT, once it is known."""

    def write(
        self,
        level: int,
        message: str,
        values: dict[str, object],
        *,
        kind: str,
        exc_info: BaseException | None = None,
    ) -> None:
        """`message` has a place for the peer; lines of one kind and host are counted together."""
        self._client_log.write(
            self._logger,
            level,
            message,
            {"peer": self.peer, **values},
            kind=kind,
            host=self.peer.rpartition(":")[0],
            exc_info=exc_info,
        )
