"""The container engine: Docker's API over its Unix socket, as Docker and Podman speak it."""

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

ANSWER_S = 30.0
MOST_FRAME = 16_000_000
MOST_ANSWER = 32_000_000
_STREAMS: dict[int, wire.Stream] = {1: "stdout", 2: "stderr"}


class EngineAway(MainspringError):
    """The engine does not answer."""

    code = "engine_away"


class EngineRefused(MainspringError):
    """The engine answered no."""

    code = "engine_refused"

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def find_engine(given: str | None) -> str | None:
    """The socket to talk to: as given, or with `auto` the first there is. None: no containers here."""
    if given is None:
        return None
    if given != "auto":
        path = given.removeprefix("unix://")
        if "://" in path:
            raise Invalid(f"--engine {given}: only a Unix socket can be used, such as unix:///run/podman/podman.sock")
        return path
    places = [
        os.environ.get("DOCKER_HOST", "").removeprefix("unix://"),
        "/run/podman/podman.sock",
        f"{os.environ.get('XDG_RUNTIME_DIR', '/run/user/0')}/podman/podman.sock",
        "/var/run/docker.sock",
    ]
    for place in places:
        if place.startswith("/") and os.path.exists(place):
            return place
    raise Invalid("--engine auto: no engine is here; start one, or name its socket with --engine unix:///PATH")


class Engine:
    """One engine. Every method raises `EngineAway` or `EngineRefused`."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def ping(self) -> None:
        status, _ = await self._call("GET", "/_ping", timeout_s=ANSWER_S)
        if status != 200:
            raise EngineRefused(f"status {status}", status)

    async def has_image(self, image: str) -> bool:
        try:
            await self._ask("GET", f"/images/{quote(image, safe='/:@')}/json")
        except EngineRefused as error:
            if error.status == 404:
                return False
            raise
        return True

    async def pull(self, image: str) -> None:
        """Until it is there. What went wrong on the way is told in the stream, after a status that said all is well."""
        name, tag = _reference(image)
        status, content = await self._call(
            "POST", "/images/create", {"fromImage": name} | ({"tag": tag} if tag else {})
        )
        for line in content.splitlines():
            said = _json(line) or {}
            if trouble := said.get("error") or (said.get("message") if status >= 400 else None):
                raise EngineRefused(str(trouble), max(status, 400))
        if status >= 400:
            raise EngineRefused(f"status {status}", status)
        if not await self.has_image(image):
            raise EngineAway(_away(self.path, EOFError("it did not say that all of the image is there")))

    async def create(self, name: str, settings: Mapping[str, Any]) -> str:
        made = await self._ask("POST", "/containers/create", {"name": name}, body=settings)
        return str(made["Id"])

    async def start(self, container: str) -> None:
        await self._ask("POST", f"/containers/{container}/start")

    async def wait(self, container: str) -> int:
        """The exit code, when it has ended."""
        said = await self._ask("POST", f"/containers/{container}/wait", timeout_s=None)
        return int(said["StatusCode"])

    async def state(self, container: str) -> dict[str, Any]:
        found = await self._ask("GET", f"/containers/{container}/json")
        state: dict[str, Any] = found["State"]
        return state

    async def signal(self, container: str, name: str) -> None:
        """Whoever has ended already needs none."""
        try:
            await self._ask("POST", f"/containers/{container}/kill", {"signal": name})
        except EngineRefused as error:
            if error.status not in (404, 409, 500):  # Podman says 500 of one that does not run
                raise

    async def remove(self, container: str) -> None:
        """Ends it if it runs. One that is not there is removed already."""
        try:
            await self._ask("DELETE", f"/containers/{container}", {"force": "1", "v": "1"})
        except EngineRefused as error:
            if error.status not in (404, 409):  # 409: its removal is under way
                raise

    async def labelled(self, *labels: str) -> list[dict[str, Any]]:
        """Containers, running or not, that bear all these labels."""
        wanted = {"all": "1", "filters": json.dumps({"label": list(labels)})}
        found: list[dict[str, Any]] = await self._ask("GET", "/containers/json", wanted)
        return found

    @asynccontextmanager
    async def attached(self, container: str) -> AsyncIterator[AsyncIterator[tuple[wire.Stream, bytes]]]:
        """What it writes from now on, straight from its pipes: no log file grows, a slow reader slows the writer."""
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
                answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), ANSWER_S)
            except (OSError, EOFError, TimeoutError) as error:
                raise EngineAway(_away(self.path, error)) from error
            if (status := int(answer.split(None, 2)[1])) not in (101, 200):
                raise EngineRefused(await _refusal(reader, answer), status)
            yield _frames(reader)
        finally:
            writer.close()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        timeout_s: float | None = ANSWER_S,
    ) -> Any:
        status, content = await self._call(method, path, query, body=body, timeout_s=timeout_s)
        said = _json(content)
        if status >= 400:
            message = said.get("message") or said.get("cause") if isinstance(said, dict) else None
            raise EngineRefused(str(message or f"status {status}"), status)
        if said is None and status != 204:
            raise EngineAway(_away(self.path, EOFError("its answer was cut short")))
        return said

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        body: Any = None,
        timeout_s: float | None = None,
    ) -> tuple[int, bytes]:
        """One question, one answer, one connection. HTTP/1.0 has the answer end where the connection does."""
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
                    if len(content) > MOST_ANSWER:
                        raise EngineRefused(f"its answer has more than {MOST_ANSWER:,} bytes", 500)
            return int(answer.split(None, 2)[1]), bytes(content)
        except (OSError, EOFError, TimeoutError) as error:
            raise EngineAway(_away(self.path, error)) from error
        finally:
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            return await asyncio.open_unix_connection(self.path, limit=256_000)
        except OSError as error:
            raise EngineAway(_away(self.path, error)) from error


async def _refusal(reader: asyncio.StreamReader, head: bytes) -> str:
    """Why an attachment was refused: Podman looks for the program here already."""
    length = re.search(rb"content-length:\s*(\d+)", head, re.IGNORECASE)
    try:
        said = _json(await asyncio.wait_for(reader.readexactly(int(length[1])), ANSWER_S)) if length else None
    except (OSError, EOFError, TimeoutError):
        said = None
    said = said or {}
    return str(said.get("message") or said.get("cause") or "its output can't be had")


async def _frames(reader: asyncio.StreamReader) -> AsyncIterator[tuple[wire.Stream, bytes]]:
    """Each piece is headed by eight bytes: which stream, and how long."""
    try:
        while True:
            head = await reader.readexactly(8)
            size = int.from_bytes(head[4:], "big")
            if head[0] not in (0, *_STREAMS) or size > MOST_FRAME:
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
    """Name and tag; without a tag an engine would fetch them all."""
    if "@" in image:
        return image, ""
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")


def _away(path: str, error: BaseException) -> str:
    return f"the container engine at {path} does not answer ({str(error) or type(error).__name__})"


def _json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except ValueError:
        return None
