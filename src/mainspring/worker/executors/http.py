"""Calls URLs. The response is the result: status, some headers, and the body, decoded if it is JSON."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from typing import Any

import httpx2
import msgspec

from mainspring import __version__, codec, outbound
from mainspring.clock import Clock, SystemClock
from mainspring.codec import encode
from mainspring.domain.address import read_networks
from mainspring.domain.duration import parse_duration
from mainspring.domain.task import HttpTask, expects, url_problem
from mainspring.domain.template import fill, render
from mainspring.worker.executors import Done, Host, Work

KEPT_HEADERS = ("content-type", "content-length", "date", "etag", "last-modified", "location", "retry-after", "server")
MAX_KEPT_BYTES = 64_000
"""Of a response body: results are stored as long as their executions are."""


class CallFailed(Exception):
    """The call failed; `retry` is false if a retry would fail the same way."""

    def __init__(self, message: str, *, retry: bool = True, result: Any = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.result = result


class HttpExecutor:
    """The `http` kind."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._client: httpx2.AsyncClient | None = None
        self._host: Host | None = None

    async def start(self, host: Host) -> None:
        self._host = host
        read_networks(host.allow_net)  # fails at startup if one is invalid

    async def stop(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    async def execute(self, work: Work) -> Done:
        task = work.definition.task
        assert isinstance(task, HttpTask)
        limit_s = work.definition.timeout_s
        if task.timeout is not None:
            limit_s = min(limit_s, parse_duration(task.timeout))
        try:
            result = await _unless_stopped(self._call(task, work), work, limit_s)
        except CallFailed as failure:
            return Done("failed", error=str(failure), result=failure.result, retry=failure.retry)
        if result is not None:
            return Done("succeeded", result=result)
        if work.stop_outcome is not None:
            return work.stopped(work.stop_outcome)
        return Done("timed_out", error=f"timed out after {limit_s:g} s")

    async def _call(self, task: HttpTask, work: Work) -> dict[str, Any]:
        request = self._request(task, work)
        redirects = 0
        while True:
            started = self._clock.monotonic()
            _log(work, f"{request.method} {request.url}")
            response = await self._send(request)
            try:
                body = await _read(response, task)
            finally:
                await response.aclose()
            took_ms = round((self._clock.monotonic() - started) * 1000)
            _log(work, f"{response.status_code} {response.reason_phrase} · {len(body):,} bytes · {took_ms} ms")
            if response.next_request is None or not task.follow_redirects:
                return _check_status(task, response, body, redirects)
            redirects += 1
            if redirects > task.follow_redirects:
                raise CallFailed(
                    f"more than {task.follow_redirects} redirects", result=_result(response, body, redirects)
                )
            request = _redirect(request, response.next_request)

    def _request(self, task: HttpTask, work: Work) -> httpx2.Request:
        values = work.values()
        try:
            url = render(task.url, values)
            headers = {name.lower(): render(value, values) for name, value in task.headers.items()}
            body = fill(task.body, values)
        except KeyError as error:
            raise CallFailed(f"the parameter {error} was not given", retry=False) from None
        if problem := url_problem(url):
            raise CallFailed(problem, retry=False)
        if any(c in value for value in headers.values() for c in "\r\n\0"):
            raise CallFailed("a header contains a line break or NUL after its templates were filled in", retry=False)
        content = None if body is None else body.encode() if isinstance(body, str) else encode(body)
        if content is not None:
            kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
            headers.setdefault("content-type", kind)
        # A compressed body could become a thousand times as large as it was sent.
        headers.setdefault("accept-encoding", "identity")
        headers.setdefault("user-agent", f"mainspring/{__version__}")
        try:
            return self._get_client().build_request(
                task.method, url, headers=headers | _identity(work), content=content
            )
        except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
            raise CallFailed(f"invalid URL {url!r}: {error}", retry=False) from None

    def _get_client(self) -> httpx2.AsyncClient:
        # Created on the first call: loading certificates takes 0.1 s, and most workers never need them.
        if self._client is None:
            allowed = () if self._host is None else read_networks(self._host.allow_net)
            self._client = outbound.client(allowed)
        return self._client

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        where = f"{request.url.host}:{request.url.port or (443 if request.url.scheme == 'https' else 80)}"
        try:
            return await self._get_client().send(request, stream=True)
        except outbound.RefusedAddress as error:
            raise CallFailed(error.message, retry=False) from None
        except outbound.UnknownHost as error:
            raise CallFailed(error.message) from None
        except httpx2.UnsupportedProtocol:
            raise CallFailed(
                f"invalid URL {str(request.url)!r}: only http and https are supported", retry=False
            ) from None
        except httpx2.ConnectError as error:
            raise CallFailed(_unreachable(where, error)) from None
        except httpx2.TransportError as error:
            raise CallFailed(f"{where} closed the connection: {_describe(error)}") from None


def _identity(work: Work) -> dict[str, str]:
    """Return headers that identify the execution; receivers detect repeated calls by the idempotency key."""
    return {
        "idempotency-key": str(work.assignment.execution_id),
        "mainspring-execution-id": str(work.assignment.execution_id),
        "mainspring-job": work.definition.name,
        "mainspring-attempt": str(work.assignment.attempt),
        "mainspring-fire-at": work.fire_at,
    }


def _redirect(request: httpx2.Request, to: httpx2.Request) -> httpx2.Request:
    """Return the next request of a redirect chain; another origin does not get the task's own headers."""
    if problem := url_problem(str(to.url)):
        raise CallFailed(f"redirected: {problem}", retry=False)
    before, after = request.url, to.url
    if (before.scheme, before.host, before.port) != (after.scheme, after.host, after.port):
        kept = ("host", "user-agent", "accept", "content-type", "content-length", "idempotency-key")
        for name in [name for name in to.headers if name not in kept and not name.startswith("mainspring-")]:
            del to.headers[name]
    return to


async def _read(response: httpx2.Response, task: HttpTask) -> bytes:
    """Read the body, up to `max_bytes`."""
    parts, size = [], 0
    try:
        async for part in response.aiter_bytes():
            size += len(part)
            if size > task.max_bytes:
                raise CallFailed(f"the response has more than {task.max_bytes:,} bytes (max_bytes)", retry=False)
            parts.append(part)
    except httpx2.DecodingError as error:
        raise CallFailed(f"cannot decode the response: {error}") from None
    except httpx2.TransportError as error:
        raise CallFailed(f"the connection broke while reading the response: {_describe(error)}") from None
    return b"".join(parts)


def _check_status(task: HttpTask, response: httpx2.Response, body: bytes, redirects: int) -> dict[str, Any]:
    result = _result(response, body, redirects)
    if not expects(task, response.status_code):
        expected = ", ".join(str(status) for status in task.expect)
        status = f"{response.status_code} {response.reason_phrase}"
        raise CallFailed(f"the response status was {status}, not {expected}", result=result)
    return result


def _result(response: httpx2.Response, body: bytes, redirects: int) -> dict[str, Any]:
    kept = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    result = {"status": response.status_code, "headers": kept, "body": _content(response, body)}
    if redirects:
        result["url"], result["redirects"] = str(response.url), redirects
    if len(body) > MAX_KEPT_BYTES:
        result["truncated"] = True
    return result


def _content(response: httpx2.Response, body: bytes) -> Any:
    """Return a JSON body decoded if it can be stored as JSON, any other body as text."""
    is_json = "json" in response.headers.get("content-type", "")
    if is_json and len(body) <= MAX_KEPT_BYTES and codec.depth(body) <= codec.MAX_DEPTH - 4 and b"\\u0000" not in body:
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return body[:MAX_KEPT_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd") or None


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def _unreachable(where: str, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"{where}: TLS failed: {cause.reason or cause}" + (
                f" ({cause.verify_message})" if isinstance(cause, ssl.SSLCertVerificationError) else ""
            )
        cause = cause.__cause__ or cause.__context__
    return f"cannot connect to {where}: {_describe(error)}"


def _log(work: Work, text: str) -> None:
    work.output.write("system", text.encode() + b"\n")
    work.output.finish("system")


async def _unless_stopped(
    call: Coroutine[Any, Any, dict[str, Any]], work: Work, limit_s: float
) -> dict[str, Any] | None:
    """Return the call's result; None if it timed out or the attempt had to end, and then the call is cancelled."""
    calling, stopped = asyncio.create_task(call), asyncio.create_task(work.stop.wait())
    try:
        await asyncio.wait({calling, stopped}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        return calling.result() if calling.done() else None
    finally:
        stopped.cancel()
        if not calling.done():
            calling.cancel()
            await asyncio.wait({calling})
