"""The table: what the driver does to it, once for each batch.

Invariant: a batch of a query is in the table once or not at all. A commit to Delta's log carries
the rows and, as application transactions, the query's name and id with the number of the batch;
what the log has is not written again.
After a crash: nothing to recover. Spark repeats the batch that it does not know to be done; the
table knows whether it is.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import deltalake
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, create_table_with_add_actions

from millstream.errors import CheckpointLost, InvalidRequest, TableConflict
from millstream.spark.fingerprint import Fingerprint
from millstream.spark.lake import partition_values, upsert
from millstream.spark.lake.options import UPSERT, LakeOptions
from millstream.spark.lake.staging import StagedFile
from millstream.spark.lake.table_files import TableFiles, open_files

STAGING = "_millstream"

_ATTEMPTS = 5
_INFO = "millstream"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What is to be committed together."""

    number: int | None
    """None: not of a stream, and written whenever it is asked for."""
    query_id: str | None
    files: Sequence[StagedFile]
    fingerprint: Fingerprint
    replaces_all: bool = False


class LakeTable:
    """One table, as one query writes to it."""

    def __init__(self, options: LakeOptions, schema: deltalake.Schema) -> None:
        self._options = options
        self._schema = schema

    @property
    def files(self) -> TableFiles:
        return open_files(self._options.path)

    def open(self) -> DeltaTable | None:
        """Its newest version; None if there is none yet."""
        try:
            return DeltaTable(self._options.path)
        except TableNotFoundError:
            return None

    def check_columns(self) -> None:
        """Raises InvalidRequest if options name columns that rows do not have."""
        partition_values.check_columns(
            pa.schema(self._schema.to_arrow()), self._options.partition_by
        )
        for field in self._schema.fields:
            if "interval" in _kind(field):
                raise InvalidRequest(
                    f"column {field.name!r} is an interval, which Delta lacks: cast it to a number"
                )
        names = [each.name for each in self._schema.fields]
        wanted = [("key", each) for each in self._options.key]
        if self._options.order_by:
            wanted.append(("orderBy", self._options.order_by))
        for option, name in wanted:
            if name not in names:
                raise InvalidRequest(
                    f"option {option!r} names column {name!r}: the rows have {', '.join(names)}"
                )

    def check_table(self) -> None:
        """Raises TableConflict if rows cannot go to the table as it is."""
        if (table := self.open()) is not None:
            self._new_fields(table)

    def commit(self, batch: Batch) -> None:
        """Put a batch into the table, unless it is there."""
        for attempt in range(1, _ATTEMPTS + 1):
            table = self.open()
            if table is not None and self.has(table, batch):
                _log.info("table %s has batch %s already", self._options.path, batch.number)
                self._discard(batch)
                break
            try:
                if table is None:
                    table = self._create(batch)
                else:
                    self._evolve(table)
                    self._write(table, batch)
            except CommitFailedError:
                # Somebody else changed the table. What is to be done depends on its new version.
                if attempt == _ATTEMPTS:
                    raise
                continue
            break
        self._forget_staged(batch)

    def has(self, table: DeltaTable, batch: Batch) -> bool:
        """Whether a batch is in the table. Raises CheckpointLost if another has its number."""
        if batch.number is None:
            return False
        if batch.query_id is not None:
            last = table.transaction_version(self._query_key(batch))
            if last is not None:
                return last >= batch.number
        if self._options.name is None:
            return False
        last = table.transaction_version(self._options.name)
        if last is None or last < batch.number:
            return False
        # Written by a query with this name and another checkpoint.
        if self._recorded(table, batch.number) != batch.fingerprint.text():
            raise CheckpointLost(
                table=self._options.path,
                query=self._options.name,
                batch_number=batch.number,
                last_number=last,
            )
        return True

    def abort(self, batch: Batch) -> None:
        """Delete what was staged, unless the batch is in the table all the same."""
        table = self.open()
        try:
            if table is not None and self.has(table, batch):
                return
        except CheckpointLost:
            _log.info("what was staged for batch %s is deleted", batch.number)
        self._discard(batch)

    def _discard(self, batch: Batch) -> None:
        """Delete what was staged and is not part of the table."""
        table = self.open()
        known = set() if table is None else _paths(table)
        for staged in batch.files:
            if partition_values.log_path(staged.path) not in known:
                self.files.delete(staged.path)

    def _create(self, batch: Batch) -> DeltaTable:
        is_upsert = self._options.mode == UPSERT
        try:
            create_table_with_add_actions(
                self._options.path,
                self._schema,
                [] if is_upsert else self._additions(batch),
                partition_by=list(self._options.partition_by),
                commit_properties=None if is_upsert else self._properties(batch),
            )
        except DeltaError as error:
            if self.open() is None:
                raise
            raise CommitFailedError(str(error)) from error
        table = self.open()
        assert table is not None
        if is_upsert:
            self._write(table, batch)
        return table

    def _write(self, table: DeltaTable, batch: Batch) -> None:
        if self._options.mode == UPSERT:
            upsert.merge(
                table,
                upsert.newest(self.files, batch.files, self._options),
                self._options,
                self._properties(batch),
            )
            return
        # The one place where a batch becomes part of the table.
        table.create_write_transaction(
            self._additions(batch),
            "overwrite" if batch.replaces_all else "append",
            self._schema,
            partition_by=list(self._options.partition_by),
            commit_properties=self._properties(batch),
        )

    def _evolve(self, table: DeltaTable) -> None:
        """Add columns that the table lacks. Done twice, it changes nothing."""
        if fields := self._new_fields(table):
            table.alter.add_columns(fields)
            table.update_incremental()

    def _new_fields(self, table: DeltaTable) -> list[deltalake.Field]:
        there = {each.name: each for each in table.schema().fields}
        names = {each.name.lower(): each.name for each in table.schema().fields}
        added = []
        for field in self._schema.fields:
            if field.name in there:
                if there[field.name].type != field.type:
                    raise TableConflict(
                        table=self._options.path,
                        what=f"column {field.name!r} is {_kind(there[field.name])} there and "
                        f"{_kind(field)} in the rows: cast it in the query",
                    )
                continue
            if field.name.lower() in names:
                raise TableConflict(
                    table=self._options.path,
                    what=f"column {field.name!r} is spelled {names[field.name.lower()]!r} there: "
                    f"rename it in the query",
                )
            if not self._options.merge_schema:
                raise TableConflict(
                    table=self._options.path,
                    what=f"column {field.name!r} is new: set option 'mergeSchema' to add it, "
                    f"or leave it out of the query",
                )
            added.append(field)
        parted = tuple(table.metadata().partition_columns)
        if parted != self._options.partition_by:
            raise TableConflict(
                table=self._options.path,
                what=f"it is partitioned by {', '.join(parted) or 'nothing'}, and option "
                f"'partitionBy' says {', '.join(self._options.partition_by) or 'nothing'}: "
                f"a table keeps its partition columns",
            )
        return added

    def _additions(self, batch: Batch) -> list[Any]:
        return [
            AddAction(
                # The log's encoding is put on where the action is written.
                path=staged.path,
                size=staged.size,
                partition_values=dict(zip(self._options.partition_by, staged.values, strict=True)),
                modification_time=staged.modified_ms,
                data_change=True,
                stats=staged.statistics,
            )
            for staged in batch.files
        ]

    def _properties(self, batch: Batch) -> CommitProperties:
        if batch.number is None:
            return CommitProperties()
        transactions = []
        if batch.query_id is not None:
            transactions.append(Transaction(self._query_key(batch), batch.number))
        if self._options.name is not None:
            transactions.append(Transaction(self._options.name, batch.number))
        info = {
            "name": self._options.name,
            "query": batch.query_id,
            "batch": batch.number,
            "rows": batch.fingerprint.row_count,
            "fingerprint": batch.fingerprint.text(),
        }
        return CommitProperties(app_transactions=transactions, custom_metadata={_INFO: info})

    def _query_key(self, batch: Batch) -> str:
        return f"{self._options.name or ''}/{batch.query_id}"

    def _recorded(self, table: DeltaTable, number: int) -> str | None:
        """The fingerprint of the batch that was committed with a number, if the log has it yet."""
        for entry in table.history():
            info = entry.get(_INFO)
            if isinstance(info, str):
                info = json.loads(info)
            if info and (info["name"], info["batch"]) == (self._options.name, number):
                return str(info["fingerprint"])
        return None

    def _forget_staged(self, batch: Batch) -> None:
        """Rows of an upsert are in the table now, and staged in vain."""
        if self._options.mode != UPSERT:
            return
        home = staging_folder(self._options, batch.query_id)
        files = self.files
        for folder in files.folders(home.rstrip("/")):
            if batch.number is None or int(folder) <= batch.number:
                files.delete_folder(f"{home}{folder}")


def staging_folder(options: LakeOptions, query_id: str | None, number: int | None = None) -> str:
    """Where rows wait that are not to become files of the table as they are."""
    owner = quote(f"{options.name or ''}-{query_id or 'once'}", safe="")
    return f"{STAGING}/{owner}/" + ("" if number is None else f"{number}/")


def _paths(table: DeltaTable) -> set[str]:
    return set(pa.table(table.get_add_actions()).column("path").to_pylist())


def _kind(field: deltalake.Field) -> str:
    return str(json.loads(field.type.to_json()) if hasattr(field.type, "to_json") else field.type)
