"""Which paths of a provider each tenant may read; and a bound on the time, a cache, and checks of what it returns."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence

import structlog

from mainspring.domain.errors import MainspringError
from mainspring.domain.secret import MAX_VALUE_CHARS, value_problems
from mainspring.http_client import HttpError
from mainspring.ttl_cache import TtlCache
from mainspring.vault.providers.contract import Provider, ProviderFailed

log = structlog.get_logger()

MAX_PATH_CHARS = 500
MAX_CACHED = 1_000
_PATH = re.compile(r"[A-Za-z0-9_./=+@:-]+(?:#[A-Za-z0-9_.-]+)?\Z")


def path_problem(path: str) -> str | None:
    """Return what is wrong with a path, or None. A path cannot leave the prefix that it begins with."""
    if len(path) > MAX_PATH_CHARS:
        return f"the path has {len(path)} characters; at most {MAX_PATH_CHARS} are allowed"
    if not _PATH.match(path):
        return "a path has letters, digits and _ . / = + @ : -, and # before the name of a field"
    if any(part in ("", ".", "..") for part in path.partition("#")[0].split("/")):
        return "a path has no empty part, and neither . nor .. between slashes"
    return None


class GuardedProvider:
    """A provider as tenants may use it. `allow` has patterns by the name of the tenant; without one, none may read."""

    def __init__(
        self,
        name: str,
        provider: Provider,
        allow: Mapping[str, Sequence[str]],
        *,
        timeout_s: float = 5.0,
        cache_s: float = 60.0,
    ) -> None:
        self._name = name
        self._provider = provider
        self._allow = allow
        self._timeout_s = timeout_s
        self._cache: TtlCache[str, str] | None = TtlCache(lambda: cache_s, most=MAX_CACHED) if cache_s > 0 else None

    def refusal(self, tenant: str, path: str) -> str | None:
        """Return why a tenant may not refer to a path, or None. It does not depend on what exists there."""
        if (problem := path_problem(path)) is not None:
            return problem
        patterns = self._allow.get(tenant, ())
        if any(path.startswith(p[:-1]) if p.endswith("*") else path == p for p in patterns):
            return None
        return f"the provider {self._name!r} does not allow this path to the tenant {tenant!r}"

    async def read(self, tenant: str, path: str) -> str:
        """Return a value. Raises ProviderFailed, which names the provider and never contains a value."""
        if (refused := self.refusal(tenant, path)) is not None:
            raise ProviderFailed(refused)
        if self._cache is None:
            return await self._read(path)
        return await self._cache.get(path, lambda: self._read(path))

    async def _read(self, path: str) -> str:
        try:
            async with asyncio.timeout(self._timeout_s):
                value: object = await self._provider.read(path)
        except TimeoutError:
            raise self._failed(f"did not answer within {self._timeout_s:g} s") from None
        except (ProviderFailed, HttpError) as error:
            raise self._failed(f"failed: {error}") from None
        except (MainspringError, OSError, ValueError, LookupError, TypeError) as error:
            log.warning("secret_provider.failed", provider=self._name, error=type(error).__name__)
            raise self._failed(f"failed: {type(error).__name__}") from None
        if not isinstance(value, str) or len(value) > MAX_VALUE_CHARS:
            raise self._failed(f"has no text of at most {MAX_VALUE_CHARS:,} characters at this path")
        if problems := value_problems(value):
            raise self._failed(f"has an unusable value: {problems[0].message}")
        return value

    async def close(self) -> None:
        await self._provider.close()

    def _failed(self, reason: str) -> ProviderFailed:
        return ProviderFailed(f"the provider {self._name!r} {reason}")
