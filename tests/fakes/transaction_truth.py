"""What is true of a log of transactions, worked out from a plain list of all that was written."""

from __future__ import annotations

from typing import NamedTuple

from millstream.records import ControlType
from tests.fakes.keyed_log import Pair


class Written(NamedTuple):
    """One offset of the log: a record, plain or of a producer's transaction, or a marker."""

    producer_id: int | None
    pair: Pair | None
    kind: ControlType | None = None


class Truth(NamedTuple):
    """What a list of all that was written says."""

    stable_offset: int
    # The first offset of each transaction under way.
    under_way: dict[int, int]
    # The committed and the aborted records below the stable offset.
    committed: dict[int, Pair]
    aborted: set[int]

    @classmethod
    def of(cls, written: list[Written]) -> Truth:
        waiting: dict[int, list[int]] = {}
        committed: dict[int, Pair] = {}
        aborted: set[int] = set()
        for offset, (producer_id, pair, kind) in enumerate(written):
            if kind is not None and producer_id is not None:
                ended = waiting.pop(producer_id, [])
                if kind is ControlType.ABORT:
                    aborted.update(ended)
                for number in ended if kind is ControlType.COMMIT else ():
                    committed[number] = written[number].pair or (None, None)
            elif producer_id is not None:
                waiting.setdefault(producer_id, []).append(offset)
            elif pair is not None:
                committed[offset] = pair
        under_way = {producer_id: offsets[0] for producer_id, offsets in waiting.items()}
        stable_offset = min(under_way.values(), default=len(written))
        return cls(
            stable_offset,
            under_way,
            {offset: committed[offset] for offset in sorted(committed) if offset < stable_offset},
            {offset for offset in aborted if offset < stable_offset},
        )

    def newest(self) -> dict[bytes | None, bytes]:
        latest = dict(self.committed.values())
        return {key: value for key, value in latest.items() if value is not None}
