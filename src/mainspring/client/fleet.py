"""Client methods for queues, workers, shards and reserved capacity."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.client.paths import path_of
from mainspring.client.transport import Connected, Params
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

    async def costs(self, *, days: float | None = None, jobs: int | None = None) -> wire.Costs:
        """Return executions, hours and costs of the last days (30), and the `jobs` most expensive jobs (50)."""
        params: Params = {"days": None if days is None else str(days), "jobs": jobs}
        return await self._transport.request(wire.Costs, "GET", "/api/v1/costs", params=params)

    async def forecast(
        self, *, days: int | None = None, workers: int | None = None, slots: int | None = None
    ) -> wire.Forecast:
        """Return the load expected from schedules in the coming days (7); with `workers`, how long queues wait."""
        params: Params = {"days": days, "workers": workers, "slots": slots}
        return await self._transport.request(wire.Forecast, "GET", "/api/v1/forecast", params=params)

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

    async def duration_requests(
        self, *, state: str | None = None, limit: int | None = None, cursor: str | None = None
    ) -> wire.Page[wire.DurationRequest]:
        """Return requests for timeouts above the maximum of a queue, newest first."""
        params: Params = {"state": state, "limit": limit, "cursor": cursor}
        return await self._transport.request(
            wire.Page[wire.DurationRequest], "GET", "/api/v1/duration-requests", params=params
        )

    async def request_duration(self, new: wire.NewDurationRequest) -> wire.DurationRequest:
        """Request that a job may have a timeout above the maximum of a queue."""
        return await self._transport.request(
            wire.DurationRequest, "POST", "/api/v1/duration-requests", body=new, creates=True
        )

    async def decide_duration(self, request_id: UUID | str, *, approved: bool, note: str = "") -> wire.DurationRequest:
        """Approve or refuse a request, or revoke an approved one."""
        path, body = path_of("duration-requests", request_id, "decide"), wire.DurationDecision(approved, note)
        return await self._transport.request(wire.DurationRequest, "POST", path, body=body)

    async def withdraw_duration(self, request_id: UUID | str) -> wire.DurationRequest:
        """Withdraw a request of your own."""
        path = path_of("duration-requests", request_id, "withdraw")
        return await self._transport.request(wire.DurationRequest, "POST", path)

    async def reservations(self) -> wire.Page[wire.Reservation]:
        return await self._transport.request(wire.Page[wire.Reservation], "GET", "/api/v1/reservations")

    async def add_reservation(self, reservation: wire.NewReservation) -> wire.Reservation:
        """Reserve capacity on workers; `warnings` lists what may prevent it."""
        return await self._transport.request(
            wire.Reservation, "POST", "/api/v1/reservations", body=reservation, creates=True
        )

    async def delete_reservation(self, name: str) -> None:
        await self._transport.send("DELETE", path_of("reservations", name))
