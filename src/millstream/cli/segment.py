"""`millstream segment`: the files of a broker, looked at without one.

Meant for a data directory whose broker is stopped. What only reads works beside a running one too,
and may then meet what is being written; what writes refuses.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from millstream.cli.presence import present_file, present_folder
from millstream.cli.printout import (
    AsJson,
    note,
    print_json,
    print_lines,
    print_table,
    size_text,
    time_text,
)
from millstream.cli.progress import shown
from millstream.errors import CorruptData, DirectoryLocked, InvalidRequest, NotFound

if TYPE_CHECKING:
    from millstream.storage.filesystem import Filesystem
    from millstream.storage.finding import Finding
    from millstream.storage.log_verification import LogReport
    from millstream.storage.recovery import LogCheckpoint
    from millstream.storage.segment import Segment

_READ_ONLY = {errno.EROFS, errno.EACCES, errno.EPERM}

_ROOTS = ("topics", "copies")

commands = typer.Typer(
    no_args_is_help=True,
    help="Segment files of a stopped broker: list, dump, verify, rebuild, repair.",
)

Data = Annotated[
    Path,
    typer.Argument(help="The broker's data directory.", file_okay=False, callback=present_folder),
]
Topic = Annotated[
    str | None, typer.Option("--topic", "-t", help="Only this topic.", show_default="all")
]
Partition = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Only this one.", show_default="all")
]


class _Log(NamedTuple):
    """One log's directory, and what was written down of it."""

    topic: str
    partition: int
    directory: str
    checkpoint: LogCheckpoint | None

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.partition}"


@commands.command("list")
def list_segments(
    data: Data, *, topic: Topic = None, partition: Partition = None, json: AsJson = False
) -> None:
    """List segments: which offsets they hold and how large their files are."""
    from millstream.storage.filesystem import LocalFilesystem
    from millstream.storage.log_verification import segments_of

    filesystem = LocalFilesystem()
    shapes = [
        _segment_shape(log, segment)
        for log in _logs(filesystem, data, topic, partition)
        for segment in segments_of(filesystem, log.directory, log.checkpoint)
    ]
    if json:
        for shape in shapes:
            print_json(shape)
    elif shapes:
        titles = ("TOPIC", "PARTITION", "FROM", "TO", "STATE", "SIZE", "INDEX", "FILE")
        rows = [
            (
                each["topic"],
                each["partition"],
                each["base_offset"],
                None if each["next_offset"] is None else each["next_offset"] - 1,
                each["state"],
                size_text(each["bytes"]),
                size_text(each["index_bytes"]),
                each["file"],
            )
            for each in shapes
        ]
        print_table(titles, rows, elastic=("FILE",), right=("FROM", "TO", "SIZE", "INDEX"))
    else:
        print_lines(f"{data} holds no segments")


@commands.command()
def dump(
    file: Annotated[
        Path, typer.Argument(help="A record file, NNN.log.", dir_okay=False, callback=present_file)
    ],
    *,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="The records of each batch too.")
    ] = False,
    offset: Annotated[int, typer.Option("--from", "-o", min=0, help="From this offset on.")] = 0,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="So many batches.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print the batches of a record file, with their headers."""
    from millstream.cli.segment_dump import dumped

    for place, shape in enumerate(dumped(file, offset=offset, with_records=records)):
        if place == count:
            break
        if json:
            print_json(shape)
        else:
            print_lines(*_dump_lines(shape))


@commands.command()
def verify(
    data: Data,
    *,
    topic: Topic = None,
    partition: Partition = None,
    records: Annotated[
        bool, typer.Option("--records", "-r", help="Unpack and read each record.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Prove all files by their checksums, and say exactly what is wrong where."""
    from millstream.storage.filesystem import LocalFilesystem
    from millstream.storage.log_verification import LogVerification

    filesystem = LocalFilesystem()
    with _undisturbed(filesystem, data):
        findings = _checkpoint_findings(filesystem, data)
        proofs = [
            LogVerification(
                filesystem,
                log.directory,
                name=log.name,
                checkpoint=log.checkpoint,
                reads_records=records,
            )
            for log in [
                *_logs(filesystem, data, topic, partition),
                *_copies(filesystem, data, topic, partition),
            ]
        ]
        total = sum(segment.size for proof in proofs for segment in proof.segments)
        reports, done = [], 0
        with shown("verifying", total) as tell:

            def advance(size: int) -> None:
                nonlocal done
                done += size
                tell(done, f"{size_text(done)} of {size_text(total)}")

            for proof in proofs:
                reports.append(proof.run(advance))
                findings += reports[-1].findings
    _print_report(reports, findings, data, json=json)
    if any(each.is_damage for each in findings):
        raise typer.Exit(1)


@commands.command("rebuild-index")
def rebuild_index(
    data: Data, *, topic: Topic = None, partition: Partition = None, json: AsJson = False
) -> None:
    """Write the indexes of segments anew from their record files. Refuses a running broker's."""
    from millstream.settings.log import LogSettings
    from millstream.storage.filesystem import LocalFilesystem
    from millstream.storage.log_verification import segments_of
    from millstream.storage.recovery import rebuild_indexes
    from millstream.storage.segment_scan import EVERYTHING

    filesystem = LocalFilesystem()
    count = damaged = 0
    # Before anything is written: what is no data directory gets no lock either.
    _check_is_data(data)
    lock = filesystem.lock(str(data / "lock"), f"process {os.getpid()}")
    try:
        for log in _logs(filesystem, data, topic, partition):
            for segment in segments_of(filesystem, log.directory, log.checkpoint):
                if segment.next_offset == EVERYTHING:
                    note(f"{segment.log_path} is left: the next start of the broker rebuilds it")
                    continue
                interval = LogSettings().index_interval_bytes
                scan = rebuild_indexes(filesystem, segment, index_interval_bytes=interval)
                count += 1
                damaged += bool(scan.damage)
                if json:
                    print_json({**_segment_shape(log, segment), "damage": len(scan.damage)})
                for each in scan.damage:
                    note(str(each))
    finally:
        lock.release()
    if not json:
        print_lines(f"the indexes of {count} segments are written anew")
    if damaged:
        raise typer.Exit(1)


@commands.command()
def repair(
    data: Data,
    *,
    topic: Topic = None,
    partition: Partition = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what is damaged and what would be lost.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: AsJson = False,
) -> None:
    """Take damage out of logs: what cannot be read is lost, the rest keeps its offsets.

    The damaged files are kept under `damaged/`. Refuses the directory of a running broker. Restore
    a backup instead if you have one.
    """
    from millstream.cli.segment_repair import repair_logs
    from millstream.storage.filesystem import LocalFilesystem

    filesystem = LocalFilesystem()
    _check_is_data(data)
    lock = filesystem.lock(str(data / "lock"), f"process {os.getpid()}")
    try:
        names = [log.name for log in _logs(filesystem, data, topic, partition, roots=_ROOTS)]
        known = _checkpoints(filesystem, data)
        repair_logs(filesystem, data, names, known, is_dry_run=dry_run, is_agreed=yes, as_json=json)
    finally:
        lock.release()


def _logs(
    filesystem: Filesystem,
    data: Path,
    topic: str | None,
    partition: int | None,
    *,
    roots: Sequence[str] = ("topics",),
) -> list[_Log]:
    """The chosen logs that are in one of these directories. Raises NotFound if there is none."""
    _check_is_data(data)
    topics = data / "topics"
    known = _checkpoints(filesystem, data)
    found = [
        _Log(name, number, str(topics / name / str(number)), known.get(f"{name}/{number}"))
        for name, number in dict.fromkeys(
            found for root in roots for found in _partitions(filesystem, data / root)
        )
    ]
    chosen = [
        log
        for log in found
        if topic in {None, log.topic} and (partition is None or partition == log.partition)
    ]
    if not chosen and (topic is not None or partition is not None):
        names = ", ".join(sorted({log.topic for log in found})) or "none"
        what = "topic" if partition is None else "partition"
        named = str(topic) if partition is None else f"{topic or '*'}/{partition}"
        raise NotFound(kind=what, name=named, hint=f"{data} holds topics: {names}")
    return chosen


def _copies(
    filesystem: Filesystem, data: Path, topic: str | None, partition: int | None
) -> list[_Log]:
    """The second copies of the broker's own topics."""
    from millstream.storage.mirrored_log import copy_name

    copies, known = data / "copies", _checkpoints(filesystem, data)
    return [
        _Log(
            copy_name(name),
            number,
            str(copies / name / str(number)),
            known.get(copy_name(f"{name}/{number}")),
        )
        for name, number in _partitions(filesystem, copies)
        if topic in {None, name} and partition in {None, number}
    ]


def _partitions(filesystem: Filesystem, topics: Path) -> Iterator[tuple[str, int]]:
    from millstream.storage.mirrored_log import REPAIRED_SUFFIX

    for name in filesystem.directories(str(topics)):
        found = filesystem.directories(str(topics / name))
        # An interrupted repair may have left nothing else.
        numbers = {each.removesuffix(REPAIRED_SUFFIX) for each in found}
        for number in sorted(numbers, key=_as_number):
            if number.isdigit():
                yield name, int(number)


def _check_is_data(data: Path) -> None:
    if not (data / "topics").is_dir():
        raise InvalidRequest(
            f"{data} is no data directory: it has no folder `topics`; give what `serve --data-dir` "
            "was given"
        )


def _as_number(text: str) -> int:
    return int(text) if text.isdigit() else -1


def _checkpoints(filesystem: Filesystem, data: Path) -> dict[str, LogCheckpoint]:
    from millstream.storage.checkpoint import CheckpointFile

    try:
        return CheckpointFile(filesystem, str(data / "checkpoint")).load()
    except CorruptData:
        # Told by `verify`; without it, nothing counts as cleanly stopped.
        return {}


def _checkpoint_findings(filesystem: Filesystem, data: Path) -> list[Finding]:
    from millstream.storage.checkpoint import CheckpointFile
    from millstream.storage.finding import Finding

    try:
        CheckpointFile(filesystem, str(data / "checkpoint")).load()
    except CorruptData as damage:
        problem = f"{damage.reason}; the next start scans every log from its beginning"
        return [Finding(path=damage.path, problem=problem, position=damage.position)]
    return []


@contextmanager
def _undisturbed(filesystem: Filesystem, data: Path) -> Iterator[None]:
    """Keep a broker from starting meanwhile; beside one that runs, say what that means.

    What can only be read, as a backup is, is proved without a lock.
    """
    _check_is_data(data)
    try:
        lock = filesystem.lock(str(data / "lock"), f"process {os.getpid()}")
    except DirectoryLocked as error:
        note(f"{data} is in use by {error.holder}: what it writes meanwhile may be told as torn")
        yield
        return
    except OSError as error:
        if error.errno not in _READ_ONLY:
            raise
        note(f"{data} cannot be locked ({error.strerror}): see that no broker runs on it")
        yield
        return
    try:
        yield
    finally:
        lock.release()


def _segment_shape(log: _Log, segment: Segment) -> dict[str, Any]:
    from millstream.storage.segment_scan import EVERYTHING

    return {
        "topic": log.topic,
        "partition": log.partition,
        "base_offset": segment.base_offset,
        "next_offset": None if segment.next_offset == EVERYTHING else segment.next_offset,
        "state": segment.state.value,
        "bytes": segment.size,
        "index_bytes": sum(
            os.path.getsize(path)
            for path in (segment.index_path, segment.time_index_path, segment.aborted_path)
            if os.path.exists(path)
        ),
        "file": segment.log_path,
    }


def _dump_lines(shape: dict[str, Any]) -> Iterator[str]:
    flags = [name for name in ("transactional", "control") if shape[name]]
    producer = (
        f" producer={shape['producer_id']}/{shape['producer_epoch']}"
        f" sequence={shape['base_sequence']}"
        if shape["producer_id"] >= 0
        else ""
    )
    yield (
        f"{shape['base_offset']}..{shape['last_offset']} byte={shape['position']} "
        f"bytes={shape['bytes']} records={shape['records_count']} codec={shape['codec']} "
        f"time={time_text(shape['max_timestamp'])}{producer}"
        + "".join(f" {flag}" for flag in flags)
        + ("" if shape["sound"] else f" DAMAGED: {shape['problem']}")
    )
    for record in shape.get("records", ()):
        headers = f" headers={record['headers']}" if record["headers"] else ""
        yield f"  {record['offset']} key={record['key']!r} value={record['value']!r}{headers}"


def _print_report(
    reports: list[LogReport], findings: list[Finding], data: Path, *, json: bool
) -> None:
    damage = sum(each.is_damage for each in findings)
    summary = {
        "logs": len(reports),
        "segments": sum(each.segments for each in reports),
        "batches": sum(each.batches for each in reports),
        "records": sum(each.records for each in reports),
        "bytes": sum(each.bytes for each in reports),
        "damage": damage,
        "notes": len(findings) - damage,
    }
    if json:
        for each in findings:
            print_json(
                {
                    "kind": "damage" if each.is_damage else "note",
                    "file": each.path,
                    "position": each.position,
                    "offset": each.offset,
                    "problem": each.problem,
                    "expected": each.expected or None,
                    "found": each.found or None,
                }
            )
        print_json({"kind": "summary", "data": str(data), **summary})
        return
    for each in findings:
        print_lines(f"{'DAMAGE' if each.is_damage else 'note'}: {each}")
    print_lines(
        f"{summary['logs']} logs, {summary['segments']} segments, {summary['batches']:,} batches, "
        f"{summary['records']:,} records, {size_text(summary['bytes'])}: "
        + (f"{damage} problems" if damage else "all is sound")
    )
