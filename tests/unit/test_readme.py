"""What the README shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream.settings.loader import load
from tests.clients.broker_process import BrokerProcess

README = Path(__file__).parents[2] / "README.md"
ADDRESS = "127.0.0.1:9092"
URL = "http://127.0.0.1:8000"


def blocks_of(language: str) -> list[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", README.read_text(), re.DOTALL)
    assert blocks
    return blocks


def test_python_in_the_readme_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broker = BrokerProcess(tmp_path, http="127.0.0.1:0")
    broker.start()
    for block in blocks_of("python"):
        assert ADDRESS in block or URL in block
        code = block.replace(ADDRESS, broker.address).replace(URL, broker.url)
        exec(compile(code, str(README), "exec"), {})
    broker.stop()
    assert capsys.readouterr().out == "hello from Python\n0 b'en' b'hello'\n"


def test_settings_in_the_readme_are_accepted(tmp_path: Path) -> None:
    for number, block in enumerate(blocks_of("toml")):
        config = tmp_path / f"{number}.toml"
        config.write_text(block)
        assert load(str(config)).storage.data_dir == "/var/lib/millstream"
