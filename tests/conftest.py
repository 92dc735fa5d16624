"""What holds for every test."""

from __future__ import annotations

import pytest
from hypothesis import settings
from xdist.remote import Producer

from tests.fakes.lanes import Lanes

# The same examples in every run, except in `make torture`. A slow machine is no failure.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("random", deadline=None)
settings.load_profile("same")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Lanes:
    return Lanes(config, log)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test of its directory uses."""
    kept = "".join(c if c.isalnum() else "-" for c in request.node.name)
    return kept.removeprefix("test-")[:200].strip("-")
