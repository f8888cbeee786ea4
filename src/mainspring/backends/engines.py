"""Opens the optional engines by their URLs. Their libraries are imported only when they are configured."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from mainspring.backends.engine_url import public_url
from mainspring.domain.errors import Invalid
from mainspring.store.bus import PostgresBus

if TYPE_CHECKING:
    from mainspring.backends.etcd_coordinator import EtcdCoordinator
    from mainspring.backends.redis_bus import RedisBus
    from mainspring.backends.redis_cache import RedisCache
    from mainspring.backends.redis_delays import RedisDelays
    from mainspring.backends.redis_fire_lock import RedisFireLock
    from mainspring.backends.redis_rates import RedisRates
    from mainspring.backends.zookeeper_coordinator import ZooKeeperCoordinator


def name_prefix(database_url: str) -> str:
    """The names of one database in a shared engine: `mainspring-<database>`."""
    database = urlsplit(database_url).path.strip("/")
    return f"mainspring-{database}" if database else "mainspring"


def open_bus(url: str | None, below: PostgresBus, *, prefix: str) -> PostgresBus | RedisBus:
    """Return the bus of the database, or one on Redis above it."""
    if url is None:
        return below
    _require_redis("--bus", url)
    from mainspring.backends.redis_bus import RedisBus

    return RedisBus(url, below, prefix=prefix)


def open_cache(url: str | None, *, prefix: str) -> RedisCache | None:
    """Return the cache that api processes share; None: each has its own."""
    if url is None:
        return None
    _require_redis("--cache", url)
    from mainspring.backends.redis_cache import RedisCache

    return RedisCache(url, prefix=prefix)


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


def open_rates(url: str | None, *, prefix: str) -> RedisRates | None:
    """Return the counter of requests that api processes share; None: each counts its own."""
    if url is None:
        return None
    _require_redis("--rate-limiter", url)
    from mainspring.backends.redis_rates import RedisRates

    return RedisRates(url, prefix=prefix)


def open_delays(url: str | None, *, prefix: str) -> RedisDelays | None:
    """Return the engine of the due instants that were read ahead; None: schedulers read PostgreSQL."""
    if url is None:
        return None
    _require_redis("--delays", url)
    from mainspring.backends.redis_delays import RedisDelays

    return RedisDelays(url, prefix=prefix)


def open_fire_lock(url: str | None, *, prefix: str) -> RedisFireLock | None:
    """Return the locks of instants; None: the shard rows alone say who decides."""
    if url is None:
        return None
    _require_redis("--fire-lock", url)
    from mainspring.backends.redis_fire_lock import RedisFireLock

    return RedisFireLock(url, prefix=prefix)


def _require_redis(option: str, url: str) -> None:
    """Raise Invalid if the URL is not one of Redis, or its client library is not installed."""
    if urlsplit(url).scheme not in ("redis", "rediss", "unix"):
        raise Invalid(f"{option} {public_url(url)}: unknown engine; use redis://HOST or rediss://HOST")
    if find_spec("redis") is None:
        raise Invalid(f"{option} {public_url(url)} needs the extra `redis`: pip install 'mainspring[redis]'")
