"""Trying again what brokers cannot do now, until it is done or the time is up.

Between two attempts all that is known of the cluster is forgotten, as it may be what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from millstream.client.kafka.brokers import Brokers
from millstream.client.kafka.patience import Patience
from millstream.clock import Clock
from millstream.errors import Unavailable

Result = TypeVar("Result")


class Persistence:
    """Runs attempts."""

    def __init__(self, brokers: Brokers, clock: Clock) -> None:
        self._brokers = brokers
        self._clock = clock

    def patience(self) -> Patience:
        return Patience(self._brokers.settings.timeout_s, clock=self._clock)

    def run(self, attempt: Callable[[Patience], Result]) -> Result:
        """What an attempt gives that is not Unavailable. Raises the last Unavailable in the end."""
        patience = self.patience()
        while True:
            try:
                return attempt(patience)
            except Unavailable as cause:
                self._brokers.forget()
                patience.wait(cause)
