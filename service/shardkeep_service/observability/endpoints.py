"""The route of the metrics."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from shardkeep.protocol import routes
from shardkeep_service.access.metrics_access import may_read_metrics
from shardkeep_service.observability.metrics import CONTENT_TYPE
from shardkeep_service.service_context import ServiceContext, get_context

router = APIRouter()


@router.get(routes.METRICS, dependencies=[Depends(may_read_metrics)], response_class=Response)
def metrics(context: Annotated[ServiceContext, Depends(get_context)]) -> Response:
    """The metrics of this process, in Prometheus' text format."""
    return Response(context.metrics.text(), media_type=CONTENT_TYPE)
