"""Settings of the memory that clients may take."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.settings.declaration import check, setting
from millstream.settings.domain import LONG_MAX, Whole


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySettings:
    """How much all clients together may make the broker hold."""

    max_bytes: int = setting(
        "max.memory.bytes",
        0,
        Whole(0, LONG_MAX),
        "Memory for requests that are being received and answers that are not read, of all "
        "listeners together; past it, clients wait. 0 is an eighth of the machine's memory, from "
        "128 MiB to 1 GiB. At least twice the largest request.",
        needs_restart=True,
    )

    def __post_init__(self) -> None:
        check(self)
