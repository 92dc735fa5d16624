"""What the guide of the Python clients shows works as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.python_client.conftest import StartBroker

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "python_client.md"
ADDRESS = "http://127.0.0.1:8000"

PRINTED = [
    "0 0\n0 b'ada' two apples b'web'\n",
    "1000\nevent 998\nevent 999\n",
    "2 EUR\n",
    "resize 1 1\nresize 2 1\nclean up 1\n0\n",
    "3 True\nthere is no topic 'clicks'\n",
    "['ledger']\n2 [('payments', 0, 1)]\n1\n",
]


def test_python_in_the_guide_runs(
    start_broker: StartBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker = start_broker()
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == len(PRINTED)
    for block, printed in zip(blocks, PRINTED, strict=True):
        assert ADDRESS in block
        exec(compile(block.replace(ADDRESS, broker.url), str(GUIDE), "exec"), {})
        assert capsys.readouterr().out == printed
