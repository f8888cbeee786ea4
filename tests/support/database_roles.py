"""The roles that servers of tests connect with, as production does: one that owns nothing, and one for tenants."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from mainspring.embedded.server import EmbeddedServer
from mainspring.store.database_roles import grant_roles

_servers: list[EmbeddedServer] = []


async def granted(server: EmbeddedServer, database: str) -> None:
    """Grant the roles of a server in a database, and let `server_urls` find them."""
    await grant_roles(
        server.dsn_for(database), server_url=server.server_dsn(database), tenant_url=server.tenant_dsn(database)
    )
    _servers.append(server)


def server_urls(url: str) -> dict[str, str]:
    """The URLs that a server gets for the URL of an owner; the same URL if its roles were not granted here."""
    parts = urlsplit(url)
    for server in _servers:
        if server.pid is not None and parts.password == urlsplit(server.dsn).password:
            return {
                "database_url": _as_role(url, server.server_dsn()),
                "tenant_database_url": _as_role(url, server.tenant_dsn()),
            }
    return {"database_url": url}


def tenant_url(url: str) -> str | None:
    """The URL of the role of tenants for the URL of an owner, if it was granted here."""
    return server_urls(url).get("tenant_database_url")


def _as_role(url: str, other: str) -> str:
    """Return a URL with the user and password of another one."""
    parts = urlsplit(url)
    user = urlsplit(other).netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{user}@{parts.netloc.rpartition('@')[2]}"))
