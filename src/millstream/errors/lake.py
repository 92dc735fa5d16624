"""What a query that writes to a Delta table can meet."""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors.base import Conflict


@dataclass(eq=False, kw_only=True)
class TableConflict(Conflict):
    """Rows do not fit into a table as it is."""

    table: str
    what: str

    def __str__(self) -> str:
        return f"rows do not fit into table {self.table}: {self.what}"


@dataclass(eq=False, kw_only=True)
class CheckpointLost(Conflict):
    """A query counts its batches anew, and they are not those that the table has of it."""

    table: str
    query: str
    batch_number: int
    last_number: int

    def __str__(self) -> str:
        return (
            f"table {self.table} has batches up to {self.last_number} of query {self.query!r}, "
            f"and batch {self.batch_number} of them held other rows than the query's batch "
            f"{self.batch_number} now: its checkpoint is lost or another one. Give the query its "
            f"checkpoint back; or give it a new name, and a start after the rows that the table has"
        )
