"""A client for container engines: the Docker API over a Unix socket, as Docker and Podman provide it."""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

from mainspring import wire
from mainspring.domain.errors import Invalid, MainspringError

ANSWER_TIMEOUT_S = 30.0
MAX_FRAME_BYTES = 16_000_000
MAX_ANSWER_BYTES = 32_000_000
_STREAMS: dict[int, wire.Stream] = {1: "stdout", 2: "stderr"}


class EngineUnavailable(MainspringError):
    """The engine does not answer."""

    code = "engine_away"


class EngineRefused(MainspringError):
    """The engine refused a request."""

    code = "engine_refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def find_engine(given: str | None) -> str | None:
    """Return the socket of the engine: as given, or with `auto` the first one that exists. None stays None."""
    if given is None:
        return None
    if given != "auto":
        path = given.removeprefix("unix://")
        if "://" in path:
            raise Invalid(f"--engine {given}: only Unix sockets are supported, such as unix:///run/podman/podman.sock")
        return path
    candidates = [
        os.environ.get("DOCKER_HOST", "").removeprefix("unix://"),
        "/run/podman/podman.sock",
        f"{os.environ.get('XDG_RUNTIME_DIR', '/run/user/0')}/podman/podman.sock",
        "/var/run/docker.sock",
    ]
    for path in candidates:
        if path.startswith("/") and os.path.exists(path):
            return path
    raise Invalid("--engine auto: no engine found; start one, or name its socket with --engine unix:///PATH")


class Engine:
    """One engine. Every method may raise `EngineUnavailable` or `EngineRefused`."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def ping(self) -> None:
        status, _ = await self._call("GET", "/_ping", timeout_s=ANSWER_TIMEOUT_S)
        if status != 200:
            raise EngineRefused(f"status {status}", status)

    async def has_image(self, image: str) -> bool:
        try:
            await self._request("GET", f"/images/{quote(image, safe='/:@')}/json")
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise
        return True

    async def pull(self, image: str) -> None:
        """Pull an image. Errors arrive in the stream, after a status of 200."""
        name, tag = _reference(image)
        status, content = await self._call(
            "POST", "/images/create", {"fromImage": name} | ({"tag": tag} if tag else {})
        )
        for line in content.splitlines():
            event = _json(line) or {}
            if problem := event.get("error") or (event.get("message") if status >= 400 else None):
                raise EngineRefused(str(problem), max(status, 400))
        if status >= 400:
            raise EngineRefused(f"status {status}", status)
        if not await self.has_image(image):
            raise _unavailable(self.path, EOFError("it closed the connection during the pull"))

    async def create(self, name: str, settings: Mapping[str, Any]) -> str:
        created = await self._request("POST", "/containers/create", {"name": name}, body=settings)
        return str(created["Id"])

    async def start(self, container: str) -> None:
        await self._request("POST", f"/containers/{container}/start")

    async def wait(self, container: str) -> int:
        """Wait until the container has ended and return its exit code."""
        answer = await self._request("POST", f"/containers/{container}/wait", timeout_s=None)
        return int(answer["StatusCode"])

    async def state(self, container: str) -> dict[str, Any]:
        found = await self._request("GET", f"/containers/{container}/json")
        state: dict[str, Any] = found["State"]
        return state

    async def signal(self, container: str, name: str) -> None:
        """Send a signal; a container that has ended is ignored."""
        try:
            await self._request("POST", f"/containers/{container}/kill", {"signal": name})
        except EngineRefused as error:
            if error.status not in (404, 409, 500):  # Podman answers 500 if it is not running
                raise

    async def remove(self, container: str) -> None:
        """Remove a container, running or not; one that does not exist is ignored."""
        try:
            await self._request("DELETE", f"/containers/{container}", {"force": "1", "v": "1"})
        except EngineRefused as error:
            if error.status not in (404, 409):  # 409: it is being removed
                raise

    async def labelled(self, *labels: str) -> list[dict[str, Any]]:
        """Return the containers, running or not, with all these labels."""
        query = {"all": "1", "filters": json.dumps({"label": list(labels)})}
        found: list[dict[str, Any]] = await self._request("GET", "/containers/json", query)
        return found

    @asynccontextmanager
    async def attached(self, container: str) -> AsyncIterator[AsyncIterator[tuple[wire.Stream, bytes]]]:
        """Read its output from now on, directly from its pipes: no log file grows, and a slow reader slows it down."""
        reader, writer = await self._connect()
        try:
            path = f"/containers/{container}/attach?stream=1&stdout=1&stderr=1"
            lines = [
                f"POST {path} HTTP/1.1",
                "Host: engine",
                "Connection: Upgrade",
                "Upgrade: tcp",
                "Content-Length: 0",
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode())
            try:
                answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ANSWER_TIMEOUT_S)
            except (OSError, EOFError, TimeoutError) as error:
                raise _unavailable(self.path, error) from error
            if (status := int(answer.split(None, 2)[1])) not in (101, 200):
                raise EngineRefused(await _attach_error(reader, answer), status)
            yield _frames(reader)
        finally:
            writer.close()

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        timeout_s: float | None = ANSWER_TIMEOUT_S,
    ) -> Any:
        status, content = await self._call(method, path, query, body=body, timeout_s=timeout_s)
        answer = _json(content)
        if status >= 400:
            message = answer.get("message") or answer.get("cause") if isinstance(answer, dict) else None
            raise EngineRefused(str(message or f"status {status}"), status)
        if answer is None and status != 204:
            raise _unavailable(self.path, EOFError("its answer was cut short"))
        return answer

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        timeout_s: float | None = None,
    ) -> tuple[int, bytes]:
        """Send one request on its own connection. With HTTP/1.0 the answer ends where the connection does."""
        data = b"" if body is None else json.dumps(body).encode()
        target = f"{path}?{urlencode(query)}" if query else path
        head = f"{method} {target} HTTP/1.0\r\nHost: engine\r\nContent-Type: application/json\r\n"
        reader, writer = await self._connect()
        try:
            writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
            async with asyncio.timeout(timeout_s):
                answer = await reader.readuntil(b"\r\n\r\n")
                content = bytearray()
                while piece := await reader.read(65_536):
                    content += piece
                    if len(content) > MAX_ANSWER_BYTES:
                        raise EngineRefused(f"the answer has more than {MAX_ANSWER_BYTES:,} bytes", 500)
            return int(answer.split(None, 2)[1]), bytes(content)
        except (OSError, EOFError, TimeoutError) as error:
            raise _unavailable(self.path, error) from error
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_unix_connection(self.path, limit=256_000)
        except OSError as error:
            raise _unavailable(self.path, error) from error


async def _attach_error(reader: asyncio.StreamReader, head: bytes) -> str:
    """Return why attaching was refused: Podman already looks for the program here."""
    length = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
    try:
        body = await asyncio.wait_for(reader.readexactly(int(length[1])), ANSWER_TIMEOUT_S) if length else b""
    except (OSError, EOFError, TimeoutError):
        body = b""
    answer = _json(body) or {}
    return str(answer.get("message") or answer.get("cause") or "cannot attach to its output")


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[wire.Stream, bytes]]:
    """Split the stream into frames. Each has a header of eight bytes: the stream and the length."""
    try:
        while True:
            head = await reader.readexactly(8)
            size = int.from_bytes(head[4:], "big")
            if head[0] not in (0, *_STREAMS) or size > MAX_FRAME_BYTES:
                return
            while size:
                data = await reader.read(min(size, 65_536))
                if not data:
                    return
                size -= len(data)
                yield _STREAMS.get(head[0], "stdout"), data
    except (asyncio.IncompleteReadError, OSError):
        return


def _reference(image: str) -> tuple[str, str]:
    """Return name and tag; without a tag an engine would pull all of them."""
    if "@" in image:
        return image, ""
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")


def _unavailable(path: str, error: BaseException) -> EngineUnavailable:
    cause = str(error) or type(error).__name__
    return EngineUnavailable(f"the container engine at {path} does not answer ({cause})")


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
