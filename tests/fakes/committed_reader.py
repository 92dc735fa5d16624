"""A reader of committed records, as Kafka's clients do it.

Each answer brings batches below the last stable offset, and the aborted transactions that reach
into them. The reader takes a producer's records for aborted from the first offset of such a
transaction on, until it meets the marker that says so: it never looks at where the broker says that
the transaction ends.
"""

from __future__ import annotations

from millstream.records import ControlType, Record, parse_control
from millstream.storage.batch_walk import split_batches
from millstream.storage.local_log import LocalLog
from tests.fakes.sample_batches import LIMIT_BYTES, records_in


class CommittedReader:
    """Reads on from an offset, as far as it likes at a time."""

    def __init__(self, log: LocalLog, offset: int = 0) -> None:
        self.log = log
        self.offset = offset

    def read(self, max_bytes: int = LIMIT_BYTES) -> list[Record] | None:
        """The committed records of one answer; None when there are no more batches."""
        self.offset = max(self.offset, self.log.start_offset)
        stable_offset = self.log.last_stable_offset
        if self.offset >= stable_offset:
            return None
        view = self.log.read(self.offset, max_bytes, below=stable_offset)
        if not view:
            return None
        batches = list(split_batches(view))
        end_offset = batches[-1][0].next_offset
        waiting = sorted(
            self.log.aborted_transactions(self.offset, end_offset), key=lambda a: -a.first_offset
        )
        aborting: set[int] = set()
        records: list[Record] = []
        for header, batch in batches:
            while waiting and waiting[-1].first_offset <= header.last_offset:
                aborting.add(waiting.pop().producer_id)
            if header.is_control:
                if parse_control(batch).kind is ControlType.ABORT:
                    aborting.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in aborting):
                records += records_in(batch)
        records = [record for record in records if record.offset >= self.offset]
        self.offset = end_offset
        return records

    def read_all(self, max_bytes: int = LIMIT_BYTES) -> list[Record]:
        """All that is left."""
        records: list[Record] = []
        while (found := self.read(max_bytes)) is not None:
            records += found
        return records


def committed_records(log: LocalLog, *, max_bytes: int = LIMIT_BYTES) -> list[Record]:
    """Every committed record of a log, from its start."""
    return CommittedReader(log, log.start_offset).read_all(max_bytes)
