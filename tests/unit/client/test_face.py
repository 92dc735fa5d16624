"""What `millstream.client` offers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from millstream import client


@pytest.mark.parametrize("name", client.__all__)
def test_every_name_can_be_had_and_keeps_its_own(name: str) -> None:
    assert getattr(client, name).__name__ == name
    assert name in dir(client)


def test_unknown_name_is_an_error_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Producer'"):
        client.Producer  # noqa: B018 - asking for it is the test


def test_kafka_client_imports_no_other_client() -> None:
    script = (
        "import sys, millstream.client.kafka; sys.exit('websockets' in sys.modules"
        " or 'httpx' in sys.modules or 'asyncio' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
