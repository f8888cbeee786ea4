"""Opens the optional engines by their URLs. Their libraries are imported only when they are configured."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainspring.backends.engine_url import public_url
from mainspring.domain.errors import Invalid
from mainspring.store.bus import PostgresBus

if TYPE_CHECKING:
    from mainspring.backends.etcd_coordinator import EtcdCoordinator
    from mainspring.backends.redis_bus import RedisBus
    from mainspring.backends.zookeeper_coordinator import ZooKeeperCoordinator


def name_prefix(database_url: str) -> str:
    """The names of one database in a shared engine: `mainspring-<database>`."""
    database = urlsplit(database_url).path.strip("/")
    return f"mainspring-{database}" if database else "mainspring"


def open_bus(url: str | None, below: PostgresBus, *, prefix: str) -> PostgresBus | RedisBus:
    """Return the bus of the database, or one on Redis above it."""
    if url is None:
        return below
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise Invalid(f"--bus {public_url(url)}: unknown engine; use redis://HOST or rediss://HOST")
    try:
        from mainspring.backends.redis_bus import RedisBus
    except ImportError:
        raise Invalid(f"--bus {public_url(url)} needs the extra `redis`: pip install 'mainspring[redis]'") from None
    return RedisBus(url, below, prefix=prefix)


def open_coordinator(url: str | None, *, prefix: str) -> EtcdCoordinator | ZooKeeperCoordinator | None:
    """Return the coordinator of this URL; None: schedulers rely on their leases in the database."""
    match urlsplit(url or "").scheme:
        case "" if url is None:
            return None
        case "etcd" | "etcds":
            from mainspring.backends.etcd_coordinator import EtcdCoordinator

            return EtcdCoordinator(url or "", prefix=prefix)
        case "zookeeper":
            try:
                from mainspring.backends.zookeeper_coordinator import ZooKeeperCoordinator
            except ImportError:
                needed = "the extra `zookeeper`: pip install 'mainspring[zookeeper]'"
                raise Invalid(f"--coordinator {public_url(url or '')} needs {needed}") from None
            return ZooKeeperCoordinator(url or "", prefix=prefix)
    raise Invalid(f"--coordinator {public_url(url or '')}: unknown engine; use etcd://HOST or zookeeper://HOST")
