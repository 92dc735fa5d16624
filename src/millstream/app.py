"""The whole broker, as `serve` runs it: listeners around an assembly, signals, reloads."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from millstream import __version__
from millstream.assembly import Dependencies, assembled
from millstream.broker.broker import Broker
from millstream.broker.housekeeping import Housekeeping
from millstream.errors import InvalidSetting, MillstreamError
from millstream.gateways.http.door import HttpDoor
from millstream.gateways.kafka.listener import Door
from millstream.gateways.pylogstreams.door import Door as PyLogStreamsDoor
from millstream.identity import new_client_id
from millstream.settings.domain import split_address
from millstream.settings.http import HttpSettings
from millstream.settings.loader import Settings
from millstream.settings.reload import Reload, merged
from millstream.settings.telemetry import TelemetrySettings
from millstream.telemetry.logs import set_level
from millstream.telemetry.tracing import Tracing

_log = logging.getLogger(__name__)

# A compaction thread that is busy lets go of the interpreter this often. Python's own 5 ms would
# show in the latency of every client.
_SWITCH_INTERVAL_S = 0.0005
_OFF = "off"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)

Say = Callable[[str], None]
Addresses = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A broker that serves, and where: HOST:PORT by the name of the door."""

    broker: Broker
    addresses: Addresses
    housekeeping: Housekeeping
    kafka: Door
    http: HttpDoor
    pylogstreams: PyLogStreamsDoor

    def reconfigure(self, read: Settings) -> Reload:
        """Take over what can change while the broker runs; tells what does, and what has to wait.

        What clients have set holds over what was read.
        Raises InvalidSetting, and then nothing has changed.
        """
        dynamic = self.broker.dynamic
        reload = self.take(dynamic.over(read))
        dynamic.read = read
        return reload

    def take_from_clients(self, read: Settings) -> None:
        """Let clients change settings from now on, and take over what they changed before."""
        dynamic = self.broker.dynamic
        if dynamic.of_broker:
            _announce(self.take(dynamic.over(read)))
        dynamic.apply = lambda wanted: _announce(self.take(wanted))

    def take(self, wanted: Settings) -> Reload:
        """The same, for settings as they are to be."""
        broker = self.broker
        reload = merged(broker.settings, wanted)
        settings = broker.settings = reload.settings
        self.housekeeping.reconfigure(settings.storage)
        broker.topics.reconfigure(settings.topics, settings.log)
        broker.groups.settings = settings.groups
        broker.transactions.settings = settings.transactions
        broker.subscriptions.reconfigure(settings.subscriptions)
        self.kafka.settings = settings.kafka
        self.http.reconfigure(settings.http)
        self.pylogstreams.settings = settings.pylogstreams
        _watch_requests(broker)
        return reload


def _announce(reload: Reload) -> None:
    set_level(reload.settings.telemetry)
    for change in reload.changed:
        _log.info("changed by a client: %(change)s", change.named())


def run(
    settings: Settings, *, say: Say, reread: Callable[[], Settings], stops_on_hangup: bool = False
) -> None:
    """Serve until SIGTERM or SIGINT. `say` gets each line meant for a person.

    On SIGHUP the settings are read again, or it stops, too.
    """
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _raise_file_limit()
    stopping = (*_STOP_SIGNALS, signal.SIGHUP) if stops_on_hangup else _STOP_SIGNALS
    _run_on_a_loop(_serve(settings, say, reread, stopping))
    for signal_number in (*_STOP_SIGNALS, signal.SIGHUP):
        signal.signal(signal_number, signal.SIG_IGN)


def _run_on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # It does not exist for every platform.
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _serve(
    settings: Settings, say: Say, reread: Callable[[], Settings], stopping: Collection[int]
) -> None:
    heard: set[int] = set()
    woken = asyncio.Event()
    loop = asyncio.get_running_loop()

    def hear(number: int, *_: object) -> None:
        heard.add(number)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(woken.set)

    # Not the loop's own handlers: it would forget them while it closes, and then a second signal
    # would kill a broker that has almost stopped well.
    for number in (*_STOP_SIGNALS, signal.SIGHUP):
        signal.signal(number, hear)
    # It may have been held back until somebody would hear it: see `serve`.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
    say(f"millstream {__version__}")
    async with running(settings, say=say) as broker:
        while heard.isdisjoint(stopping):
            await woken.wait()
            woken.clear()
            if signal.SIGHUP in heard and signal.SIGHUP not in stopping:
                heard.discard(signal.SIGHUP)
                _reload(broker, reread)
        say("stopping")
    say("stopped")


def _reload(broker: Running, reread: Callable[[], Settings]) -> None:
    try:
        reload = broker.reconfigure(reread())
    except MillstreamError as error:
        _log.error("settings stay as they are: %(error)s", {"error": str(error)})
        return
    set_level(reload.settings.telemetry)
    for change in reload.changed:
        _log.info("reloaded: %(change)s", change.named())
    for change in reload.postponed:
        _log.warning("waits for a restart: %(change)s", change.named())
    counts = {"changed": len(reload.changed), "postponed": len(reload.postponed)}
    _log.info("settings reloaded: %(changed)d changed, %(postponed)d wait for a restart", counts)


@asynccontextmanager
async def running(
    settings: Settings, *, say: Say, dependencies: Dependencies | None = None
) -> AsyncIterator[Running]:
    """A broker that serves until the block ends, on the event loop of the caller.

    It changes nothing in the process besides: no signals, no limits. Raises what keeps it from
    starting; what fails later cancels the block, and is raised by it.
    """
    dependencies = dependencies or Dependencies()
    path = _data_path(settings)
    for key, origin in settings.origins.items():
        _log.debug("%(setting)s is set by %(origin)s", {"setting": key, "origin": origin})
    say(f"opening {path}")
    async with (
        _tracing(settings.telemetry, dependencies) as tracing,
        _http_door(settings.http) as (http, http_address),
        assembled(path, settings, dependencies, tracing) as assembly,
    ):
        broker, housekeeping = assembly.broker, assembly.housekeeping
        new_door = dependencies.kafka_door or _kafka_door_kind(tracing)
        kafka = new_door(broker, settings.kafka)
        pylogstreams = PyLogStreamsDoor(broker, settings.pylogstreams, new_client_id=new_client_id)
        addresses = await _open_doors(kafka, http_address, pylogstreams)
        for address in addresses.values():
            if not _is_loopback(address):
                say(f"whoever reaches {address} can read and write all: there is no authentication")
        try:
            http.serve(broker)
            _watch_requests(broker)
            say(" ".join([f"ready data={path}", *(f"{n}={a}" for n, a in addresses.items())]))
            async with asyncio.TaskGroup() as tasks:
                work = [
                    housekeeping.run(),
                    broker.groups.run(),
                    broker.subscriptions.run(),
                    broker.metrics.run(),
                    kafka.run(),
                    pylogstreams.run(),
                ]
                upkeep = [tasks.create_task(each) for each in work]
                served = Running(
                    broker=broker,
                    addresses=addresses,
                    housekeeping=housekeeping,
                    kafka=kafka,
                    http=http,
                    pylogstreams=pylogstreams,
                )
                served.take_from_clients(settings)
                yield served
                for task in upkeep:
                    task.cancel()
        finally:
            # All doors at once: each gives its clients the same seconds to come to an end.
            await asyncio.gather(
                _send_waiting_away(broker, pylogstreams), kafka.close(), http.close()
            )
            await broker.transactions.close()
            broker.client_log.close()


def _watch_requests(broker: Broker) -> None:
    """Have slow requests logged, if they are to be."""
    requests = broker.metrics.requests
    limit_ms = broker.settings.telemetry.slow_request_ms
    requests.slow_ns = limit_ms * 1_000_000 if limit_ms else sys.maxsize
    requests.on_slow = partial(_log_slow, broker)


def _log_slow(broker: Broker, request: str, elapsed_ns: int, peer: str, client: str) -> None:
    broker.client_log.write(
        _log,
        logging.INFO,
        "slow request: %(request)s of %(peer)s took %(elapsed_ms)d ms",
        {"request": request, "elapsed_ms": elapsed_ns // 1_000_000, "peer": peer, "client": client},
        kind=request,
        host=peer.rpartition(":")[0],
    )


async def _send_waiting_away(broker: Broker, pylogstreams: PyLogStreamsDoor) -> None:
    # First: it commits how far its clients have read.
    await pylogstreams.close()
    await broker.subscriptions.close()
    broker.groups.close()


def _data_path(settings: Settings) -> str:
    return os.path.abspath(os.path.expanduser(settings.storage.data_dir))


async def _open_doors(kafka: Door, http_address: str, pylogstreams: PyLogStreamsDoor) -> Addresses:
    addresses = {}
    if kafka.settings.listener != _OFF:
        addresses["kafka"] = await _open_door(kafka)
    if http_address:
        addresses["http"] = http_address
    if pylogstreams.settings.listener != _OFF:
        addresses["pylogstreams"] = await _open_pylogstreams(pylogstreams)
    return addresses


@asynccontextmanager
async def _http_door(settings: HttpSettings) -> AsyncIterator[tuple[HttpDoor, str]]:
    """The door and its address. It is open before the broker is, to tell that it is not ready."""
    door = HttpDoor(settings)
    address = ""
    if settings.listener != _OFF:
        try:
            address = door.open()
        except OSError as error:
            raise _unusable_address("http.listener", settings.listener, "--http", error) from None
    try:
        yield door, address
    finally:
        await door.close()


@asynccontextmanager
async def _tracing(
    settings: TelemetrySettings, dependencies: Dependencies
) -> AsyncIterator[Tracing | None]:
    """None, unless it is switched on: then other classes are in the place of the usual ones."""
    if not settings.tracing:
        yield None
        return
    tracing = dependencies.open_tracing(settings)
    try:
        yield tracing
    finally:
        await asyncio.to_thread(tracing.close)


def _kafka_door_kind(tracing: Tracing | None) -> type[Door]:
    if tracing is None:
        return Door
    from millstream.gateways.kafka.traced_door import TracedDoor

    return TracedDoor


async def _open_door(door: Door) -> str:
    try:
        return await door.open()
    except (OSError, UnicodeError) as error:
        listener = door.settings.listener
        raise _unusable_address("listeners", listener, "--kafka", error) from None


async def _open_pylogstreams(door: PyLogStreamsDoor) -> str:
    try:
        return await door.open()
    except (OSError, UnicodeError) as error:
        name, listener = "pylogstreams.listener", door.settings.listener
        raise _unusable_address(name, listener, "--pylogstreams", error) from None


def _unusable_address(
    name: str, listener: str, flag: str, error: OSError | UnicodeError
) -> InvalidSetting:
    if isinstance(error, UnicodeError):
        reason = "no host can be called so"
    elif error.errno == errno.EADDRINUSE:
        reason = "in use by another process"
    else:
        reason = error.strerror or str(error)
    return InvalidSetting(
        name=name,
        value=listener,
        expected=f"an address that is free to listen on ({reason}); {flag} chooses one",
    )


def _is_loopback(address: str) -> bool:
    host, _ = split_address(address) or ("", 0)
    return host in {"localhost", "::1"} or host.startswith("127.")


def _raise_file_limit() -> None:
    """A log holds up to three files, a client one: take all that the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
