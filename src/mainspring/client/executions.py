"""Client methods for executions: submit, inspect, follow, wait, cancel."""

from __future__ import annotations

import contextlib
import math
from collections.abc import AsyncGenerator, Iterable, Sequence
from time import monotonic
from typing import Any
from uuid import UUID

from mainspring import wire
from mainspring.client.paths import Ref, path_of
from mainspring.client.problems import Unreachable, WaitTimedOut
from mainspring.client.submission import IN_FLIGHT, Submission, send_in_tasks
from mainspring.client.transport import Connected, Params, Reconnect
from mainspring.domain.errors import NotFound, Unavailable
from mainspring.domain.execution import FINAL, State

LONG_POLL_S = 30.0


class ExecutionMethods(Connected):
    async def submit(self, items: Sequence[wire.BatchItem]) -> wire.BatchAnswer:
        """Submit up to 1,000 executions in one request; results are in the order of `items`."""
        body = wire.Batch(items=list(items))
        return await self._transport.request(
            wire.BatchAnswer,
            "POST",
            "/api/v1/executions:batch",
            body=body,
            creates=not all(item.key for item in body.items),
            repeatable=True,
        )

    async def submit_many(self, items: Iterable[wire.BatchItem], *, in_flight: int = IN_FLIGHT) -> list[UUID]:
        """Submit any number of executions in batches, `in_flight` at a time; return their ids in order.

        Raises `SubmitFailed` if some were not submitted. Items with a `key` can be submitted again safely.
        """
        submission = Submission(items)
        await send_in_tasks(submission, self.submit, in_flight)
        return submission.result()

    async def executions(
        self,
        *,
        job: str | None = None,
        state: Sequence[State] = (),
        limit: int | None = None,
        cursor: str | None = None,
        filter: str | None = None,
    ) -> wire.Page[wire.Execution]:
        params: Params = {"job": job, "state": list(state), "limit": limit, "cursor": cursor, "filter": filter}
        return await self._transport.request(wire.Page[wire.Execution], "GET", "/api/v1/executions", params=params)

    async def execution(self, ref: Ref, *, wait_s: float = 0.0) -> wire.Execution:
        """Return an execution: at once, or when it is final or `wait_s` have passed."""
        params: Params = {"wait": f"{wait_s:g}s" if wait_s else None}
        path = await self._execution(ref)
        return await self._transport.request(wire.Execution, "GET", path, params=params, wait_s=wait_s)

    async def last_execution(self) -> wire.Execution:
        """Return the execution that this token requested last; if there is none, the one that was due last."""
        return await self._transport.request(wire.Execution, "GET", "/api/v1/executions:last")

    async def cancel(self, ref: Ref, reason: str = "") -> wire.Execution:
        path = await self._execution(ref, "cancel")
        return await self._transport.request(wire.Execution, "POST", path, body=wire.Cancel(reason=reason))

    async def requeue(self, ref: Ref, *, params: dict[str, Any] | None = None, reason: str = "") -> wire.Execution:
        """Run an ended execution again; return the new execution. Repeated calls return the same one."""
        path, body = await self._execution(ref, "requeue"), wire.Requeue(reason=reason, params=params)
        return await self._transport.request(wire.Execution, "POST", path, body=body, creates=True)

    async def why(self, ref: Ref) -> wire.Why:
        """Explain why an execution does not run yet."""
        return await self._transport.request(wire.Why, "GET", await self._execution(ref, "why"))

    async def events(self, ref: Ref) -> wire.Page[wire.LifecycleEvent]:
        """List the lifecycle events of an execution in order."""
        path = await self._execution(ref, "events")
        return await self._transport.request(wire.Page[wire.LifecycleEvent], "GET", path)

    async def logs(self, ref: Ref, *, place: str = "") -> wire.Logs:
        """Return the next part of the log after `place`, or its beginning."""
        path = await self._execution(ref, "logs")
        return await self._transport.request(wire.Logs, "GET", path, params={"place": place})

    async def follow_logs(self, ref: Ref) -> AsyncGenerator[wire.LogChunk, None]:
        """Yield the log live until the execution is final. Reconnects when the server restarts."""
        async with contextlib.aclosing(self.follow(ref)) as items:
            async for item in items:
                if isinstance(item, wire.LogChunk):
                    yield item

    async def follow(self, ref: Ref) -> AsyncGenerator[wire.LogChunk | wire.Progress | wire.Retry, None]:
        """Yield log, progress and retries live until the execution is final. Reconnects when the server restarts."""
        path, place, reconnect = await self._execution(ref, "logs"), "", Reconnect(self._transport.sleep)
        while True:
            try:
                params: Params = {"follow": "true", "place": place}
                async with self._transport.events(path, params=params, after=place) as events:
                    reconnect.connected()
                    async for event in events:
                        if event.event == "end":
                            return
                        place = event.id or place
                        if event.event == "chunk":
                            yield self._transport.decode(wire.LogChunk, event.data)
                        elif event.event == "progress":
                            yield self._transport.decode(wire.Progress, event.data)
                        elif event.event == "retry":
                            yield self._transport.decode(wire.Retry, event.data)
                await reconnect.wait(Unreachable(self.server, "the log stream ended too early"))
            except Unavailable as error:
                await reconnect.wait(error)

    async def artifacts(self, ref: Ref) -> wire.Page[wire.Artifact]:
        """List the artifacts of an execution."""
        return await self._transport.request(wire.Page[wire.Artifact], "GET", await self._execution(ref, "artifacts"))

    async def artifact(self, ref: Ref, name: str) -> AsyncGenerator[bytes, None]:
        """Yield the content of an artifact in chunks."""
        path = await self._execution(ref, "artifacts/content")
        async with self._transport.stream(path, params={"name": name}) as chunks:
            async for chunk in chunks:
                yield chunk

    async def wait(self, ref: Ref, *, timeout_s: float = math.inf, appears_s: float = 0.0) -> wire.Execution:
        """Return the execution once it is final; raise `WaitTimedOut` after `timeout_s`.

        For `appears_s` it need not exist yet: a transactional submission becomes an execution after its commit.
        """
        until = monotonic() + timeout_s
        execution = await self._appearing(ref, monotonic() + min(appears_s, timeout_s))
        reconnect = Reconnect(self._transport.sleep)
        reconnect.connected()
        while execution.state not in FINAL:
            left = until - monotonic()
            if left <= 0:
                raise WaitTimedOut(execution)
            try:
                execution = await self._poll(execution.execution_id, min(left, LONG_POLL_S))
                reconnect.connected()
            except Unavailable as error:
                await reconnect.wait(error)
        return execution

    async def feed(self) -> AsyncGenerator[wire.Execution, None]:
        """Yield each execution as it starts and ends, from now on. Once connected, it reconnects indefinitely."""
        reconnect, last = Reconnect(self._transport.sleep, give_up_s=math.inf), ""
        while True:
            try:
                async with self._transport.events("/api/v1/stream", after=last) as events:
                    reconnect.connected()
                    async for event in events:
                        last = event.id or last
                        if event.event == "execution":
                            yield self._transport.decode(wire.Execution, event.data)
                await reconnect.wait(Unreachable(self.server, "the stream ended"))
            except Unavailable as error:
                await reconnect.wait(error)

    async def _appearing(self, ref: Ref, until: float) -> wire.Execution:
        """Return the execution, which may not exist before `until`."""
        wait_s = 0.05
        while True:
            try:
                return await self.execution(ref)
            except NotFound as error:
                if monotonic() >= until:
                    if wait_s == 0.05:
                        raise
                    raise NotFound(f"{error.message}; was the transaction that submitted it committed?") from None
            await self._transport.sleep(wait_s)
            wait_s = min(1.0, wait_s * 1.5)

    async def _poll(self, execution_id: UUID, wait_s: float) -> wire.Execution:
        """Long-poll once. Sleep even if the server responds at once, as it does while shutting down."""
        earliest = monotonic() + min(wait_s, 0.2)
        execution = await self.execution(execution_id, wait_s=wait_s)
        if execution.state not in FINAL:
            await self._transport.sleep(earliest - monotonic())
        return execution

    async def _execution(self, ref: Ref, action: str = "") -> str:
        if ref == "@last":
            ref = (await self.last_execution()).execution_id
        return path_of("executions", ref, action)
