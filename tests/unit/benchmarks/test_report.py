"""A peer that is absent is named in both reports, with the reason."""

from __future__ import annotations

import json

import pytest

from benchmarks.report import as_json, print_table
from benchmarks.row import Row

ROW = Row(measure="produce", figure=5, compared_with="Other", absent="not installed")


def test_absent_peer_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    print_table({"peers": [ROW]}, {})
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "Other is absent: not installed" in shown
    (measure,) = json.loads(as_json({"peers": [ROW]}, {}))["measures"]
    assert measure["comparison"] is None
    assert measure["absent"] == "not installed"
