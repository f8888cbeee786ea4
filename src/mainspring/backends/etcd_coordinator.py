"""The coordinator on etcd 3.4 or later: one key per scheduler under a lease, through etcd's JSON gateway.

A scheduler that is killed, stopped or cut off misses its keep-alives, and its key disappears when the lease expires.
Fences are revisions of the store. The watch is a hint to read the keys again, so a compaction loses nothing.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import Callable
from itertools import cycle
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import UUID

import msgspec
import structlog

from mainspring.backends.engine_url import public_url
from mainspring.backends.membership import Membership
from mainspring.domain.errors import Invalid
from mainspring.http_client import HttpClient, HttpError
from mainspring.service import Loops, Service, together
from mainspring.telemetry import metrics

log = structlog.get_logger()

TTL_S = 2
"""The least that etcd grants with its default election timeout."""
KEEP_ALIVE_S = 0.5
REQUEST_S = 1.5
WATCH_SILENCE_S = 60.0
FENCE_S = 1.0
DEFAULT_PORT = 2379
LOST = (HttpError, OSError, TimeoutError)
REFUSED = tuple(f"etcdserver: {why}" for why in ("authentication", "user name", "permission denied", "invalid auth"))
"""Messages of etcd about credentials. Their status is 400, as that of other errors."""


class EtcdError(ConnectionError):
    """etcd refused a request."""


class CredentialsRefused(EtcdError):
    """The user, the password, or the rights of the user."""


class EtcdCoordinator(Service):
    """Implements ports.Coordinator. URL: `etcd://[USER:PASSWORD@]HOST[:PORT][,HOST...][/PREFIX]`.

    `etcds://` uses TLS; `?ca=FILE&cert=FILE&key=FILE` name the certificates of TLS.
    """

    def __init__(self, url: str, *, prefix: str) -> None:
        parts = urlsplit(url)
        hosts = parts.netloc.rpartition("@")[2]
        if not hosts:
            raise Invalid(f"--coordinator {public_url(url)}: a host is required, such as etcd://127.0.0.1:2379")
        scheme = "https" if parts.scheme == "etcds" else "http"
        self._shown = public_url(url)
        self._user, self._password = unquote(parts.username or ""), unquote(parts.password or "")
        self._tls = _tls(parse_qs(parts.query)) if scheme == "https" else None
        self._addresses = cycle([f"{scheme}://{_with_port(host)}" for host in hosts.split(",") if host])
        self._prefix = f"/{parts.path.strip('/') or prefix}/schedulers/"
        self._fence_key = f"/{parts.path.strip('/') or prefix}/fence"
        self._members = Membership()
        self._loops = Loops("etcd")
        self._client: HttpClient | None = None
        self._token: str | None = None
        self._lease: str | None = None
        self._me: tuple[UUID, str] | None = None
        self._tried = asyncio.Event()
        self._refused: CredentialsRefused | None = None
        self._set_up(False)

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
        metrics.ENGINE_UP.remove("coordinator", "etcd")

    async def fence(self) -> int:
        client = self._client
        if client is None:
            return 0
        try:
            async with asyncio.timeout(FENCE_S):
                put = {"key": _encoded(self._fence_key), "value": _encoded(str(self._me))}
                return int((await self._call(client, "kv/put", put))["header"]["revision"])
        except (*LOST, EtcdError) as error:
            log.warning("engine.failed", role="coordinator", url=self._shown, error=repr(error))
            return 0

    async def _serve(self) -> None:
        """One life of the registration: grant a lease, register, then keep it alive until it is lost."""
        client = HttpClient(next(self._addresses), {}, env={}, tls=self._tls, connect_s=REQUEST_S)
        try:
            await self._authenticate(client)
            lease = str((await self._call(client, "lease/grant", {"TTL": TTL_S}))["ID"])
            self._lease = lease
            assert self._me is not None
            scheduler_id, name = self._me
            put = {"key": _encoded(self._prefix + str(scheduler_id)), "value": _encoded(name), "lease": lease}
            await self._call(client, "kv/put", put)
            self._members.restart(await self._list(client))
            self._client = client
            self._set_up(True)
            await together("etcd", self._keep_alive(client, lease), self._follow(client))
        except (*LOST, EtcdError, msgspec.DecodeError) as error:
            if isinstance(error, CredentialsRefused) and not self._tried.is_set():
                self._refused = error
            raise ConnectionError(f"etcd is unavailable: {error!r}") from None
        finally:
            self._client = None
            self._members.forget()
            self._set_up(False)
            self._tried.set()
            await self._revoke(client)
            client.close()

    async def _revoke(self, client: HttpClient) -> None:
        lease, self._lease = self._lease, None
        if lease is not None:
            try:
                async with asyncio.timeout(FENCE_S):
                    await self._call(client, "lease/revoke", {"ID": lease})
            except (*LOST, EtcdError) as error:
                log.debug("lease.not_revoked", error=repr(error))  # it expires

    def _set_up(self, up: bool) -> None:
        metrics.ENGINE_UP.labels("coordinator", "etcd").set(up)
        if up:
            log.info("engine.connected", role="coordinator", url=self._shown)
            self._tried.set()

    async def _authenticate(self, client: HttpClient) -> None:
        self._token = None
        if self._user:
            answer = await self._call(client, "auth/authenticate", {"name": self._user, "password": self._password})
            self._token = str(answer["token"])

    async def _keep_alive(self, client: HttpClient, lease: str) -> None:
        while True:
            answer = await self._call(client, "lease/keepalive", {"ID": lease})
            if int(answer.get("result", answer).get("TTL", 0)) <= 0:
                raise EtcdError("the lease has expired")
            await asyncio.sleep(KEEP_ALIVE_S)

    async def _list(self, client: HttpClient) -> list[UUID]:
        wanted = {"key": _encoded(self._prefix), "range_end": _encoded(_end_of(self._prefix)), "keys_only": True}
        found = []
        for pair in (await self._call(client, "kv/range", wanted)).get("kvs", ()):
            key = base64.b64decode(pair["key"]).decode(errors="replace")
            try:
                found.append(UUID(key.removeprefix(self._prefix)))
            except ValueError:
                continue
        return found

    async def _follow(self, client: HttpClient) -> None:
        """Read the registered schedulers whenever the watch reports something; a watch that ends is opened again."""
        create = {"key": _encoded(self._prefix), "range_end": _encoded(_end_of(self._prefix))}
        body = msgspec.json.encode({"create_request": create})
        while True:
            async with client.stream(
                "POST", "/v3/watch", body, headers=self._headers(), timeout_s=WATCH_SILENCE_S
            ) as response:
                if response.status != 200:
                    raise EtcdError(f"the watch was refused with status {response.status}")
                try:
                    async for _ in response.chunks():
                        self._members.update(await self._list(client))
                except TimeoutError:
                    continue
                except HttpError as error:
                    log.debug("watch.ended", error=repr(error))
            self._members.update(await self._list(client))

    def _headers(self) -> dict[str, str]:
        return {"Content-Type": "application/json"} | ({"Authorization": self._token} if self._token else {})

    async def _call(self, client: HttpClient, method: str, body: dict[str, Any]) -> dict[str, Any]:
        response = await client.request(
            "POST",
            f"/v3/{method}",
            msgspec.json.encode(body),
            headers=self._headers(),
            timeout_s=REQUEST_S,
            max_bytes=4 << 20,
            repeatable=True,
        )
        if response.status != 200:
            text = response.body[:300].decode(errors="replace")
            refused = any(message in text for message in REFUSED)
            raise (CredentialsRefused if refused else EtcdError)(f"{method}: {response.status} {text}")
        answer: dict[str, Any] = msgspec.json.decode(response.body)
        return answer


def _tls(query: dict[str, list[str]]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=query.get("ca", [None])[0])
    if "cert" in query:
        context.load_cert_chain(query["cert"][0], query.get("key", [None])[0])
    return context


def _with_port(host: str) -> str:
    return host if host.rpartition(":")[2].isdigit() else f"{host}:{DEFAULT_PORT}"


def _end_of(prefix: str) -> str:
    """Return the first key after all that begin with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
