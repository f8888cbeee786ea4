"""The metrics of this process as its caller may see them."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from starlette.responses import Response

from mainspring.store import channels
from mainspring.store.db import Connection


async def channels_of(connection: Connection, *, tenant: int | None) -> frozenset[str] | None:
    """Return the channels whose names may be shown; None: all."""
    if tenant is None:
        return None
    return frozenset(channel.name for channel in await channels.list_channels(connection, tenant=tenant))


def exposition(shown_channels: Collection[str] | None) -> Response:
    """Return the metrics in Prometheus format, of channels only the given ones; None: all."""
    registry = REGISTRY
    if shown_channels is not None:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Filtered(shown_channels))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


class _Filtered:
    """The metrics of the process without the channels of other tenants."""

    def __init__(self, shown_channels: Collection[str]) -> None:
        self._shown = {None, *shown_channels}

    def collect(self) -> Iterator[Metric]:
        for metric in REGISTRY.collect():
            metric.samples = [s for s in metric.samples if s.labels.get("channel") in self._shown]
            yield metric
