"""The OpenAPI document: it tells of all there is, and requests made up from it find no defect.

What is made up is mostly nonsense within what the document allows, and some beyond. Every answer
must be one that the document tells of, and never 500.
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.clients.broker_process import BrokerProcess
from tests.fakes.patience import HANG_S

pytestmark = pytest.mark.system

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]
EXAMPLES = 10
# One test would take long: each takes its part of the operations.
SHARES = 4
ENDLESS = "/topics/{topic}/stream"


def document(web: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = web.get("/openapi.json").json()
    return found


def operations(web: httpx.Client) -> list[tuple[str, str, dict[str, Any]]]:
    paths = document(web)["paths"]
    return [(path, verb, told) for path, verbs in paths.items() for verb, told in verbs.items()]


def test_every_route_is_told_with_its_answers(web: httpx.Client) -> None:
    told = operations(web)
    assert {(verb, path) for path, verb, _ in told} >= {
        ("post", "/topics/{topic}/messages"),
        ("get", "/topics/{topic}/messages"),
        ("get", "/topics/{topic}/messages/{message_id}"),
        ("post", "/topics/{topic}/messages/{message_id}/ack"),
        ("get", "/topics"),
        ("post", "/topics"),
        ("put", "/topics/{topic}"),
        ("get", "/topics/{topic}"),
        ("post", "/topics/{topic}"),
        ("patch", "/topics/{topic}"),
        ("delete", "/topics/{topic}"),
        ("get", "/topics/{topic}/offsets"),
        ("get", "/groups"),
        ("get", "/groups/{group}"),
        ("post", "/groups/{group}/offsets"),
        ("post", "/groups/{group}/reset"),
        ("delete", "/groups/{group}"),
        ("put", "/topics/{topic}/subscriptions/{subscription}"),
        ("post", "/topics/{topic}/subscriptions/{subscription}/receive"),
        ("post", "/topics/{topic}/subscriptions/{subscription}/dlq/replay"),
        ("get", "/health"),
        ("get", "/health/live"),
        ("get", "/health/ready"),
    }
    for path, verb, each in told:
        where = f"{verb} {path}"
        assert each["summary"], where
        assert {"200", "201"} & each["responses"].keys(), where
        named = {each["name"] for each in each.get("parameters", ()) if each["in"] == "path"}
        assert named == {part[1:-1] for part in path.split("/") if part.startswith("{")}, where


def test_every_refusal_is_told_as_a_problem(web: httpx.Client) -> None:
    for path, verb, each in operations(web):
        for status, answer in each["responses"].items():
            if int(status) >= 400 and path != "/health/ready":
                content = answer["content"]["application/problem+json"]
                assert content["schema"]["$ref"].endswith("/Problem"), f"{verb} {path} {status}"


def test_everything_is_told_to_be_refused_to_strangers(web: httpx.Client) -> None:
    for path, verb, each in operations(web):
        assert "403" in each["responses"], f"{verb} {path}"


def test_both_routes_to_send_tell_all_kinds_of_bodies(web: httpx.Client) -> None:
    paths = document(web)["paths"]
    for path in ("/topics/{topic}", "/topics/{topic}/messages"):
        assert paths[path]["post"]["requestBody"]["content"].keys() == {
            "application/json",
            "application/x-ndjson",
            "application/octet-stream",
            "text/plain",
        }


def test_every_reference_leads_somewhere(web: httpx.Client) -> None:
    found = document(web)

    def references(part: Any) -> Any:
        if isinstance(part, dict):
            if isinstance(part.get("$ref"), str):
                yield part["$ref"]
            for each in part.values():
                yield from references(each)
        elif isinstance(part, list):
            for each in part:
                yield from references(each)

    for reference in set(references(found)):
        place: Any = found
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_people_can_read_it(web: httpx.Client) -> None:
    assert web.get("/docs").status_code == 200


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("share", range(SHARES))
def test_made_up_requests_find_no_defect(tmp_path: Path, share: int) -> None:
    config = "[http]\nhttp.long.poll.max.ms = 5\n"
    with BrokerProcess(tmp_path, settings=config, http="127.0.0.1:0") as broker:
        with httpx.Client(base_url=broker.url, timeout=HANG_S) as web:
            some = [{"value": str(n), "key": str(n)} for n in range(20)]
            web.post("/topics/0/messages", json=some).raise_for_status()
            web.put("/topics/0/subscriptions/0", json={}).raise_for_status()
        schema = schemathesis.openapi.from_url(f"{broker.url}/openapi.json")
        tried = 0
        operations = schema.exclude(path=ENDLESS).get_all_operations()
        for result in islice(operations, share, None, SHARES):
            assert isinstance(result, Ok)
            operation = result.ok()
            for mode in GenerationMode:
                # Any text will do in a path: who takes nothing else cannot be asked wrongly.
                if mode is GenerationMode.POSITIVE or operation.query or operation.body:
                    _try(operation, mode)
                    tried += 1
        assert tried > 50 / SHARES
        broker.stop()
        assert broker.complaints() == []


def _try(operation: Any, mode: GenerationMode) -> None:
    @seed(20_240_601)
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: Any) -> None:
        case.call_and_validate(checks=CHECKS, timeout=HANG_S)

    attempt()
