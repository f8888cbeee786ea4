"""Executes pods: one for each attempt, in the namespace that the worker's operator chose."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import structlog

from mainspring.domain.errors import Invalid, MainspringError
from mainspring.domain.execution import Outcome
from mainspring.service import Loops
from mainspring.worker.executors.contract import Host
from mainspring.worker.executors.pods import status
from mainspring.worker.executors.pods.attempt import Plan, plan
from mainspring.worker.executors.pods.cluster import Cluster, ClusterRefused, ClusterUnavailable, Object
from mainspring.worker.executors.pods.log_reader import follow_log
from mainspring.worker.executors.pods.manifest import CONTAINER, EXECUTION, OWNER, SESSION, owned_by
from mainspring.worker.executors.pods.ownership import LEASE_S, Ownership
from mainspring.worker.executors.pods.patience import LEAVE_S, Patience
from mainspring.worker.executors.pods.settings import SCHEMA, AllowList
from mainspring.worker.executors.pods.watch import Followed, PodWatch
from mainspring.worker.executors.work import Done, Work

log = structlog.get_logger()

CLOSE_S = 5.0
"""How long to read the log after the pod has ended."""
CREATE_S = 60.0
"""How long the cluster may be unavailable when a pod has to be created."""
RETRY_S = 0.5
REMOVE_RETRY_S = 5.0
REMOVALS = 60
"""How often a pod's removal is tried; an orphan is removed by the next worker."""
UNFIT = (400, 413, 422)
"""The cluster refuses the pod as such: a retry would end the same way."""


class PodExecutor:
    """The `pod` kind. A worker offers it if it was started with a namespace."""

    schema = SCHEMA

    def __init__(self, *, lease_s: int = LEASE_S) -> None:
        self._lease_s = lease_s
        self._cluster: Cluster | None = None
        self._ownership: Ownership | None = None
        self._watch: PodWatch | None = None
        self._allowed = AllowList()
        self._worker = ""
        self._to_remove: dict[str, int] = {}  # pods that could not be removed when their attempt ended: tries left
        self._loops = Loops("pod removal")

    async def start(self, host: Host) -> None:
        if host.cluster is None:
            return
        self._allowed = AllowList(host.cluster.allow)
        self._worker = host.name
        cluster = self._cluster = Cluster(host.cluster)
        ownership = Ownership(cluster, host.name, lease_s=self._lease_s)
        try:
            await cluster.labelled("pods", f"{OWNER}={ownership.owner}")
            await ownership.start()
        except (ClusterUnavailable, ClusterRefused) as error:
            await self._disconnect()
            hint = "check the cluster, the context and the rights of the worker, or leave the option out"
            raise Invalid(f"--kube-namespace {cluster.namespace}: {error}; {hint}") from None
        self._ownership = ownership
        self._watch = PodWatch(cluster, ownership.owner)
        self._watch.start()
        self._loops.forever("retry", self._retry_later)

    async def stop(self) -> None:
        await self._loops.stop()
        await self._retry_removals()
        if self._watch is not None:
            await self._watch.stop()
        if self._ownership is not None:
            await self._ownership.stop(release=not self._to_remove)
        await self._disconnect()

    async def _disconnect(self) -> None:
        if self._cluster is not None:
            await self._cluster.close()
            self._cluster = None

    async def execute(self, work: Work) -> Done:
        assert self._cluster is not None and self._ownership is not None and self._watch is not None
        planned = plan(work, worker=self._worker, owner=self._ownership.owner, allowed=self._allowed)
        if isinstance(planned, Done):
            return planned
        followed = self._watch.follow(planned.name)
        running = asyncio.create_task(self._run(planned, work, followed, self._cluster))
        stopped = asyncio.create_task(work.stop.wait())
        try:
            await asyncio.wait(
                {running, stopped}, timeout=work.definition.timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if running.done():
                return running.result()
            outcome: Outcome = work.stop_outcome or "timed_out"
            return work.stopped(outcome, await self._end(planned, work, running, self._cluster))
        finally:
            stopped.cancel()
            running.cancel()
            await asyncio.wait({running})
            self._watch.forget(planned.name)
            if not await self._remove(planned.name) or running.cancelled():  # it may just be being created
                self._to_remove[planned.name] = REMOVALS

    async def _run(self, planned: Plan, work: Work, followed: Followed, cluster: Cluster) -> Done:
        loop = asyncio.get_running_loop()
        try:
            if work.assignment.attempt > 1 and (refused := await self._clear_earlier(planned, work, cluster)):
                return refused
            followed.show(await self._create(planned, cluster))
        except ClusterRefused as error:
            return Done("failed", error=f"the cluster refused the pod: {error}", retry=error.status not in UNFIT)
        except ClusterUnavailable as error:
            return Done("failed", error=f"the pod was not created: {error}")
        patience = Patience(planned.settings, loop.time())
        reading: asyncio.Task[None] | None = None
        try:
            while True:
                assert followed.pod is not None
                if reading is None and status.has_started(followed.pod):
                    reading = asyncio.create_task(self._read_log(planned, work, followed, cluster))
                done, wait_s = self._judge(followed, planned, work, patience, loop.time())
                if done is not None:
                    return done
                await followed.change(wait_s)
        finally:
            if reading is not None:
                await asyncio.wait({reading}, timeout=CLOSE_S)
                reading.cancel()

    def _judge(
        self, followed: Followed, planned: Plan, work: Work, patience: Patience, now: float
    ) -> tuple[Done | None, float | None]:
        """Return the end of the attempt, or how long to wait for the pod's next change."""
        assert followed.pod is not None
        if status.is_over(followed.pod):
            return status.ending(followed.pod, timeout_s=work.definition.timeout_s, memory=planned.memory), None
        if followed.gone:
            return status.deletion(followed.pod), None
        return patience.look(followed.pod, now)

    async def _read_log(self, planned: Plan, work: Work, followed: Followed, cluster: Cluster) -> None:
        await follow_log(
            cluster,
            planned.name,
            container=CONTAINER,
            write=lambda data: work.output.write("stdout", data),
            is_over=lambda: followed.gone or followed.pod is None or status.is_over(followed.pod),
        )

    # Creation and removal ----------------------------------------------------------------------------

    async def _create(self, planned: Plan, cluster: Cluster) -> Object:
        """Create the Secret and the pod, or find them: an earlier try may have succeeded without an answer."""
        loop = asyncio.get_running_loop()
        until = loop.time() + CREATE_S
        while True:
            try:
                if planned.secret is not None:
                    await self._ensure("secrets", planned.secret, cluster)
                pod = await self._ensure("pods", planned.pod, cluster)
                if planned.secret is not None:
                    await cluster.change("secrets", planned.name, owned_by(pod))
                return pod
            except ClusterUnavailable:
                if loop.time() > until:
                    raise
            await asyncio.sleep(RETRY_S)

    async def _ensure(self, kind: str, new: Object, cluster: Cluster) -> Object:
        """Return a new object, or the one of the same name and owner. One of another owner is removed first."""
        if (created := await cluster.create(kind, new)) is not None:
            return created
        name = new["metadata"]["name"]
        found = await cluster.get(kind, name)
        if found is not None and not _is_of_same_owner(found, new):
            await cluster.delete(kind, name, uid=found["metadata"]["uid"])
            found = None
        if found is None or status.is_leaving(found):
            raise ClusterUnavailable(f"{name} of an earlier attempt is still there")
        return found

    async def _clear_earlier(self, planned: Plan, work: Work, cluster: Cluster) -> Done | None:
        """Remove pods of earlier attempts and wait until they are gone: two attempts never run at the same time."""
        loop = asyncio.get_running_loop()
        selector, until = f"{EXECUTION}={work.assignment.execution_id}", None
        while True:
            found, _ = await cluster.labelled("pods", selector)
            earlier = [pod for pod in found if pod["metadata"]["name"] != planned.name]
            if not earlier:
                return None
            for pod in earlier:
                if not status.is_leaving(pod):
                    await cluster.delete("pods", pod["metadata"]["name"], uid=pod["metadata"]["uid"])
            if until is None:
                until = loop.time() + LEAVE_S + max(_grace_s(pod) for pod in earlier)
            if loop.time() > until:
                node = status.node_of(earlier[0]) or "(none)"
                return Done("failed", error=f"a pod of an earlier attempt is still there; its node is {node}")
            await asyncio.sleep(RETRY_S)

    async def _end(self, planned: Plan, work: Work, running: asyncio.Task[Done], cluster: Cluster) -> int | None:
        """Delete the pod: SIGTERM, and SIGKILL after its grace period. Return the exit code, if it is known."""
        grace_s = math.ceil(planned.settings.grace_s)
        try:
            await cluster.delete("pods", planned.name, grace_s=grace_s)
        except (ClusterUnavailable, ClusterRefused) as error:
            log.warning("pod.delete_failed", pod=planned.name, error=str(error))
        if work.stop_outcome != "lost":  # the session is over: the next attempt waits for the pod, not this one
            await asyncio.wait({running}, timeout=grace_s + CLOSE_S)
        return running.result().exit_code if running.done() and not running.cancelled() else None

    async def _remove(self, name: str) -> bool:
        """Delete a pod and its Secret; return whether the cluster has accepted that."""
        assert self._cluster is not None
        try:
            await self._cluster.delete("pods", name)
            await self._cluster.delete("secrets", name)
            return True
        except MainspringError as error:
            log.warning("pod.remove_failed", pod=name, error=str(error), retry_s=REMOVE_RETRY_S)
            return False

    async def _retry_later(self) -> None:
        await asyncio.sleep(REMOVE_RETRY_S)
        await self._retry_removals()

    async def _retry_removals(self) -> None:
        for name, left in list(self._to_remove.items()):
            if await self._remove(name) or left <= 1:
                self._to_remove.pop(name, None)
            else:
                self._to_remove[name] = left - 1


def _is_of_same_owner(found: Object, new: Object) -> bool:
    has, wants = found["metadata"].get("labels") or {}, new["metadata"]["labels"]
    return all(has.get(label) == wants[label] for label in (OWNER, SESSION, EXECUTION))


def _grace_s(pod: dict[str, Any]) -> float:
    return float((pod.get("spec") or {}).get("terminationGracePeriodSeconds") or 0)
