"""Upkeep of a table: small files made into large ones, and files that nobody needs deleted.

It runs after a batch was committed and changes no row. If it fails, the batch is as it was, and
the next upkeep does what this one did not.
"""

from __future__ import annotations

import logging

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from millstream.spark.lake.options import LakeOptions

_log = logging.getLogger(__name__)


def is_due(options: LakeOptions, number: int) -> bool:
    """Whether a batch is one that upkeep follows."""
    return options.optimize_every > 0 and (number + 1) % options.optimize_every == 0


def keep_up(table: DeltaTable, options: LakeOptions) -> None:
    try:
        compact(table, options)
        if options.vacuum_after_hours:
            vacuum(table, options.vacuum_after_hours)
    except (DeltaError, OSError) as error:
        _log.warning(
            "upkeep of table %s failed and is tried again after %d batches: %s",
            options.path,
            options.optimize_every,
            error,
        )


def compact(table: DeltaTable, options: LakeOptions) -> None:
    """Rewrite files that are smaller than the target. Readers see the same rows throughout."""
    table.optimize.compact(target_size=options.target_file_bytes)


def vacuum(table: DeltaTable, after_hours: int) -> None:
    """Delete files that no version needs any more, and what crashed tasks left."""
    table.vacuum(
        retention_hours=after_hours,
        dry_run=False,
        enforce_retention_duration=False,
        full=True,
    )
