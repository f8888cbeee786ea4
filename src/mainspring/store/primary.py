"""Connects to the primary among several hosts, and refuses a stale one.

A URL may name several hosts: `postgresql://user@db1,db2/name`. After a failover the old primary may return and accept
writes that the new one never sees. Every promotion begins a new timeline, so of two servers that accept writes the one
with the higher timeline is the primary. A process asks all hosts when it starts, and never returns to a lower timeline.
"""

from __future__ import annotations

from functools import cache
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg
import structlog

from mainspring.store.pooler import is_refusal, refused
from mainspring.store.queries import q

log = structlog.get_logger()

HOST_TIMEOUT_S = 3.0
"""Longest time to connect to one of several hosts."""
_FAILED = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class NoPrimary(ConnectionError):
    """No host of the URL accepts writes on the newest timeline."""


class Primary:
    """The hosts of one URL, and the newest timeline that this process has seen."""

    def __init__(self, url: str) -> None:
        self.urls = urls_by_host(url)
        self._timeline = 0
        self._at = 0

    async def connect(self, dsn: str | None = None, **options: Any) -> asyncpg.Connection[Any]:
        """Open a connection; with several hosts, to the one that accepts writes on the newest timeline.

        A pool passes its `dsn`, which is the URL of all hosts.
        """
        if len(self.urls) == 1:
            return await _open(self.urls[0], options)
        options = options | {"target_session_attrs": "read-write", "timeout": HOST_TIMEOUT_S}
        if not self._timeline:
            await self._survey(options)
        refusals = []
        for index in sorted(range(len(self.urls)), key=lambda index: index != self._at):
            try:
                connection, timeline = await self._connect(index, options)
            except _FAILED as error:
                refusals.append(f"host {index + 1}: {str(error) or type(error).__name__}")
                continue
            if timeline >= self._timeline:
                self._timeline, self._at = timeline, index
                return connection
            connection.terminate()
            log.warning("primary.stale", host=index + 1, timeline=timeline, newest=self._timeline)
            refusals.append(f"host {index + 1}: a stale primary, on timeline {timeline} of {self._timeline}")
        raise NoPrimary("no primary: " + "; ".join(refusals))

    async def _survey(self, options: dict[str, Any]) -> None:
        """Find the newest timeline among all hosts, before the first of them is believed."""
        for index in range(len(self.urls)):
            try:
                connection, timeline = await self._connect(index, options)
            except _FAILED:
                continue
            connection.terminate()
            if timeline > self._timeline:
                self._timeline, self._at = timeline, index

    async def _connect(self, index: int, options: dict[str, Any]) -> tuple[asyncpg.Connection[Any], int]:
        connection = await _open(self.urls[index], options)
        try:
            return connection, int(await connection.fetchval(q("current_timeline"), timeout=HOST_TIMEOUT_S))
        except BaseException:
            connection.terminate()
            raise


async def _open(url: str, options: dict[str, Any]) -> asyncpg.Connection[Any]:
    try:
        connection: asyncpg.Connection[Any] = await asyncpg.connect(url, **options)
    except asyncpg.ProtocolViolationError as error:
        if is_refusal(error):
            raise refused(error) from None
        raise
    return connection


@cache
def primary_of(url: str) -> Primary:
    """The hosts of a URL; all pools of a process share what it knows of them."""
    return Primary(url)


def urls_by_host(url: str) -> list[str]:
    """Return one URL for each host of a URL with several: in the authority, or in the parameter `host`."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    user, at, hosts = parts.netloc.rpartition("@")
    if "," in hosts:
        query.pop("target_session_attrs", None)
        rest = urlencode(query)
        return [urlunsplit(parts._replace(netloc=f"{user}{at}{host}", query=rest)) for host in hosts.split(",")]
    if "," in query.get("host", ""):
        query.pop("target_session_attrs", None)
        names = query.pop("host").split(",")
        ports = query.pop("port", "5432").split(",")
        ports = ports * len(names) if len(ports) == 1 else ports
        return [
            urlunsplit(parts._replace(query=urlencode(query | {"host": name, "port": port})))
            for name, port in zip(names, ports, strict=True)
        ]
    return [url]
