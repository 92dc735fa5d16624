"""The checks of `millstream doctor`: each looks at one thing, and says what to do about it.

A check gives up rather than fails where the machine does not tell what it asks for.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from millstream import __version__
from millstream.cli.printout import size_text
from millstream.clock import SystemClock, ticks_ns

OK, WARN, FAIL = "ok", "warn", "fail"

_FILES_WANTED = 65_536
_FILES_NEEDED = 4096
_FREE_WANTED = 10 << 30
_FREE_NEEDED = 1 << 30
_MEMORY_WANTED = 1 << 30
_SYNCS = 20
_SYNC_GOOD_MS = 10.0
_SYNC_BAD_MS = 50.0
_PACKAGES = ("uvloop", "orjson", "crc32c", "lz4", "zstandard", "cramjam", "fastapi", "uvicorn")
_SPARK_PACKAGES = ("pyspark", "pyarrow", "deltalake")
_NETWORK_DISKS = {"nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p", "ceph", "glusterfs"}
_MEMORY_DISKS = {"tmpfs", "ramfs"}
_YEAR_2024_MS = 1_704_067_200_000
_OLDEST_JAVA = 17


class Checkup(NamedTuple):
    """What one check found."""

    verdict: str
    subject: str
    told: str
    advice: str = ""


Check = Callable[[], Iterator[Checkup]]


def checks(data: Path, ports: Sequence[int]) -> list[Check]:
    """All checks, in the order in which they are told."""
    return [
        _versions,
        _native,
        partial(_ports, ports),
        partial(_disk, data),
        partial(_sync, data),
        _files,
        _memory,
        _clock,
        _java,
    ]


def _versions() -> Iterator[Checkup]:
    yield Checkup(OK, "millstream", __version__)
    version = platform.python_version()
    if sys.version_info[:2] in {(3, 11), (3, 12), (3, 13), (3, 14)}:
        yield Checkup(OK, "python", f"{version} ({platform.python_implementation()})")
    else:
        yield Checkup(WARN, "python", version, "use Python 3.11 to 3.14: others are untested")
    found = {name: _version_of(name) for name in _PACKAGES}
    missing = [name for name, told in found.items() if told is None]
    told = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    if missing:
        advice = f"pip install {' '.join(missing)}, or install millstream again"
        yield Checkup(FAIL, "packages", f"missing: {', '.join(missing)}", advice)
    else:
        yield Checkup(OK, "packages", told)


def _version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _native() -> Iterator[Checkup]:
    system = platform.system()
    told = f"{system} {platform.release()}, {os.cpu_count()} CPUs"
    if system == "Linux":
        yield Checkup(OK, "system", told)
    else:
        yield Checkup(WARN, "system", told, "run brokers on Linux: elsewhere is untested")


def _ports(ports: Sequence[int]) -> Iterator[Checkup]:
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                yield Checkup(
                    WARN,
                    f"port {port}",
                    error.strerror or str(error),
                    "a broker may run there already; else give `serve` another port",
                )
            else:
                yield Checkup(OK, f"port {port}", "free")


def _disk(data: Path) -> Iterator[Checkup]:
    place = _existing(data)
    usage = shutil.disk_usage(place)
    told = f"{size_text(usage.free)} free of {size_text(usage.total)} at {place}"
    if usage.free < _FREE_NEEDED:
        yield Checkup(FAIL, "disk space", told, "free some, or choose another --data-dir")
    elif usage.free < _FREE_WANTED:
        yield Checkup(WARN, "disk space", told, "see that retention.ms and retention.bytes fit it")
    else:
        yield Checkup(OK, "disk space", told)
    kind = _filesystem_of(place)
    if kind in _NETWORK_DISKS:
        advice = "use a local disk: a lock and a sync mean less over a network"
        yield Checkup(WARN, "disk type", kind, advice)
    elif kind in _MEMORY_DISKS:
        advice = "use a real disk: this one is memory, and empty after a restart"
        yield Checkup(WARN, "disk type", kind, advice)
    else:
        yield Checkup(OK, "disk type", kind or "unknown")


def _existing(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def _filesystem_of(place: Path) -> str:
    try:
        lines = Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = [line.split()[1:3] for line in lines if len(line.split()) >= 3]
    holding = [(at, kind) for at, kind in mounts if place.is_relative_to(at)]
    return max(holding, key=lambda mount: len(mount[0]))[1] if holding else ""


def _sync(data: Path) -> Iterator[Checkup]:
    place = _existing(data)
    path = place / f".millstream-doctor-{os.getpid()}"
    try:
        times_ms = sorted(_timed_syncs(path))
    except OSError as error:
        told = f"{place}: {error.strerror or error}"
        advice = "let the broker's user write there"
        if isinstance(error, NotADirectoryError):
            advice = "choose a folder for --data-dir"
        yield Checkup(FAIL, "disk sync", told, advice)
        return
    median_ms = times_ms[len(times_ms) // 2]
    told = f"{median_ms:.2f} ms median, {times_ms[-1]:.2f} ms worst, of {len(times_ms)}"
    if median_ms <= _SYNC_GOOD_MS:
        yield Checkup(OK, "disk sync", told)
    else:
        verdict = FAIL if median_ms > _SYNC_BAD_MS * 10 else WARN
        advice = "acks=all waits for this: use an SSD, or acks=1 where losing a second is fine"
        yield Checkup(verdict, "disk sync", told, advice)


def _timed_syncs(path: Path) -> Iterator[float]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        for _ in range(_SYNCS):
            os.write(descriptor, b"\0" * 4096)
            began_ns = ticks_ns()
            os.fdatasync(descriptor)
            yield (ticks_ns() - began_ns) / 1e6
    finally:
        os.close(descriptor)
        path.unlink()


def _files() -> Iterator[Checkup]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    told = f"{soft:,} now, {hard:,} at most" if hard > 0 else f"{soft:,} now"
    # The broker raises its own limit as far as it may.
    limit = hard if hard > 0 else _FILES_WANTED
    if limit >= _FILES_WANTED:
        yield Checkup(OK, "open files", told)
    else:
        verdict = FAIL if limit < _FILES_NEEDED else WARN
        advice = f"raise the hard limit to {_FILES_WANTED:,} (ulimit -Hn, or LimitNOFILE=)"
        yield Checkup(verdict, "open files", told, advice)


def _memory() -> Iterator[Checkup]:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    sizes = {line.split(":")[0]: int(line.split()[1]) << 10 for line in lines if "kB" in line}
    free, total = sizes.get("MemAvailable", 0), sizes.get("MemTotal", 0)
    told = f"{size_text(free)} available of {size_text(total)}"
    if free >= _MEMORY_WANTED:
        yield Checkup(OK, "memory", told)
    else:
        advice = "leave some to the page cache: reads come from it"
        yield Checkup(WARN, "memory", told, advice)


def _clock() -> Iterator[Checkup]:
    now_ms = SystemClock().now_ms()
    if now_ms < _YEAR_2024_MS:
        advice = "set the clock: retention and timestamps go by it"
        yield Checkup(FAIL, "clock", f"{now_ms} ms since 1970", advice)
        return
    told = "set"
    timedatectl = shutil.which("timedatectl")
    if timedatectl is not None:
        asked = subprocess.run(  # noqa: S603 - a program of the system, with fixed arguments
            [timedatectl, "show", "--property=NTPSynchronized", "--value"],
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
        if asked.stdout.strip() == "no":
            advice = "let NTP set the clock: retention and timestamps go by it"
            yield Checkup(WARN, "clock", "not synchronised", advice)
            return
        told = "synchronised" if asked.stdout.strip() == "yes" else "set"
    yield Checkup(OK, "clock", told)


def _java() -> Iterator[Checkup]:
    found = {name: _version_of(name) for name in _SPARK_PACKAGES}
    if not all(found.values()):
        missing = ", ".join(name for name, version in found.items() if version is None)
        told = f"not installed ({missing})"
        yield Checkup(OK, "spark", f"{told}: only pipelines and the data source need it")
        return
    yield Checkup(OK, "spark", ", ".join(f"{name} {version}" for name, version in found.items()))
    from millstream.errors import JavaMissing
    from millstream.spark.java import prepare_java

    try:
        java = prepare_java()
    except JavaMissing as error:
        yield Checkup(WARN, "java", "none that Spark runs on", str(error))
    else:
        yield Checkup(OK, "java", f"{java}, {_OLDEST_JAVA} or newer")
