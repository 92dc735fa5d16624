"""Settings of transactions."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import INT_MAX, LONG_MAX, Whole

_WEEK_MS = 7 * 24 * 60 * 60 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionSettings:
    """How long transactions may take, and how long their producers are known."""

    max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        900_000,
        Whole(1, INT_MAX),
        "Longest time that a producer may ask for before its transaction is aborted.",
    )
    id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        _WEEK_MS,
        Whole(1, LONG_MAX),
        "A transactional id that was not used for this time is forgotten.",
    )

    ids_max_count: int = setting(
        "millstream.transactional.ids.max.count",
        100_000,
        Whole(1, INT_MAX),
        "Most transactional ids that are known at once; another one is refused.",
    )

    def __post_init__(self) -> None:
        check(self)
