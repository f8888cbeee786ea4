"""A client for one namespace of a Kubernetes cluster.

Lightkube reads the kubeconfig or the service account, and authenticates. The requests are made here, on plain objects:
a pod that was found must be the one that was built, field by field, and a log is read as bytes.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mainspring.domain.errors import Invalid, MainspringError

if TYPE_CHECKING:
    import httpx2

Object = dict[str, Any]

ANSWER_TIMEOUT_S = 15.0
WATCH_S, WATCH_MARGIN_S = 120, 15.0
"""A watch ends after this time and begins again: a dead connection is detected then."""
MAX_CONNECTIONS = 100_000
MAX_EVENT_BYTES = 4_000_000
RETRY_AFTER = (429, 500, 502, 503, 504)
MERGE = "application/merge-patch+json"
_PATHS = {
    "pods": "/api/v1/namespaces/{namespace}/pods",
    "secrets": "/api/v1/namespaces/{namespace}/secrets",
    "leases": "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases",
}


class ClusterUnavailable(MainspringError):
    """The cluster does not answer, or not now."""

    code = "cluster_unavailable"


class ClusterRefused(MainspringError):
    """The cluster refused a request."""

    code = "cluster_refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Where a worker runs the pods of its jobs."""

    namespace: str
    context: str | None = None  # of the kubeconfig; None: the service account of the worker's pod, or the current one
    allow: tuple[str, ...] = ()  # what jobs may ask for: see `settings.AllowList`


class Cluster:
    """One namespace. Every method may raise `ClusterUnavailable` or `ClusterRefused`."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.namespace = settings.namespace
        self._client, self._errors = _connect(settings)

    async def close(self) -> None:
        await self._client.aclose()

    async def get(self, kind: str, name: str) -> Object | None:
        """Return an object, or None if there is none of this name."""
        try:
            return await self._call("GET", f"{self._path(kind)}/{name}")
        except ClusterRefused as error:
            if error.status == 404:
                return None
            raise

    async def create(self, kind: str, new: Mapping[str, Any]) -> Object | None:
        """Create an object; return None if one of this name exists."""
        try:
            return await self._call("POST", self._path(kind), body=new)
        except ClusterRefused as error:
            if error.status == 409:
                return None
            raise

    async def change(self, kind: str, name: str, change: Mapping[str, Any]) -> Object:
        return await self._call("PATCH", f"{self._path(kind)}/{name}", body=change, media=MERGE)

    async def delete(self, kind: str, name: str, *, grace_s: int | None = None, uid: str | None = None) -> None:
        """Delete an object; one that does not exist, or is another one of the same name, is left alone."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if grace_s is not None:
            options["gracePeriodSeconds"] = grace_s
        if uid is not None:
            options["preconditions"] = {"uid": uid}
        try:
            await self._call("DELETE", f"{self._path(kind)}/{name}", body=options)
        except ClusterRefused as error:
            if error.status not in (404, 409):
                raise

    async def labelled(self, kind: str, selector: str) -> tuple[list[Object], str]:
        """Return the objects with these labels, and the version of the list."""
        found = await self._call("GET", self._path(kind), query={"labelSelector": selector})
        items: list[Object] = found.get("items") or []
        return items, str(found["metadata"]["resourceVersion"])

    async def watch(self, kind: str, selector: str, version: str) -> AsyncIterator[tuple[str, Object]]:
        """Yield changes after a version for about two minutes. The version may be too old: `ClusterRefused`, 410."""
        query = {
            "watch": "true", "labelSelector": selector, "resourceVersion": version, "timeoutSeconds": str(WATCH_S),
        }  # fmt: skip
        try:
            async with asyncio.timeout(WATCH_S + WATCH_MARGIN_S):
                async with self._stream(self._path(kind), query) as answer:
                    async for line in _lines(answer.aiter_bytes()):
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise _refusal(event["object"], int(event["object"].get("code") or 500))
                        yield event["type"], event["object"]
        except TimeoutError:
            return

    @asynccontextmanager
    async def log(self, pod: str, *, container: str, since: str | None) -> AsyncIterator[AsyncIterator[bytes]]:
        """Follow the log of a container, with a timestamp before each line, from an instant on."""
        query = {"container": container, "follow": "true", "timestamps": "true"}
        if since is not None:
            query["sinceTime"] = since
        async with self._stream(f"{self._path('pods')}/{pod}/log", query) as answer:
            yield self._bytes(answer)

    async def _bytes(self, answer: httpx2.Response) -> AsyncIterator[bytes]:
        try:
            async for data in answer.aiter_bytes():
                yield data
        except self._errors as error:
            raise self._unavailable(error) from error

    def _path(self, kind: str) -> str:
        return _PATHS[kind].format(namespace=self.namespace)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        media: str = "application/json",
    ) -> Object:
        headers = {"Content-Type": media, "Accept": "application/json"}
        content = None if body is None else json.dumps(body).encode()
        try:
            answer = await self._client.request(method, path, params=query, content=content, headers=headers)
        except self._errors as error:
            raise self._unavailable(error) from error
        return _checked(answer.status_code, answer.content)

    @asynccontextmanager
    async def _stream(self, path: str, query: Mapping[str, str]) -> AsyncIterator[httpx2.Response]:
        import httpx2

        timeout = httpx2.Timeout(ANSWER_TIMEOUT_S, read=None)
        try:
            async with self._client.stream("GET", path, params=query, timeout=timeout) as answer:
                if answer.status_code >= 400:
                    _checked(answer.status_code, await answer.aread())
                yield answer
        except self._errors as error:
            raise self._unavailable(error) from error

    def _unavailable(self, error: BaseException) -> ClusterUnavailable:
        return ClusterUnavailable(f"the cluster at {self._client.base_url} does not answer ({_cause(error)})")


def _connect(settings: ClusterSettings) -> tuple[httpx2.AsyncClient, tuple[type[Exception], ...]]:
    """Return an authenticated HTTP client for the cluster, and the exceptions that it raises."""
    try:
        import httpx2
        from lightkube.config.client_adapter import ConnectionParams
        from lightkube.config.kubeconfig import KubeConfig
        from lightkube.core.exceptions import ConfigError
    except ImportError as error:
        hint = "install mainspring[kubernetes], or leave the option out"
        raise Invalid(f"--kube-namespace: the package {error.name} is not installed; {hint}") from None
    try:
        config = KubeConfig.from_env().get(context_name=settings.context)
        if config is None or config.user is None:
            raise ConfigError("its context names no user")
        options = ConnectionParams(timeout=httpx2.Timeout(ANSWER_TIMEOUT_S)).httpx_params(config)
        # One connection for each log that is followed, besides those of requests.
        limits = httpx2.Limits(max_connections=MAX_CONNECTIONS, max_keepalive_connections=20)
        client = httpx2.AsyncClient(**options, limits=limits)
    except Exception as error:  # readers of YAML, files and certificates: each has errors of its own
        where = "--kube-namespace" if settings.context is None else f"--kube-context {settings.context}"
        hint = "the worker needs a kubeconfig (KUBECONFIG or ~/.kube/config) or the service account of its pod"
        # Errors of the YAML reader quote the file, which may contain a token.
        cause = _cause(error) if isinstance(error, ConfigError | OSError) else f"invalid ({type(error).__name__})"
        raise Invalid(f"{where}: cannot read the access to the cluster: {cause}; {hint}") from None
    return client, (httpx2.HTTPError, httpx2.StreamError, ConfigError, OSError)


def _checked(status: int, content: bytes) -> Object:
    """Return the object of an answer; raise if it is an error."""
    try:
        found = json.loads(content) if content else {}
    except ValueError:
        found = {}
    if not isinstance(found, dict):
        found = {}
    if status in RETRY_AFTER:
        message = str(found.get("message") or f"status {status}")
        raise ClusterUnavailable(f"the cluster cannot answer now: {message}")
    if status >= 400:
        raise _refusal(found, status)
    return found


def _refusal(status: Mapping[str, Any], code: int) -> ClusterRefused:
    return ClusterRefused(str(status.get("message") or f"status {code}"), code)


def _cause(error: BaseException) -> str:
    return str(error) or type(error).__name__


async def _lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split a stream into lines of a bounded length."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line:
                yield line
        if len(rest) > MAX_EVENT_BYTES:
            raise ClusterUnavailable(f"an event of the cluster has more than {MAX_EVENT_BYTES:,} bytes")
