"""Reservations over HTTP: created and ended by administrators, visible to the tenant."""

from __future__ import annotations

from datetime import timedelta

import pytest

from mainspring import wire
from mainspring.api.auth import issue_token
from mainspring.cli.serve import DEFAULT_TENANT
from mainspring.client import AsyncClient
from mainspring.clock import instant
from mainspring.domain.errors import Forbidden, NotFound
from mainspring.store.db import database_now_ms
from tests.conftest import Cluster
from tests.support.remote_worker import remote

pytestmark = pytest.mark.anyio


async def test_a_reservation_is_made_listed_and_ended(cluster: Cluster) -> None:
    async with cluster.database.connection() as connection:
        plain = await issue_token(connection, tenant=DEFAULT_TENANT, name="plain", scopes=("read", "write"))
        soon = instant(int(await database_now_ms(connection))) + timedelta(hours=1)
    new = wire.NewReservation(
        name="night",
        start_at=soon,
        end_at=soon + timedelta(hours=1),
        slots=2,
        resources={"memory": "1Gi"},
        queue="night",
    )
    async with (
        cluster.client() as admin,
        AsyncClient(cluster.url, plain) as writer,
        remote(cluster, name="owl", queue="night", slots=4, resources={"memory": 4 * 2**30}),
    ):
        with pytest.raises(Forbidden):
            await writer.add_reservation(new)
        added = await admin.add_reservation(new)
        assert (added.places, added.resources, added.warnings) == ({"owl": 2}, {"memory": 2**30}, [])
        assert [r.name for r in (await writer.reservations()).items] == ["night"]
        with pytest.raises(Forbidden):
            await writer.delete_reservation("night")
        await admin.delete_reservation("night")
        with pytest.raises(NotFound):
            await admin.delete_reservation("night")
        assert (await admin.reservations()).items == []
