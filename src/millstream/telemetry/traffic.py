"""How much went in and out: of one topic, and of all of them together.

Plain integers that are added to once for each write and each answer, never for each message.
Messages in batches are counted by the headers of these.

Invariant: they count from the start of the broker and never fall; those of all topics keep what
went through topics that are gone.
"""

from __future__ import annotations


class Totals:
    """What went through since the start."""

    __slots__ = ("bytes_in", "bytes_out", "messages_in", "messages_out")

    def __init__(self) -> None:
        self.messages_in = 0
        """Stored for clients."""
        self.bytes_in = 0
        self.messages_out = 0
        """Sent to clients."""
        self.bytes_out = 0


class Traffic(Totals):
    """What went through a part, which counts for the whole as well."""

    __slots__ = ("whole",)

    def __init__(self, whole: Totals | None = None) -> None:
        super().__init__()
        self.whole = whole or Totals()

    def sent(self, messages: int, size_bytes: int) -> None:
        """Messages were sent to a client."""
        self.messages_out += messages
        self.bytes_out += size_bytes
        self.whole.messages_out += messages
        self.whole.bytes_out += size_bytes
