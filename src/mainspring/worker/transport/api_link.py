"""The worker's way to the api: HTTP with a worker token, nothing else."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import BinaryIO, TypeVar
from uuid import UUID

import httpx2
import msgspec

from mainspring import wire
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError
from mainspring.domain.job import Definition, JobSpec
from mainspring.worker.transport.http import ANSWER_S, BROKEN, CONNECT_S, Poster, is_direct

T = TypeVar("T")

UPLOAD_S = 120.0
"""For each piece of a file, not for all of it."""


class ApiAway(MainspringError):
    """The api did not answer, or could not: try again later."""

    code = "unavailable"


class SessionEnded(MainspringError):
    """The api has given this session up: what it runs belongs to others now."""

    code = "session_ended"


class Refused(MainspringError):
    """The api will never accept this."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class Address:
    url: str
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {
            "Authorization": f"Bearer {self.token}",
            "Content-Type": "application/json",
            "Mainspring-Protocol": wire.PROTOCOL,
        }


class Given(wire.Polled):  # type: ignore[misc]  # frozen, as its base is
    """An answer to a poll, with what this worker can't make sense of: a newer server may know more kinds."""

    unreadable: dict[str, str] = {}  # noqa: RUF012 - a struct copies it


class _Raw(wire.Response, frozen=True):
    executions: list[wire.Assignment]
    definitions: dict[str, msgspec.Raw]
    cancels: list[UUID]
    preempts: list[wire.Preempt] = []  # noqa: RUF012 - a struct copies it


class Link:
    """One call per message of the worker protocol."""

    def __init__(self, address: Address) -> None:
        self._client = httpx2.AsyncClient(
            base_url=address.url, headers=address.headers, timeout=httpx2.Timeout(CONNECT_S, read=ANSWER_S)
        )
        self._poster = Poster(address.url, address.headers) if is_direct(address.url) else None

    async def close(self) -> None:
        if self._poster is not None:
            self._poster.close()
        await self._client.aclose()

    async def register(self, register: wire.Register) -> wire.Registered:
        return await self._post("/api/v1/worker/sessions", register, wire.Registered)

    async def poll(self, poll: wire.Poll) -> Given:
        raw = await self._post("/api/v1/worker/poll", poll, _Raw)
        readable, unreadable = {}, {}
        for name, text in raw.definitions.items():
            try:
                readable[name] = msgspec.json.decode(text, type=Definition)
            except msgspec.DecodeError as error:
                unreadable[name] = str(error)
        return Given(
            executions=raw.executions,
            definitions=readable,
            cancels=raw.cancels,
            preempts=raw.preempts,
            unreadable=unreadable,
        )

    async def declare(self, jobs: list[JobSpec]) -> wire.DeclareAnswer:
        return await self._post("/api/v1/worker/jobs", wire.Declare(jobs=jobs), wire.DeclareAnswer)

    async def results(self, results: wire.Results) -> wire.Settled:
        return await self._post("/api/v1/worker/results", results, wire.Settled)

    async def save_checkpoints(self, body: wire.SaveCheckpoints) -> None:
        try:
            response = await self._client.post("/api/v1/worker/checkpoints", content=encode(body))
        except httpx2.TransportError as error:
            raise ApiAway(f"the api does not answer: {error!r}") from error
        if response.status_code != 204:
            read_answer(response.status_code, response.content, dict)

    async def read_checkpoints(self, body: wire.ReadCheckpoints) -> wire.Checkpoints:
        return await self._post("/api/v1/worker/checkpoints/read", body, wire.Checkpoints)

    async def upload(self, query: dict[str, str], size: int, pieces: AsyncIterator[bytes]) -> None:
        """One file, piece by piece. First the api is asked whether it may come: a refusal in mid-way may get lost."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        try:
            response = await self._client.post("/api/v1/worker/artifacts", params=query | {"size": str(size)})
            if response.status_code != 204:
                read_answer(response.status_code, response.content, dict)
            response = await self._client.post(
                "/api/v1/worker/artifacts", params=query, content=pieces, headers=headers, timeout=UPLOAD_S
            )
        except httpx2.TransportError as error:
            raise ApiAway(f"the api does not answer: {error!r}") from error
        if response.status_code != 204:
            read_answer(response.status_code, response.content, dict)

    async def download(self, query: dict[str, str], file: BinaryIO) -> None:
        """A file of an earlier execution, piece by piece and whole, or `ApiAway`."""
        digest = hashlib.sha256()
        try:
            async with self._client.stream("GET", "/api/v1/worker/artifacts", params=query, timeout=UPLOAD_S) as found:
                if found.status_code != 200:
                    read_answer(found.status_code, await found.aread(), dict)
                async for piece in found.aiter_bytes():
                    digest.update(piece)
                    await asyncio.to_thread(file.write, piece)
        except httpx2.TransportError as error:
            raise ApiAway(f"the api does not answer: {error!r}") from error
        if found.headers.get("etag") != f'"{digest.hexdigest()}"':
            raise ApiAway("the file was cut off")

    async def goodbye(self, goodbye: wire.Goodbye) -> None:
        await self._post("/api/v1/worker/goodbye", goodbye, dict)

    async def _post(self, path: str, body: wire.Request, answer: type[T]) -> T:
        try:
            if self._poster is not None:
                status, content = await self._poster.post(path, encode(body))
            else:
                response = await self._client.post(path, content=encode(body))
                status, content = response.status_code, response.content
        except BROKEN as error:
            raise ApiAway(f"the api does not answer: {error!r}") from error
        return read_answer(status, content, answer)


def read_answer(status: int, content: bytes, answer: type[T]) -> T:
    if status < 300:
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise ApiAway(f"the api's answer can't be read: {error}") from error
    try:
        problem = msgspec.json.decode(content, type=dict)
    except msgspec.DecodeError:
        problem = {}
    detail = f"{problem.get('detail') or problem.get('title') or 'the api answered'} ({status})"
    if problem.get("code") == "session_ended":
        raise SessionEnded(detail)
    if status >= 500 or status == 429:
        raise ApiAway(detail)
    raise Refused(detail, code=problem.get("code"))
