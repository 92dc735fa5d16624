"""What holds for every test."""

from __future__ import annotations

import gc
import logging
import signal

import pytest
from xdist.remote import Producer

from tests.fakes.lanes import Lanes

pytest_plugins = ["tests.fakes.examples", "tests.fakes.programs"]


def pytest_configure() -> None:
    """Let programs that tests start be interrupted.

    A shell starts background jobs with SIGINT ignored, and every process below inherits that.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    return Lanes(config, log)


def pytest_collection_finish() -> None:
    """Exempt collected tests from garbage collection: they live as long as the process."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def log_level() -> None:
    """Undo what a broker in this process made of the log's level."""
    logging.getLogger().setLevel(logging.WARNING)
    logging.getLogger("millstream").setLevel(logging.NOTSET)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test of its directory uses."""
    kept = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return kept.removeprefix("test-")[:200].strip("-")
