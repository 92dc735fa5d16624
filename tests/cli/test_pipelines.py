"""What of `millstream pipeline` needs no Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import Command

pytestmark = pytest.mark.system


def test_file_to_begin_with_is_a_pipeline_whatever_it_is_called(
    cli: Command, topic: str, tmp_path: Path
) -> None:
    file = tmp_path / f"{topic} über alles.yaml"
    assert "is written" in cli.output("pipeline", "init", str(file), "--topic", topic)
    assert "exists already" in cli.failure(1, "pipeline", "init", str(file))
    cli.output("pipeline", "reset", str(file), "--yes")
    [told] = cli.objects("pipeline", "status", str(file), "--json")
    assert (told["pipeline"], told["state"]) == (f"{topic}-ber-alles", "reset")
    assert "None" not in cli.output("pipeline", "status", str(file))


def test_what_no_pipeline_has_told_is_left_out(cli: Command, topic: str, tmp_path: Path) -> None:
    file = tmp_path / f"{topic}.yaml"
    cli.output("pipeline", "init", str(file))
    cli.output("pipeline", "reset", str(file), "--yes")
    for value in (b"garbage", b"[1]", b"{}", b'{"at": "noon", "generation": 1}', b"\xff"):
        for key in ("\xff", f"{topic}.other"):
            cli.output("produce", "__millstream_pipelines", "--key", key, stdin=value)
    listed = [each["pipeline"] for each in cli.objects("pipeline", "list")]
    assert topic in listed
    assert f"{topic}.other" not in listed
    assert "begins anew" in cli.output("pipeline", "reset", str(file), "--yes")
