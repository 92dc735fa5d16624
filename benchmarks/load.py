"""What the measures of the Kafka door send, where the command line asks for something else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """None stands for what the measure takes by itself, which is what its bar is set for."""

    message_bytes: int | None = None
    messages: int | None = None
    batch_bytes: int | None = None
    acks: str | None = None

    @property
    def is_usual(self) -> bool:
        return self == Load()
