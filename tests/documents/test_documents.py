"""What the README and the guides show works as it stands there."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.clients.broker_process import BrokerProcess
from tests.documents.page_run import PageRun, programs_of
from tests.fakes.documents import CODE, PAGES, ROOT, SHOWN, SPARK_PAGES, Block, blocks_of
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

NOT_RUN = [
    "operating: it installs the system's user and files as root",
    "operating: it needs systemd",
]
"""Blocks that cannot be run, as "page: reason": as few as can be."""

PRINTED = {
    "README": r"b'two apples'\nhello from Python\nresize 1 1\nnews hello from Python\n",
    "logs_and_traces": "two apples\n",
    "pylogstreams": "news Breaking: it is live!\n",
    "python_client": re.escape(
        "0 0\n0 b'ada' two apples b'web'\n1000\nevent 998\nevent 999\n2 EUR\n"
    )
    # From several partitions, in any order.
    + r"(?:[abcd]\n){4}"
    + re.escape(
        "resize 1 1\nresize 2 1\nclean up 1\n0\n"
        "3 True\nthere is no topic 'visits'\n"
        "['counters', 'ledger']\n2 [('payments', 0, 1)]\n1\n"
    ),
    "durability": r"b'12 EUR'\n",
    "fastqueue2": "3\n",
    "streaming": r'\{"id":1,.*\}\n(0:\d+ .*\n)*0:\d+ one coffee\n',
    "testing": r"\[Message\(value=b'two apples', key=b'ada', .*\n",
}
"""What blocks of Python print, as a regular expression for all of a page."""

SAID = {
    "exactly_once": r"^HELLO\nWORLD\n\Z",
    "monitoring": r"(?s)# HELP millstream_info .*^millstream_info,",
}
"""What is found in the output of blocks of shell."""

OLD = {
    "fastqueue2": ("fruit", ["two apples", "three pears", "a plum"]),
    "mini_pulsar": ("my-old-topic", ["Hello", "again"]),
    "pylogstreams": ("old-news", ["It is not live yet.", "Soon."]),
}
"""What the server has that a page moves over from, and Millstream in the end."""

MY_SHOP = """
from confluent_kafka import Producer


def place_order(servers, topic, order):
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, order)
    producer.flush()
"""
"""The application that pages test."""

TESTS = {"README": 1, "testing": 9}
"""How many tests a page writes for pytest."""


def _stem(page: str) -> str:
    return Path(page).stem


def _marked(page: str) -> object:
    """The page as a parameter, with the programs that it needs."""
    run = [block for block in blocks_of(page) if block.not_run is None]
    return pytest.param(page, id=_stem(page), marks=pytest.mark.needs(*programs_of(run)))


def _new_broker(home: Path) -> BrokerProcess:
    return BrokerProcess(home, http="127.0.0.1:0", pylogstreams="127.0.0.1:0")


def _send(broker: BrokerProcess, topic: str, values: list[str]) -> None:
    url = f"{broker.url}/topics/{topic}/messages"
    messages = [{"message": value} for value in values]
    httpx.post(url, json=messages, timeout=HANG_S).raise_for_status()


def _values(broker: BrokerProcess, topic: str) -> list[str]:
    url = f"{broker.url}/topics/{topic}/messages"
    answer = httpx.get(url, params={"offset": 0}, timeout=HANG_S)
    return [message["value"] for message in answer.json()["messages"]]


def test_every_block_is_code_that_is_run_or_output_that_is_shown() -> None:
    blocks = [block for page in PAGES for block in blocks_of(page)]
    assert [f"{b.place}: {b.language}" for b in blocks if b.language not in CODE | SHOWN] == []


def test_what_is_not_run_is_known() -> None:
    marked = [block for page in PAGES for block in blocks_of(page) if block.not_run]
    assert [f"{_stem(block.page)}: {block.not_run}" for block in marked] == NOT_RUN
    marks = sum((ROOT / page).read_text().count("\n<!-- not run") for page in PAGES)
    assert marks == len(marked), "a mark stands on the line above its block"


@pytest.mark.parametrize("page", [_marked(page) for page in PAGES if page not in SPARK_PAGES])
def test_page_can_be_followed(
    page: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = [block for block in blocks_of(page) if block.language in CODE]
    home = tmp_path / "home"
    home.mkdir()
    (home / "my_shop.py").write_text(MY_SHOP)
    monkeypatch.chdir(home)
    with ExitStack() as stack:
        broker = stack.enter_context(_new_broker(tmp_path / "broker"))
        old = stack.enter_context(_new_broker(tmp_path / "old")) if _stem(page) in OLD else None
        if old is not None:
            _send(old, *OLD[_stem(page)])
        run = PageRun(home, broker, old)
        for block in blocks:
            if block.not_run is None and not block.needs_spark:
                run.run(block)
        run.forget()
        if _stem(page) in OLD:
            assert _values(broker, OLD[_stem(page)][0]) == OLD[_stem(page)][1]
        broker.stop()
        assert broker.complaints() == []
    printed = capsys.readouterr().out
    assert re.fullmatch(PRINTED.get(_stem(page), ""), printed), printed
    assert re.search(SAID.get(_stem(page), ""), run.said, re.MULTILINE), run.said
    assert bool(list(home.glob("test_*.py"))) == (_stem(page) in TESTS)
    if tests := TESTS.get(_stem(page)):
        assert run.run_tests().startswith(f"{tests} passed")
    if page.endswith("command_line.md"):
        # 10,004 messages, of which the group had read 100.
        read = [len((home / name).read_text().splitlines()) for name in ("first.txt", "rest.txt")]
        assert read == [100, 10_004 - 100]


PAGE = """# A page
<!-- not run: it takes a year -->
```sh
sleep 31536000
```
Text
```python
# answer.py
answer = 42
```
"""


def test_blocks_of_a_page_are_found_with_their_marks_and_files(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    slow, answer = blocks_of(str(page))
    assert (slow.line, slow.language, slow.not_run) == (3, "sh", "it takes a year")
    assert (answer.text, answer.not_run, answer.file) == (
        "# answer.py\nanswer = 42\n",
        None,
        "answer.py",
    )


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("sh", "true | false\n"),
        ("sh", "millstream serve --no-such-option\n"),
        ("sh", "pip install 'millstream[no-such-extra]'\n"),
        ("sh", "make no-such-target\n"),
        ("toml", "[log]\nno.such.setting = 1\n"),
        ("json", "{"),
        ("python", "1 / 0\n"),
    ],
)
def test_block_that_does_not_work_is_told_with_its_place(
    tmp_path: Path, language: str, text: str
) -> None:
    run = PageRun(tmp_path, _new_broker(tmp_path / "broker"))
    with pytest.raises(Exception, match=r"in the block at docs/page\.md:7"):
        run.run(Block("docs/page.md", 7, language, text))
