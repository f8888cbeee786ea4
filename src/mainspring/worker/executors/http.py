"""Calls URLs. The answer is the result: status, a few headers, and the body as JSON if it is that."""

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
KEPT_BYTES = 64_000
"""Of a body; the whole of it would sit in the history for as long as its row does."""


class Failure(Exception):
    """The call did not end as it should; `retry` says whether another try could."""

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
        read_networks(host.allow_net)  # a mistake in it is told at the start

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
            done = await _unless_ended(self._call(task, work), work, limit_s)
        except Failure as failure:
            return Done("failed", error=str(failure), result=failure.result, retry=failure.retry)
        if done is not None:
            return Done("succeeded", result=done)
        if work.stop_outcome is not None:
            return Done(work.stop_outcome, error=work.stop_outcome)
        return Done("timed_out", error=f"timed out after {limit_s:g} s")

    async def _call(self, task: HttpTask, work: Work) -> dict[str, Any]:
        request = self._request(task, work)
        redirects = 0
        while True:
            started = self._clock.monotonic()
            _say(work, f"{request.method} {request.url}")
            response = await self._send(request, task)
            try:
                body = await _read(response, task)
            finally:
                await response.aclose()
            took_ms = round((self._clock.monotonic() - started) * 1000)
            _say(work, f"{response.status_code} {response.reason_phrase} · {len(body):,} bytes · {took_ms} ms")
            if response.next_request is None or not task.follow_redirects:
                return _judged(task, response, body, redirects)
            redirects += 1
            if redirects > task.follow_redirects:
                raise Failure(f"more than {task.follow_redirects} redirects", result=_result(response, body, redirects))
            request = _onward(request, response.next_request)

    def _request(self, task: HttpTask, work: Work) -> httpx2.Request:
        values = work.values()
        try:
            url = render(task.url, values)
            headers = {name.lower(): render(value, values) for name, value in task.headers.items()}
            body = fill(task.body, values)
        except KeyError as error:
            raise Failure(f"the parameter {error} was not given", retry=False) from None
        if wrong := url_problem(url):
            raise Failure(wrong, retry=False)
        if any(c in value for value in headers.values() for c in "\r\n\0"):
            raise Failure("a header became more than one line when its templates were filled in", retry=False)
        content = None if body is None else body.encode() if isinstance(body, str) else encode(body)
        if content is not None:
            kind = "text/plain; charset=utf-8" if isinstance(body, str) else "application/json"
            headers.setdefault("content-type", kind)
        # A compressed answer could be a thousand times what it says on the way.
        headers.setdefault("accept-encoding", "identity")
        headers.setdefault("user-agent", f"mainspring/{__version__}")
        try:
            return self._opened().build_request(task.method, url, headers=headers | _identity(work), content=content)
        except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
            raise Failure(f"{url!r} can't be called: {error}", retry=False) from None

    def _opened(self) -> httpx2.AsyncClient:
        # On the first call: loading certificates takes a tenth of a second that most workers need not spend.
        if self._client is None:
            allowed = () if self._host is None else read_networks(self._host.allow_net)
            self._client = outbound.client(allowed)
        return self._client

    async def _send(self, request: httpx2.Request, task: HttpTask) -> httpx2.Response:
        where = f"{request.url.host}:{request.url.port or (443 if request.url.scheme == 'https' else 80)}"
        try:
            return await self._opened().send(request, stream=True)
        except outbound.RefusedAddress as error:
            raise Failure(error.message, retry=False) from None
        except outbound.UnknownHost as error:
            raise Failure(error.message) from None
        except httpx2.UnsupportedProtocol:
            raise Failure(f"{str(request.url)!r} can't be called: only http and https can", retry=False) from None
        except httpx2.ConnectError as error:
            raise Failure(_unreachable(where, error)) from None
        except httpx2.TransportError as error:
            raise Failure(f"{where} broke the connection off: {_words(error)}") from None


def _identity(work: Work) -> dict[str, str]:
    """Who calls, and the key by which a receiver knows a repetition."""
    return {
        "idempotency-key": str(work.assignment.execution_id),
        "mainspring-execution-id": str(work.assignment.execution_id),
        "mainspring-job": work.definition.name,
        "mainspring-attempt": str(work.assignment.attempt),
        "mainspring-fire-at": work.fire_at,
    }


def _onward(request: httpx2.Request, to: httpx2.Request) -> httpx2.Request:
    """The next request of a chain; another origin gets none of the headers that were meant for the first."""
    if wrong := url_problem(str(to.url)):
        raise Failure(f"redirected: {wrong}", retry=False)
    before, after = request.url, to.url
    if (before.scheme, before.host, before.port) != (after.scheme, after.host, after.port):
        kept = ("host", "user-agent", "accept", "content-type", "content-length", "idempotency-key")
        for name in [name for name in to.headers if name not in kept and not name.startswith("mainspring-")]:
            del to.headers[name]
    return to


async def _read(response: httpx2.Response, task: HttpTask) -> bytes:
    """The body, and never more of it than may be kept in memory."""
    parts, size = [], 0
    try:
        async for part in response.aiter_bytes():
            size += len(part)
            if size > task.max_bytes:
                raise Failure(f"the answer has more than {task.max_bytes:,} bytes (max_bytes)", retry=False)
            parts.append(part)
    except httpx2.DecodingError as error:
        raise Failure(f"the answer can't be read: {error}") from None
    except httpx2.TransportError as error:
        raise Failure(f"the connection broke while reading the answer: {_words(error)}") from None
    return b"".join(parts)


def _judged(task: HttpTask, response: httpx2.Response, body: bytes, redirects: int) -> dict[str, Any]:
    result = _result(response, body, redirects)
    if not expects(task, response.status_code):
        wanted = ", ".join(str(status) for status in task.expect)
        raise Failure(f"the answer was {response.status_code} {response.reason_phrase}, not {wanted}", result=result)
    return result


def _result(response: httpx2.Response, body: bytes, redirects: int) -> dict[str, Any]:
    kept = {name: response.headers[name] for name in KEPT_HEADERS if name in response.headers}
    result = {"status": response.status_code, "headers": kept, "body": _content(response, body)}
    if redirects:
        result["url"], result["redirects"] = str(response.url), redirects
    if len(body) > KEPT_BYTES:
        result["truncated"] = True
    return result


def _content(response: httpx2.Response, body: bytes) -> Any:
    """JSON as JSON where it can be stored as such, everything else as text."""
    is_json = "json" in response.headers.get("content-type", "")
    if is_json and len(body) <= KEPT_BYTES and codec.depth(body) <= codec.MAX_DEPTH - 4 and b"\\u0000" not in body:
        try:
            return msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            pass
    return body[:KEPT_BYTES].decode("utf-8", "replace").replace("\0", "\ufffd") or None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def _unreachable(where: str, error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"{where}: TLS failed: {cause.reason or cause}" + (
                f" ({cause.verify_message})" if isinstance(cause, ssl.SSLCertVerificationError) else ""
            )
        cause = cause.__cause__ or cause.__context__
    return f"{where} can't be reached: {_words(error)}"


def _say(work: Work, text: str) -> None:
    work.output.write("system", text.encode() + b"\n")
    work.output.finish("system")


async def _unless_ended(call: Coroutine[Any, Any, dict[str, Any]], work: Work, limit_s: float) -> dict[str, Any] | None:
    """The call's result; None if its time was over or the attempt had to end, and then the call is broken off."""
    calling, stopped = asyncio.create_task(call), asyncio.create_task(work.stop.wait())
    try:
        await asyncio.wait({calling, stopped}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        return calling.result() if calling.done() else None
    finally:
        stopped.cancel()
        if not calling.done():
            calling.cancel()
            await asyncio.wait({calling})
