"""What can go wrong between a client and a broker, to be brought about by a test.

    with broker.faults.refuse("Produce", error="NOT_LEADER_OR_FOLLOWER", topic="orders", times=2):
        ...

A fault holds until its block ends, it is removed, or it was met `times` times. One that names a
topic is met by requests that touch it. Faults are for clients of the Kafka door.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from difflib import get_close_matches
from itertools import count
from typing import Any, Self

from millstream.client.kafka.error_codes import name_of
from millstream.errors import BrokerNotRunning, BrokerProcessFailed, InvalidSetting
from millstream.gateways.kafka.error_codes import ErrorCode
from millstream.protocol.apis import APIS
from millstream.testing.fault_rules import Action

Apis = str | Iterable[str] | None
Call = Callable[[str, dict[str, Any]], Any]

_KEYS = {api.name: key for key, api in APIS.items()}
_STALLED = ("Produce", "Fetch")
_CODES = {name_of(code): code for code in range(-1, 130)} | {e.name: e.value for e in ErrorCode}
PATIENCE_S = 10.0


class Fault:
    """One fault that a broker has."""

    def __init__(self, call: Call, number: int) -> None:
        self._call = call
        self._number = number

    @property
    def hits(self) -> int:
        """How many requests have met it."""
        return int(self._call("hits", {"number": self._number}))

    def wait(self, times: int = 1, *, timeout_s: float = PATIENCE_S) -> None:
        """Return when that many requests have met it. Raises TimedOut."""
        self._call("met", {"number": self._number, "times": times, "timeout_s": timeout_s})

    def remove(self) -> None:
        """End it, and let go on what it holds up. May be called twice."""
        # With a broker that was killed or stopped, it has ended.
        with suppress(BrokerNotRunning, BrokerProcessFailed):
            self._call("remove_fault", {"number": self._number})

    release = remove

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Faults:
    """All faults of one broker."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._numbers = count(1)

    def delay(
        self,
        api: Apis = None,
        *,
        seconds: float,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = None,
    ) -> Fault:
        """Requests wait before they are worked off, and so do those behind them."""
        return self._add(
            "delay", api, seconds=seconds, topic=topic, partition=partition, times=times
        )

    def refuse(
        self,
        api: Apis = None,
        *,
        error: str | int,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = None,
    ) -> Fault:
        """Requests are answered with an error of Kafka's, and nothing is done.

        Where a request is about several partitions, those that the fault does not name are served.
        """
        code = _code(error)
        return self._add(
            "refuse", api, error_code=code, topic=topic, partition=partition, times=times
        )

    def drop(
        self,
        api: Apis = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = None,
        after_work: bool = False,
    ) -> Fault:
        """Requests are never answered, nor is what comes behind them on their connection.

        They are lost on the way; or, `after_work`, they are carried out and their answers are lost.
        """
        return self._add(
            "drop", api, after_work=after_work, topic=topic, partition=partition, times=times
        )

    def disconnect(
        self,
        api: Apis = None,
        *,
        topic: str | None = None,
        partition: int | None = None,
        times: int | None = None,
        after_work: bool = False,
    ) -> Fault:
        """The broker hangs up instead of working a request off, or instead of answering it.

        `after_work` is how acknowledgements are lost: what was sent is stored, and who sent it
        cannot know.
        """
        return self._add(
            "disconnect", api, after_work=after_work, topic=topic, partition=partition, times=times
        )

    def stall(self, topic: str, partition: int | None = None) -> Fault:
        """Nothing gets into a partition, or out of it, until `release`.

        Produce requests wait, and so does what their client sends behind them: a connection is
        worked off in order. Fetches find nothing new there, and what is new in other partitions.
        """
        return self._add("stall", _STALLED, topic=topic, partition=partition)

    def clear(self) -> None:
        """End all faults."""
        self._call("clear_faults", {})

    def _add(self, action: Action, api: Apis, **rest: Any) -> Fault:
        if rest.get("partition") is not None and rest["topic"] is None:
            raise InvalidSetting(
                name="partition", value=rest["partition"], expected="a topic with it"
            )
        if (times := rest.get("times")) is not None and times < 1:
            raise InvalidSetting(name="times", value=times, expected="1 or more, or None")
        if not rest.get("seconds", 0.0) >= 0.0:
            raise InvalidSetting(name="seconds", value=rest["seconds"], expected="0 or more")
        keys = _api_keys(api)
        # Ours, so that one of before a restart is not taken for another.
        number = next(self._numbers)
        self._call("add_fault", {"number": number, "action": action, "api_keys": keys, **rest})
        return Fault(self._call, number)


def _api_keys(api: Apis) -> list[int]:
    names = [] if api is None else [api] if isinstance(api, str) else list(api)
    for name in names:
        if name not in _KEYS:
            raise InvalidSetting(name="api", value=name, expected=_expected(name, _KEYS))
    return [_KEYS[name] for name in names]


def _code(error: str | int) -> int:
    if isinstance(error, int):
        return error
    if error not in _CODES:
        raise InvalidSetting(name="error", value=error, expected=_expected(error, _CODES))
    return _CODES[error]


def _expected(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(known), n=1, cutoff=0.5)
    hint = f"; did you mean {close[0]}?" if close else ""
    return f"one of Kafka's names, such as {next(iter(known))}{hint}"
