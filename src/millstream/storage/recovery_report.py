"""What opening a log found and did, and the damage that was found since. For people."""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.errors import CorruptData
from millstream.storage.segment_scan import Damage


@dataclass(slots=True, frozen=True)
class SetAside:
    """Bytes behind the place where a log was cut, in which sound records were found."""

    path: str
    position: int
    offset: int
    reason: str
    size_bytes: int
    kept: str
    is_torn: bool
    """Whether a crash explains it: what lies before them never reached the disk."""

    def __str__(self) -> str:
        return (
            f"{self.path}: the log was cut at byte {self.position} (offset {self.offset}: "
            f"{self.reason}) although sound records follow: {self.size_bytes} bytes are kept in "
            f"{self.kept}"
        )


@dataclass(slots=True)
class RecoveryReport:
    """What opening a log found and did."""

    log: str
    clean: bool = False
    scanned_bytes: int = 0
    batches: int = 0
    torn: list[str] = field(default_factory=list)
    set_aside: list[SetAside] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    """What cannot be read, found when the log was opened or since."""
    repaired: list[str] = field(default_factory=list)
    """Damage of the broker's own state that another copy made good."""
    copy_failure: str = ""
    """Why one of two copies is behind until the next start; empty while they are equal."""
    rebuilt_indexes: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def unresolved(self) -> list[str]:
        """What is wrong with the log, by file and position."""
        return [*map(str, self.damage), *(str(each) for each in self.set_aside if not each.is_torn)]

    def lines(self) -> list[str]:
        """For people: a line for each thing worth knowing; none after an uneventful clean stop."""
        lines = [] if self.clean else [self._summary()]
        rebuilt = [f"{self.log}: rebuilt {path}" for path in self.rebuilt_indexes]
        return [*lines, *self.events(), *rebuilt]

    def events(self) -> list[str]:
        """Of those lines the ones that tell of more than a crash and its routine."""
        return [
            *(f"{self.log}: cut a torn tail: {what}" for what in self.torn),
            *(f"{self.log}: {each}" for each in self.set_aside),
            *(f"{self.log}: DAMAGE: {damage}" for damage in self.damage),
            *(f"{self.log}: REPAIRED: {repair}" for repair in self.repaired),
            *(f"{self.log}: {note}" for note in self.notes),
        ]

    def add(self, damage: CorruptData) -> Damage | None:
        """Note damage that was found by reading; None if it was known."""
        if any(each.path == damage.path and each.covers(damage.position) for each in self.damage):
            return None
        found = Damage(
            path=damage.path,
            position=damage.position,
            end_position=damage.end_position,
            offset=damage.offset,
            end_offset=damage.next_offset,
            reason=damage.reason,
        )
        self.damage.append(found)
        return found

    def take_over(self, before: RecoveryReport) -> None:
        """Add what was found in the files that were here before."""
        self.clean = before.clean
        self.scanned_bytes, self.batches = before.scanned_bytes, before.batches
        self.torn += before.torn
        self.rebuilt_indexes += before.rebuilt_indexes
        self.notes += before.notes

    def _summary(self) -> str:
        return (
            f"{self.log}: not stopped cleanly; scanned {self.scanned_bytes} bytes, "
            f"kept {self.batches} batches"
        )
