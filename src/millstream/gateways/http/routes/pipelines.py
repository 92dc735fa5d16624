"""Data pipelines: how far they have come, as they told it last."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request

from millstream.gateways.http.bodies import LimitedRoute
from millstream.gateways.http.context import broker_of
from millstream.gateways.http.documentation import problems
from millstream.gateways.http.models import PipelineList, PipelineProgress

router = APIRouter(tags=["pipelines"], route_class=LimitedRoute)


@router.get("/pipelines", summary="List data pipelines", responses=problems(507))
async def list_pipelines(request: Request) -> PipelineList:
    found = await broker_of(request).pipelines.all()
    return PipelineList(pipelines=[PipelineProgress.model_validate(each) for each in found])


@router.get(
    "/pipelines/{name}", summary="How far a data pipeline has come", responses=problems(404, 507)
)
async def show_pipeline(request: Request, name: str) -> PipelineProgress:
    return PipelineProgress.model_validate(await broker_of(request).pipelines.get(name))
