"""Follows the pods of this worker with one watch for all of them."""

from __future__ import annotations

import asyncio

import structlog

from mainspring.service import Loops
from mainspring.worker.executors.pods.cluster import Cluster, ClusterRefused, ClusterUnavailable, Object
from mainspring.worker.executors.pods.manifest import OWNER

log = structlog.get_logger()

RETRY_S = 1.0
GONE = 410
"""The status of a watch whose version is too old."""


class Followed:
    """A pod as the cluster last showed it."""

    def __init__(self) -> None:
        self.pod: Object | None = None
        self.gone = False
        self._changed = asyncio.Event()

    def show(self, pod: Object) -> None:
        """Take a state of the pod, unless a later one is known or it is another pod of the same name."""
        known = self.pod
        if known is not None and (_uid(known) != _uid(pod) or _version(pod) <= _version(known)):
            return
        self.pod = pod
        self._changed.set()

    def show_gone(self, pod: Object | None = None) -> None:
        """The pod does not exist any more; `pod` is its last state, if that is known."""
        if self.pod is None:
            return
        if pod is not None:
            if _uid(pod) != _uid(self.pod):
                return
            self.pod = pod
        self.gone = True
        self._changed.set()

    async def change(self, within_s: float | None) -> None:
        """Return at the next change, or after `within_s`."""
        try:
            async with asyncio.timeout(within_s):
                await self._changed.wait()
        except TimeoutError:
            return
        self._changed.clear()


class PodWatch:
    """Lists and watches the pods of one owner."""

    def __init__(self, cluster: Cluster, owner: str) -> None:
        self._cluster = cluster
        self._selector = f"{OWNER}={owner}"
        self._followed: dict[str, Followed] = {}
        self._loops = Loops("pods")
        self._some = asyncio.Event()

    def start(self) -> None:
        self._loops.forever("watch", self._watch)

    async def stop(self) -> None:
        await self._loops.stop()

    def follow(self, name: str) -> Followed:
        followed = self._followed[name] = Followed()
        self._some.set()
        return followed

    def forget(self, name: str) -> None:
        self._followed.pop(name, None)
        if not self._followed:
            self._some.clear()

    async def _watch(self) -> None:
        """List, then watch until the connection ends. Without pods there is nothing to watch."""
        await self._some.wait()
        try:
            version = await self._list()
            async for kind, pod in self._cluster.watch("pods", self._selector, version):
                if (followed := self._followed.get(pod["metadata"]["name"])) is None:
                    continue
                if kind == "DELETED":
                    followed.show_gone(pod)
                else:
                    followed.show(pod)
        except ClusterUnavailable as error:
            log.warning("pods.watch_lost", error=str(error), retry_s=RETRY_S)
            await asyncio.sleep(RETRY_S)
        except ClusterRefused as error:
            if error.status != GONE:
                log.error("pods.watch_refused", error=str(error), retry_s=RETRY_S)
                await asyncio.sleep(RETRY_S)

    async def _list(self) -> str:
        # Only pods that were known before the list was made can be missing in it.
        known = {name: each for name, each in self._followed.items() if each.pod is not None}
        found, version = await self._cluster.labelled("pods", self._selector)
        for pod in found:
            if (followed := self._followed.get(pod["metadata"]["name"])) is not None:
                followed.show(pod)
        for name in known.keys() - {pod["metadata"]["name"] for pod in found}:
            known[name].show_gone()
        return version


def _uid(pod: Object) -> str:
    return str(pod["metadata"]["uid"])


def _version(pod: Object) -> int:
    text = str(pod["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0
