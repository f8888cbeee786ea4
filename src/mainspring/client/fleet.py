"""Client methods for queues, workers, shards and reserved capacity."""

from __future__ import annotations

from typing import Any

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected
from mainspring.domain.placement.isolation import MinIsolation


class FleetMethods(Connected):
    async def queues(self) -> wire.Queues:
        """Return every queue with its backlog and running executions, and the limits in use."""
        return await self._transport.request(wire.Queues, "GET", "/api/v1/queues")

    async def set_queue(self, name: str, changes: dict[str, Any]) -> wire.Queue:
        """Change the settings in `changes`; null resets a setting to its default."""
        return await self._transport.request(wire.Queue, "PATCH", path_of("queues", name), body=changes)

    async def set_min_isolation(self, minimum: MinIsolation) -> wire.Queues:
        """Set the least isolation of programs and functions in all queues."""
        return await self._transport.request(
            wire.Queues, "PATCH", "/api/v1/queues", body=wire.AllQueues(min_isolation=minimum)
        )

    async def scaling(self, *, target: float | None = None) -> wire.Scaling:
        """Return the load of each queue, and how many slots it needs at `target` utilization."""
        return await self._transport.request(
            wire.Scaling, "GET", "/api/v1/scaling", params={"target": None if target is None else str(target)}
        )

    async def workers(self) -> wire.Page[wire.Worker]:
        return await self._transport.request(wire.Page[wire.Worker], "GET", "/api/v1/workers")

    async def drain_worker(self, name: str, reason: str = "") -> wire.Worker:
        """Let a worker finish what it runs and claim nothing more, until it is resumed or restarted."""
        path, body = path_of("workers", name, "drain"), wire.DrainWorker(reason=reason)
        return await self._transport.request(wire.Worker, "POST", path, body=body)

    async def resume_worker(self, name: str, reason: str = "") -> wire.Worker:
        path, body = path_of("workers", name, "resume"), wire.DrainWorker(reason=reason)
        return await self._transport.request(wire.Worker, "POST", path, body=body)

    async def issue_worker_token(self, new: wire.NewWorkerToken) -> wire.WorkerToken:
        """Issue a token for workers, bound to queues, labels and task kinds."""
        return await self._transport.request(wire.WorkerToken, "POST", "/api/v1/worker-tokens", body=new, creates=True)

    async def shards(self) -> wire.Shards:
        """Return the scheduler processes and the owner of each shard."""
        return await self._transport.request(wire.Shards, "GET", "/api/v1/system/shards")

    async def reservations(self) -> wire.Page[wire.Reservation]:
        return await self._transport.request(wire.Page[wire.Reservation], "GET", "/api/v1/reservations")

    async def add_reservation(self, reservation: wire.NewReservation) -> wire.Reservation:
        """Reserve capacity on workers; `warnings` lists what may prevent it."""
        return await self._transport.request(
            wire.Reservation, "POST", "/api/v1/reservations", body=reservation, creates=True
        )

    async def delete_reservation(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("reservations", name))
