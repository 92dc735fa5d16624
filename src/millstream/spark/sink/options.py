"""What a writer to topics can be told, by the names of Spark's own Kafka sink where it has them.

Invariant: options that were built can be carried out; a wrong one is refused before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from millstream.client.kafka import ClusterSettings
from millstream.errors import InvalidOption
from millstream.records.compression import Codec
from millstream.spark.options import check_names, connection

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
DELIVERIES = (EXACTLY_ONCE, AT_LEAST_ONCE)

SINK_NAMES = (
    "batchId",
    "compression",
    "delivery",
    "maxBatchBytes",
    "name",
    "topic",
    "transactionTimeout",
)
# What Spark itself adds to the options that it was given.
_OF_SPARK = ("checkpointLocation", "queryName")
_INT_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The options of one writer."""

    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    topic: str = ""
    """Where all rows go; else each goes where its column `topic` says."""
    delivery: str = EXACTLY_ONCE
    name: str = ""
    """What the query is known by, whatever becomes of its checkpoint."""
    checkpoint: str = ""
    batch_id: int | None = None
    """The number of a batch that is not written by a stream, as inside foreachBatch."""
    transaction_timeout_ms: int = 900_000
    """A driver that dies has so long to come back and finish what it decided."""
    compression: Codec = Codec.NONE
    max_batch_bytes: int = 1_000_000
    """A row that is larger is refused; topics take 1,048,588 bytes if not told otherwise."""

    @classmethod
    def parse(cls, words: Mapping[str, str]) -> SinkOptions:
        """Raises InvalidOption or UnknownOption."""
        check_names(words, (*SINK_NAMES, *_OF_SPARK))
        given = {name.lower(): value for name, value in words.items()}
        batch_id = given.get("batchid")
        options = cls(
            cluster=connection(words),
            topic=given.get("topic", ""),
            delivery=_choice("delivery", given.get("delivery", EXACTLY_ONCE), DELIVERIES),
            name=given.get("name") or given.get("queryname", ""),
            checkpoint=given.get("checkpointlocation", ""),
            batch_id=None if batch_id is None else _number("batchId", batch_id, least=0),
            transaction_timeout_ms=_number(
                "transactionTimeout", given.get("transactiontimeout", "900000")
            ),
            compression=_codec(given.get("compression", "none")),
            max_batch_bytes=_number("maxBatchBytes", given.get("maxbatchbytes", "1000000")),
        )
        if batch_id is not None and not options.name:
            raise InvalidOption(
                name="name", value="", expected="the name of the query, as batchId is given"
            )
        return options

    @property
    def is_exactly_once(self) -> bool:
        return self.delivery == EXACTLY_ONCE


def _choice(name: str, value: str, known: tuple[str, ...]) -> str:
    if value.lower() not in known:
        raise InvalidOption(name=name, value=value, expected=" or ".join(known))
    return value.lower()


def _number(name: str, text: str, *, least: int = 1) -> int:
    if not text.isdecimal() or not least <= int(text) <= _INT_MAX:
        raise InvalidOption(name=name, value=text, expected=f"a number from {least} to {_INT_MAX}")
    return int(text)


def _codec(name: str) -> Codec:
    known = {codec.name.lower(): codec for codec in Codec} | {"uncompressed": Codec.NONE}
    return known[_choice("compression", name, tuple(known))]
