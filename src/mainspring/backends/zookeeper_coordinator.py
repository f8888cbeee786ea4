"""The coordinator on ZooKeeper: one ephemeral node per scheduler, in kazoo's own threads.

The session of a scheduler that is killed, stopped or cut off expires, and its node disappears. Fences are transaction
ids (zxid) of the ensemble.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import UUID

import structlog
from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import AuthFailedError, KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.security import make_digest_acl

from mainspring.backends.engine_url import public_url
from mainspring.backends.membership import Membership
from mainspring.domain.errors import Invalid
from mainspring.service import Loops, Service
from mainspring.telemetry import metrics

log = structlog.get_logger()

SESSION_S = 2.0
"""The server may grant more: twice its tickTime at least."""
CONNECT_S = 3.0
FENCE_S = 1.0
CHECK_S = 1.0
_QUIET = logging.Logger("kazoo", logging.CRITICAL)  # what happens to the session is logged here
LOST = (KazooException, KazooTimeoutError, OSError, TimeoutError)


class ZooKeeperCoordinator(Service):
    """Implements ports.Coordinator. URL: `zookeeper://[USER:PASSWORD@]HOST[:PORT][,HOST...][/PREFIX]`."""

    def __init__(self, url: str, *, prefix: str) -> None:
        parts = urlsplit(url)
        self._hosts = parts.netloc.rpartition("@")[2]
        if not self._hosts:
            raise Invalid(f"--coordinator {public_url(url)}: a host is required, such as zookeeper://127.0.0.1:2181")
        self._shown = public_url(url)
        self._auth = (
            [("digest", f"{unquote(parts.username)}:{unquote(parts.password or '')}")] if parts.username else []
        )
        # With credentials, only their user may read and change the nodes.
        self._acl = (
            [make_digest_acl(unquote(parts.username), unquote(parts.password or ""), all=True)]
            if parts.username
            else None
        )
        self._root = f"/{parts.path.strip('/') or prefix}"
        self._members = Membership()
        self._loops = Loops("zookeeper")
        self._client: KazooClient | None = None
        self._me: tuple[UUID, str] | None = None
        self._tried = asyncio.Event()
        self._refused: str | None = None
        self._changed = asyncio.Event()
        metrics.ENGINE_UP.labels("coordinator", "zookeeper").set(0)

    def watch(self, changed: Callable[[], None]) -> None:
        self._members.watch(changed)

    def gone(self) -> frozenset[UUID]:
        return self._members.gone

    @property
    def connected(self) -> bool:
        return self._client is not None

    async def start(self) -> None:
        """Do nothing until `join`: a process without a scheduler has nothing to register."""

    async def join(self, scheduler_id: UUID, name: str) -> None:
        self._me = scheduler_id, name
        self._loops.forever("coordinator", self._serve, backoff_s=0.1)
        await self._tried.wait()
        if self._refused is not None:
            await self._loops.stop()
            raise Invalid(f"--coordinator {self._shown}: {self._refused}")

    async def leave(self) -> None:
        await self._loops.stop()

    async def stop(self) -> None:
        await self._loops.stop()
        metrics.ENGINE_UP.remove("coordinator", "zookeeper")

    async def fence(self) -> int:
        client = self._client
        if client is None:
            return 0
        try:
            async with asyncio.timeout(FENCE_S):
                stat = await asyncio.to_thread(client.set, f"{self._root}/fence", b"")
                return int(stat.mzxid)
        except LOST as error:
            log.warning("engine.failed", role="coordinator", url=self._shown, error=repr(error))
            return 0

    async def _serve(self) -> None:
        """One life of the session: register, then follow the others until it is suspended or lost."""
        loop = asyncio.get_running_loop()
        client = KazooClient(self._hosts, timeout=SESSION_S, auth_data=self._auth, default_acl=self._acl, logger=_QUIET)

        def awaken(*_: Any) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._changed.set)

        client.add_listener(awaken)
        try:
            await asyncio.to_thread(client.start, CONNECT_S)
            await asyncio.to_thread(self._register, client)
            self._members.restart(await self._list(client, awaken))
            self._client = client
            self._set_up(True)
            while client.state == KazooState.CONNECTED:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(CHECK_S):
                        await self._changed.wait()
                if self._changed.is_set() and client.state == KazooState.CONNECTED:
                    self._changed.clear()
                    self._members.update(await self._list(client, awaken))
            raise ConnectionError(f"the session is {client.state.lower()}")
        except (AuthFailedError, NoAuthError) as error:
            problem = f"ZooKeeper refuses the credentials for {self._root}: {error!r}"
            if not self._tried.is_set():
                self._refused = problem
            raise ConnectionError(problem) from None
        except LOST as error:
            raise ConnectionError(f"ZooKeeper is unavailable: {error!r}") from None
        finally:
            self._client = None
            self._members.forget()
            self._set_up(False)
            self._tried.set()
            await asyncio.shield(asyncio.to_thread(_end, client))

    def _set_up(self, up: bool) -> None:
        metrics.ENGINE_UP.labels("coordinator", "zookeeper").set(up)
        if up:
            log.info("engine.connected", role="coordinator", url=self._shown)
            self._tried.set()

    def _register(self, client: KazooClient) -> None:
        """Create this scheduler's node. In a thread: kazoo blocks."""
        assert self._me is not None
        scheduler_id, name = self._me
        client.ensure_path(f"{self._root}/schedulers")
        client.ensure_path(f"{self._root}/fence")
        path = f"{self._root}/schedulers/{scheduler_id}"
        if client.exists(path) is not None:  # of an earlier session of this process
            client.delete(path)
        client.create(path, name.encode(), ephemeral=True)

    async def _list(self, client: KazooClient, awaken: Callable[..., None]) -> list[UUID]:
        found = []
        async with asyncio.timeout(CONNECT_S):  # a request waits for the next connection if this one is lost
            children = await asyncio.to_thread(client.get_children, f"{self._root}/schedulers", awaken)
        for child in children:
            with contextlib.suppress(ValueError):
                found.append(UUID(child))
        return found


def _end(client: KazooClient) -> None:
    with contextlib.suppress(*LOST):
        client.stop()
        client.close()
