"""Our own clients, with time limits that only a broker that hangs reaches."""

from __future__ import annotations

from typing import Unpack

from millstream import client
from millstream.client import Connection
from millstream.client.asynchronous import Connecting
from millstream.client.options import Options
from tests.fakes.patience import HANG_S


def connect(url: str, **options: Unpack[Options]) -> Connection:
    return client.connect(url, **_patient(options))


def connect_async(url: str, **options: Unpack[Options]) -> Connecting:
    return client.connect_async(url, **_patient(options))


def _patient(options: Options) -> Options:
    options.setdefault("timeout_s", HANG_S)
    options.setdefault("connect_timeout_s", HANG_S)
    return options
