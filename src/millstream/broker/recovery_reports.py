"""Tells the log what a start found in the data directory, and did about it.

After a clean stop there is nothing to tell. After a crash there is a line for each partition, or
one for all of them where they are many; torn ends, damage and what was set aside are always told
one by one.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from millstream.storage.recovery_report import RecoveryReport

_log = logging.getLogger(__name__)

_MANY = 20


def log_reports(reports: Sequence[RecoveryReport]) -> None:
    unclean = [report for report in reports if not report.clean]
    if len(unclean) > _MANY:
        _log.info(
            "%(unclean)d of %(logs)d logs were not stopped cleanly; scanned %(scanned_bytes)d "
            "bytes, kept %(batches)d batches",
            {
                "unclean": len(unclean),
                "logs": len(reports),
                "scanned_bytes": sum(report.scanned_bytes for report in unclean),
                "batches": sum(report.batches for report in unclean),
            },
        )
    for report in reports:
        _log_report(report, is_alone=len(unclean) <= _MANY)


def _log_report(report: RecoveryReport, *, is_alone: bool) -> None:
    name = {"log": report.log}
    if is_alone and not report.clean:
        _log.info(
            "%(log)s: not stopped cleanly; scanned %(scanned_bytes)d bytes, "
            "kept %(batches)d batches",
            {**name, "scanned_bytes": report.scanned_bytes, "batches": report.batches},
        )
    for what in report.torn:
        _log.info("%(log)s: cut a torn tail: %(torn)s", {**name, "torn": what})
    for cut in report.set_aside:
        if cut.is_torn:
            _log.warning("%(log)s: %(cut)s", {**name, "cut": str(cut)})
    for damage in report.unresolved:
        _log.error("%(log)s: DAMAGE: %(damage)s", {**name, "damage": damage})
    for repair in report.repaired:
        _log.error("%(log)s: REPAIRED: %(repair)s", {**name, "repair": repair})
    for note in report.notes:
        _log.info("%(log)s: %(note)s", {**name, "note": note})
    for path in report.rebuilt_indexes if is_alone else ():
        _log.info("%(log)s: rebuilt %(path)s", {**name, "path": path})
