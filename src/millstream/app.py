"""Composition root: the only place where objects are wired together."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import signal
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any

from millstream import __version__
from millstream.broker.broker import Broker
from millstream.broker.group_topics import GroupTopics
from millstream.broker.groups import GroupCoordinator
from millstream.broker.housekeeping import Housekeeping
from millstream.broker.opening import Opened, open_data
from millstream.broker.producer_ids import ProducerIds
from millstream.broker.reading import Reader
from millstream.broker.sending import Sender
from millstream.broker.subscriptions import Subscriptions
from millstream.broker.topics import Topics
from millstream.broker.transaction_markers import TransactionMarkers
from millstream.broker.transactions import TransactionCoordinator
from millstream.clock import Clock, SystemClock
from millstream.errors import InvalidSetting
from millstream.gateways.http.door import HttpDoor
from millstream.gateways.kafka.listener import Door
from millstream.gateways.pylogstreams.door import Door as PyLogStreamsDoor
from millstream.identity import new_client_id, new_id, new_name
from millstream.settings.domain import split_address
from millstream.settings.http import HttpSettings
from millstream.settings.loader import Settings
from millstream.settings.names import OFFSETS_TOPIC, SUBSCRIPTIONS_TOPIC, TRANSACTIONS_TOPIC
from millstream.storage.data_directory import DataDirectory
from millstream.storage.filesystem import Filesystem, LocalFilesystem, passing_trouble
from millstream.storage.flusher import Flusher

# A compaction thread that is busy lets go of the interpreter this often. Python's own 5 ms would
# show in the latency of every client.
_SWITCH_INTERVAL_S = 0.0005
_OFF = "off"
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_MANY_LINES = 20

Say = Callable[[str], None]


def run(settings: Settings, *, say: Say) -> None:
    """Serve until SIGTERM or SIGINT. `say` gets each line meant for a person."""
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    _raise_file_limit()
    path = os.path.abspath(os.path.expanduser(settings.storage.data_dir))
    _run_on_a_loop(_serve(path, settings, say))
    for signal_number in _STOP_SIGNALS:
        signal.signal(signal_number, signal.SIG_IGN)


def _run_on_a_loop(work: Coroutine[Any, Any, None]) -> None:
    try:
        import uvloop
    except ImportError:  # It does not exist for every platform.
        asyncio.run(work)
    else:
        uvloop.run(work)


async def _serve(path: str, settings: Settings, say: Say) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop_soon(*_: object) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(stop.set)

    # Not the loop's own handlers: it would forget them while it closes, and then a second signal
    # would kill a broker that has almost stopped well.
    for signal_number in _STOP_SIGNALS:
        signal.signal(signal_number, stop_soon)
    say(f"millstream {__version__}")
    say(f"opening {path}")
    async with (
        _http_door(settings.http) as (http, http_address),
        _broker(path, settings, say) as (broker, housekeeping),
    ):
        door = Door(broker, settings.kafka)
        addresses = {}
        if settings.kafka.listener != _OFF:
            addresses["kafka"] = await _open_door(door)
        if http_address:
            addresses["http"] = http_address
        pylogstreams = PyLogStreamsDoor(broker, settings.pylogstreams, new_client_id=new_client_id)
        if settings.pylogstreams.listener != _OFF:
            addresses["pylogstreams"] = await _open_pylogstreams(pylogstreams)
        for address in addresses.values():
            if not _is_loopback(address):
                say(f"whoever reaches {address} can read and write all: there is no authentication")
        try:
            http.serve(broker)
            say(" ".join([f"ready data={path}", *(f"{n}={a}" for n, a in addresses.items())]))
            async with asyncio.TaskGroup() as tasks:
                work = [
                    housekeeping.run(),
                    broker.groups.run(),
                    broker.subscriptions.run(),
                    door.run(),
                    pylogstreams.run(),
                ]
                running = [tasks.create_task(each) for each in work]
                await stop.wait()
                say("stopping")
                for task in running:
                    task.cancel()
        finally:
            # First: it commits how far its clients have read.
            await pylogstreams.close()
            await broker.subscriptions.close()
            broker.groups.close()
            await asyncio.gather(door.close(), http.close())
            await broker.transactions.close()
    say("stopped")


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
async def _broker(
    path: str, settings: Settings, say: Say
) -> AsyncIterator[tuple[Broker, Housekeeping]]:
    """Everything behind the doors; closed in an order that keeps each promise made to a client."""
    filesystem, clock = LocalFilesystem(), SystemClock()
    # Recovery reads the disk; meanwhile the loop stays free to hear a signal.
    opened = await asyncio.to_thread(_open, filesystem, path, settings, clock)
    loop = asyncio.get_running_loop()

    def wake() -> None:
        loop.call_soon_threadsafe(flusher.collect)

    flusher = Flusher(threads=settings.storage.flush_threads, wake=wake)
    try:
        for line in _recovery_lines(opened.directory):
            say(line)
        housekeeping = Housekeeping(
            opened.directory,
            flusher,
            filesystem,
            storage=settings.storage,
            defaults=settings.log,
            clock=clock,
        )
        topics = Topics(
            opened,
            flusher,
            settings=settings.topics,
            storage=settings.storage,
            defaults=settings.log,
            clock=clock,
            new_id=new_id,
            release=housekeeping.release,
        )
        for line in [*opened.notes, *await topics.start()]:
            say(line)
        yield await _coordinated(topics, flusher, settings, clock), housekeeping
        await topics.close()
    finally:
        flusher.close()
        opened.directory.close()
        for line in opened.directory.take_notes():
            say(line)


async def _coordinated(
    topics: Topics, flusher: Flusher, settings: Settings, clock: Clock
) -> Broker:
    """The coordinators, with all that their logs hold, and so the whole broker."""
    groups = GroupCoordinator(
        topics.state_log(OFFSETS_TOPIC),
        settings=settings.groups,
        clock=clock,
        topics=GroupTopics(topics).view,
        new_member_id=new_name,
    )
    await groups.start(topics.cut_end)
    topics.forgetting.append(groups.topic_deleted)
    producer_ids = ProducerIds(topics.allocate_producer_ids)
    transactions = TransactionCoordinator(
        topics.state_log(TRANSACTIONS_TOPIC),
        TransactionMarkers(topics, flusher, clock=clock, end_offsets=groups.end_transaction),
        settings=settings.transactions,
        clock=clock,
        new_producer_id=producer_ids.next,
    )
    # After the groups: their offsets are part of transactions that may have to be ended.
    await transactions.start()
    sender = Sender(topics, flusher, clock=clock)
    reader = Reader(max_unpacked_bytes=settings.storage.max_decompressed_bytes)
    subscriptions = Subscriptions(
        topics.state_log(SUBSCRIPTIONS_TOPIC),
        topics,
        sender,
        reader,
        limits=settings.subscriptions,
        clock=clock,
    )
    await subscriptions.start()
    return Broker(
        topics=topics,
        groups=groups,
        transactions=transactions,
        producer_ids=producer_ids,
        subscriptions=subscriptions,
        sender=sender,
        reader=reader,
        flusher=flusher,
        clock=clock,
        settings=settings,
    )


async def _open_door(door: Door) -> str:
    try:
        return await door.open()
    except OSError as error:
        listener = door.settings.listener
        raise _unusable_address("listeners", listener, "--kafka", error) from None


async def _open_pylogstreams(door: PyLogStreamsDoor) -> str:
    try:
        return await door.open()
    except OSError as error:
        name, listener = "pylogstreams.listener", door.settings.listener
        raise _unusable_address(name, listener, "--pylogstreams", error) from None


def _unusable_address(name: str, listener: str, flag: str, error: OSError) -> InvalidSetting:
    reason = "in use by another process" if error.errno == errno.EADDRINUSE else error.strerror
    return InvalidSetting(
        name=name,
        value=listener,
        expected=f"an address that is free to listen on ({reason}); {flag} chooses one",
    )


def _is_loopback(address: str) -> bool:
    host, _ = split_address(address) or ("", 0)
    return host in {"localhost", "::1"} or host.startswith("127.")


def _recovery_lines(directory: DataDirectory) -> list[str]:
    """What recovery did, log by log unless that would be too many lines to read."""
    reports = directory.reports
    lines = [line for report in reports for line in report.lines()]
    if len(lines) > _MANY_LINES:
        unclean = [report for report in reports if not report.clean]
        scanned_bytes = sum(report.scanned_bytes for report in unclean)
        unclean_logs = f"{len(unclean)} of {len(reports)} logs were not stopped cleanly"
        lines = [
            f"{unclean_logs}; scanned {scanned_bytes} bytes",
            *(line for report in reports for line in report.events()),
        ]
    return [*directory.take_notes(), *lines]


def _open(filesystem: Filesystem, path: str, settings: Settings, clock: Clock) -> Opened:
    try:
        return open_data(
            filesystem, path, storage=settings.storage, defaults=settings.log, clock=clock
        )
    except OSError as error:
        if (trouble := passing_trouble(error, path)) is not None:
            raise trouble from None
        raise InvalidSetting(
            name="data.dir",
            value=path,
            expected=f"a directory that can be opened ({error.strerror})",
        ) from None


def _raise_file_limit() -> None:
    """A log holds up to three files, a client one: take all that the machine allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
