"""What the page asks for once: the broker's facts, its settings, and what a topic can set."""

from __future__ import annotations

import os
from typing import Any

import orjson
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from millstream import __version__
from millstream.gateways.http.context import broker_of
from millstream.gateways.http.parameters import StrictRoute
from millstream.settings.declaration import Setting, declarations
from millstream.settings.loader import SECTIONS, Settings
from millstream.settings.overrides import TOPIC_SETTINGS, setting_texts, text_of

router = APIRouter(prefix="/api", include_in_schema=False, route_class=StrictRoute)


@router.get("/facts")
async def facts(request: Request) -> Response:
    broker = broker_of(request)
    settings = broker.settings
    return _answer(
        {
            "version": __version__,
            "cluster_id": broker.topics.cluster_id,
            "data_dir": broker.topics.data_path,
            "process_id": os.getpid(),
            "partitions": settings.topics.num_partitions,
            "can_delete_topics": settings.topics.delete_enable,
            "doors": {
                "kafka": settings.kafka.listener,
                "http": settings.http.listener,
                "pylogstreams": settings.pylogstreams.listener,
            },
        }
    )


@router.get("/settings")
async def settings(request: Request) -> Response:
    """All settings, by section, each with where its value comes from."""
    known = broker_of(request).settings
    sections = [{"section": each, "settings": _section(known, each)} for each in SECTIONS]
    return _answer({"sections": sections})


@router.get("/topic-settings")
async def topic_settings(request: Request) -> Response:
    """What a topic can set for itself, with the broker's values."""
    texts = setting_texts(broker_of(request).topics.defaults)
    told = [
        {
            "name": name,
            "value": texts[name],
            "expected": declared.domain.expected,
            "doc": declared.doc,
        }
        for name, declared in TOPIC_SETTINGS.items()
    ]
    return _answer({"settings": told})


def _section(known: Settings, section: str) -> list[dict[str, Any]]:
    component = getattr(known, section)
    return [
        _setting(
            declared, getattr(component, field), known.origins.get(f"{section}.{declared.name}")
        )
        for field, declared in declarations(component).items()
    ]


def _setting(declared: Setting, value: object, origin: str | None) -> dict[str, Any]:
    return {
        "name": declared.name,
        "value": text_of(value),
        "default": text_of(declared.default),
        "origin": origin or "default",
        "expected": declared.domain.expected,
        "doc": declared.doc,
    }


def _answer(told: dict[str, Any]) -> Response:
    headers = {"Cache-Control": "no-store"}
    return Response(orjson.dumps(told), media_type="application/json", headers=headers)
