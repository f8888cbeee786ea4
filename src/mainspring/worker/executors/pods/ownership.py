"""Which worker owns a pod, whether that worker lives, and the removal of pods whose worker is gone.

Each worker process has a Lease in the namespace and renews it. Another worker that sees a Lease unchanged for longer
than it lasts removes the pods of its owner. Only the time between two looks counts, so clocks need not agree. A Lease
exists before the first pod of its owner: a pod without one is an orphan.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from uuid import uuid4

import structlog

from mainspring.clock import Clock, SystemClock
from mainspring.service import Loops
from mainspring.worker.executors.pods.cluster import Cluster, ClusterRefused, ClusterUnavailable, Object
from mainspring.worker.executors.pods.manifest import EXECUTION, MANAGED_BY, OWNER, WORKER, label_value

log = structlog.get_logger()

LEASE_S = 60
RENEWALS = 4
"""Renewals, and looks at the Leases of others, while one lasts."""
PREFIX = "mainspring-worker-"
_OURS = f"{MANAGED_BY}=mainspring"


class Ownership:
    """The Lease of this process, and a sweep of what dead ones left."""

    def __init__(self, cluster: Cluster, worker: str, *, lease_s: int = LEASE_S, clock: Clock | None = None) -> None:
        self.owner = str(uuid4())
        self._cluster = cluster
        self._worker = worker
        self._lease_s = lease_s
        self._clock = clock or SystemClock()
        self._seen: dict[str, tuple[str, float]] = {}  # by owner: the last renewal, and when it was first seen
        self._loops = Loops("pod owner")

    async def start(self) -> None:
        """Take the Lease. Errors are the caller's: a worker that can't have one must not create pods."""
        await self._renew()
        self._loops.forever("renew", self._renew_later)
        self._loops.forever("sweep", self._sweep_later)

    async def stop(self, *, release: bool) -> None:
        """Stop renewing; `release` the Lease if no pod is left, or leave it to expire."""
        await self._loops.stop()
        if release:
            try:
                await self._cluster.delete("leases", PREFIX + self.owner)
            except (ClusterRefused, ClusterUnavailable) as error:
                log.warning("pods.lease_kept", error=str(error), effect="it expires")

    async def sweep(self) -> None:
        """Remove the pods and Secrets of owners that are gone, and then their Leases."""
        leases, _ = await self._cluster.labelled("leases", _OURS)
        alive = {self.owner}
        expired: set[str] = set()
        for lease in leases:
            owner = lease["metadata"]["labels"].get(OWNER, "")
            if owner != self.owner:
                (expired if self._has_expired(owner, lease) else alive).add(owner)
        self._seen = {owner: seen for owner, seen in self._seen.items() if owner in alive | expired}
        selector = f"{_OURS},{OWNER},{OWNER} notin ({','.join(sorted(alive))})"
        left: set[str] = set()
        for kind in ("pods", "secrets"):
            found, _ = await self._cluster.labelled(kind, selector)
            for each in found:
                owner = each["metadata"]["labels"][OWNER]
                if owner in expired or await self._has_no_lease(owner):
                    left.add(owner)
                    await self._remove(kind, each)
        for owner in expired - left:  # their pods are gone, as an earlier sweep or their own grace period ended them
            await self._cluster.delete("leases", PREFIX + owner)

    async def _remove(self, kind: str, found: Object) -> None:
        metadata = found["metadata"]
        if "deletionTimestamp" in metadata:
            return
        await self._cluster.delete(kind, metadata["name"], uid=metadata["uid"])
        if kind == "pods":
            labels = metadata["labels"]
            log.warning(
                "pod.orphan_removed",
                pod=metadata["name"],
                execution=labels.get(EXECUTION),
                worker=labels.get(WORKER),
            )

    async def _has_no_lease(self, owner: str) -> bool:
        """Whether the owner has no Lease: one that began after the Leases were listed has one."""
        return await self._cluster.get("leases", PREFIX + owner) is None

    def _has_expired(self, owner: str, lease: Object) -> bool:
        spec, now = lease.get("spec") or {}, self._clock.monotonic()
        renewed = str(spec.get("renewTime"))
        seen, since = self._seen.get(owner, ("", now))
        if seen != renewed:
            self._seen[owner] = (renewed, now)
            return False
        return now - since > float(spec.get("leaseDurationSeconds") or self._lease_s)

    async def _renew_later(self) -> None:
        await asyncio.sleep(self._lease_s / RENEWALS)
        try:
            await self._renew()
        except (ClusterRefused, ClusterUnavailable) as error:
            log.warning("pods.lease_not_renewed", error=str(error))

    async def _sweep_later(self) -> None:
        try:
            await self.sweep()
        except (ClusterRefused, ClusterUnavailable) as error:
            log.warning("pods.sweep_failed", error=str(error))
        await asyncio.sleep(self._lease_s / RENEWALS)

    async def _renew(self) -> None:
        name, spec = PREFIX + self.owner, self._spec()
        try:
            await self._cluster.change("leases", name, {"spec": spec})
        except ClusterRefused as error:
            if error.status != 404:
                raise
            labels = {MANAGED_BY: "mainspring", OWNER: self.owner, WORKER: label_value(self._worker)}
            lease = {"metadata": {"name": name, "labels": labels}, "spec": spec | {"holderIdentity": self.owner}}
            await self._cluster.create("leases", {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"} | lease)

    def _spec(self) -> Object:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return {"leaseDurationSeconds": self._lease_s, "renewTime": now.isoformat(timespec="microseconds")[:26] + "Z"}
