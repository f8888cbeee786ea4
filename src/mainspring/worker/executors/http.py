"""Calls URLs. The response is the result: status, some headers, and the body, decoded if it is JSON."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Coroutine
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import urldefrag, urljoin

import msgspec

from mainspring import __version__, codec, outbound
from mainspring.clock import Clock, SystemClock
from mainspring.codec import encode
from mainspring.domain.address import read_networks
from mainspring.domain.duration import parse_duration
from mainspring.domain.task import HttpTask, expects, host_problem, url_problem
from mainspring.domain.template import fill, render
from mainspring.http_client import ConnectFailed, Head, HttpError, InvalidRequest, StreamedResponse
from mainspring.http_client.decoding import InvalidContent, decoded
from mainspring.http_client.request import header_lines, split_url
from mainspring.worker.executors import Done, Host, Work

KEPT_HEADERS = ("content-type", "content-length", "date", "etag", "last-modified", "location", "retry-after", "server")
REDIRECTS = (301, 302, 303, 307, 308)
LONGEST_SILENCE_S = 7 * 86400.0
"""The attempt's own timeout ends a call."""
MAX_KEPT_BYTES = 64_000
"""Of a response body: results are stored as long as their executions are."""


class CallFailed(Exception):
    """The call failed; `retry` is false if a retry would fail the same way."""

    def __init__(self, message: str, *, retry: bool = True, result: Any = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.result = result


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a call."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None

    @property
    def server(self) -> str:
        origin, _ = split_url(self.url)
        return f"{origin.name}:{origin.port}"


class HttpExecutor:
    """The `http` kind."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._outbound = outbound.Outbound(())

    async def start(self, host: Host) -> None:
        self._outbound = outbound.Outbound(read_networks(host.allow_net))  # fails at startup if one is invalid

    async def stop(self) -> None:
        self._outbound.close()

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
            response, body = await self._send(request, task)
            took_ms = round((self._clock.monotonic() - started) * 1000)
            _log(work, f"{_status(response)} · {len(body):,} bytes · {took_ms} ms")
            location = response.header("location")
            if response.status not in REDIRECTS or not location or not task.follow_redirects:
                return _check_status(task, response, body, request.url, redirects)
            redirects += 1
            if redirects > task.follow_redirects:
                raise CallFailed(
                    f"more than {task.follow_redirects} redirects",
                    result=_result(response, body, request.url, redirects),
                )
            request = _redirect(request, response.status, location)

    def _request(self, task: HttpTask, work: Work) -> Request:
        values = work.values()
        try:
            url = render(task.url, values)
            headers = {name.lower(): render(value, values) for name, value in task.headers.items()}
            body = fill(task.body, values)
        except KeyError as error:
            raise CallFailed(f"the parameter {error} was not given", retry=False) from None
        if problem := url_problem(url) or host_problem(task.url, values):
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
        headers.setdefault("accept", "*/*")
        headers.setdefault("traceparent", work.traceparent)
        try:
            split_url(url)
            header_lines(headers)
        except InvalidRequest as error:
            raise CallFailed(str(error), retry=False) from None
        return Request(task.method, urldefrag(url).url, headers | _identity(work), content)

    async def _send(self, request: Request, task: HttpTask) -> tuple[Head, bytes]:
        where = request.server
        received = False
        try:
            async with self._outbound.stream(
                request.method, request.url, request.body, headers=request.headers, timeout_s=LONGEST_SILENCE_S
            ) as response:
                received = True
                return response, await _read(response, task)
        except outbound.RefusedAddress as error:
            raise CallFailed(error.message, retry=False) from None
        except outbound.UnknownHost as error:
            raise CallFailed(error.message) from None
        except InvalidRequest as error:
            raise CallFailed(str(error), retry=False) from None
        except ConnectFailed as error:
            raise CallFailed(_unreachable(where, error)) from None
        except HttpError as error:
            broke = "the connection broke while reading the response" if received else f"{where} closed the connection"
            raise CallFailed(f"{broke}: {error}") from None


def _identity(work: Work) -> dict[str, str]:
    """Return headers that identify the execution; receivers detect repeated calls by the idempotency key."""
    return {
        "idempotency-key": str(work.assignment.execution_id),
        "mainspring-execution-id": str(work.assignment.execution_id),
        "mainspring-job": work.definition.name,
        "mainspring-attempt": str(work.assignment.attempt),
        "mainspring-fire-at": work.fire_at,
    }


def _redirect(request: Request, status: int, location: str) -> Request:
    """Return the next request of a redirect chain; another origin does not get the task's own headers."""
    url = urldefrag(urljoin(request.url, location)).url
    if problem := url_problem(url):
        raise CallFailed(f"redirected: {problem}", retry=False)
    method, body, headers = request.method, request.body, dict(request.headers)
    if (status == 303 and method != "HEAD") or (status in (301, 302) and method == "POST"):
        method, body = "GET", None
        headers.pop("content-type", None)
    try:
        moved = split_url(request.url)[0] != split_url(url)[0]
    except InvalidRequest as error:
        raise CallFailed(f"redirected: {error}", retry=False) from None
    if moved:
        kept = ("user-agent", "accept", "content-type", "idempotency-key")
        headers = {n: value for n, value in headers.items() if n in kept or n.startswith("mainspring-")}
    return Request(method, url, headers, body)


async def _read(response: StreamedResponse, task: HttpTask) -> bytes:
    """Read the body, up to `max_bytes`."""
    parts, size = [], 0
    try:
        async for part in decoded(response):
            size += len(part)
            if size > task.max_bytes:
                raise CallFailed(f"the response has more than {task.max_bytes:,} bytes (max_bytes)", retry=False)
            parts.append(part)
    except InvalidContent as error:
        raise CallFailed(f"cannot decode the response: {error}") from None
    return b"".join(parts)


def _status(response: Head) -> str:
    try:
        reason = response.reason or HTTPStatus(response.status).phrase
    except ValueError:
        reason = ""
    return f"{response.status} {reason}".strip()


def _check_status(task: HttpTask, response: Head, body: bytes, url: str, redirects: int) -> dict[str, Any]:
    result = _result(response, body, url, redirects)
    if not expects(task, response.status):
        expected = ", ".join(str(status) for status in task.expect)
        raise CallFailed(f"the response status was {_status(response)}, not {expected}", result=result)
    return result


def _result(response: Head, body: bytes, url: str, redirects: int) -> dict[str, Any]:
    kept = {name: value for name in KEPT_HEADERS if (value := response.header(name))}
    result = {"status": response.status, "headers": kept, "body": _content(response, body)}
    if redirects:
        result["url"], result["redirects"] = url, redirects
    if len(body) > MAX_KEPT_BYTES:
        result["truncated"] = True
    return result


def _content(response: Head, body: bytes) -> Any:
    """Return a JSON body decoded if it can be stored as JSON, any other body as text."""
    is_json = "json" in response.header("content-type")
    if is_json and len(body) <= MAX_KEPT_BYTES and codec.depth(body) <= codec.MAX_DEPTH - 4 and b"\\u0000" not in body:
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return body[:MAX_KEPT_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd") or None


def _unreachable(where: str, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"{where}: TLS failed: {cause.reason or cause}" + (
                f" ({cause.verify_message})" if isinstance(cause, ssl.SSLCertVerificationError) else ""
            )
        cause = cause.__cause__ or cause.__context__
    return str(error)


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
