"""The worker's client for the api: one method per message of the worker protocol."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import BinaryIO, TypeVar
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from mainspring import wire
from mainspring.codec import encode
from mainspring.domain.errors import MainspringError
from mainspring.domain.job import Definition, JobSpec
from mainspring.http_client import HttpClient, HttpError, Response
from mainspring.http_client.route import tls_for
from mainspring.process import machine_user

T = TypeVar("T")

ARTIFACTS = "/api/v1/worker/artifacts"
CHUNK_TIMEOUT_S = 120.0
"""For each chunk of a file, not for the whole file."""
MAX_PROBLEM_BYTES = 64 * 1024
JSON = {"Content-Type": "application/json"}


class ApiUnavailable(MainspringError):
    """The api did not answer, or can't at the moment: try again later."""

    code = "unavailable"


class SessionEnded(MainspringError):
    """The session has ended: other workers may now execute what it held."""

    code = "session_ended"


class Refused(MainspringError):
    """The api will never accept this request."""

    code = "refused"


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """The api's URL, the worker's token and, within a session, the key that proves it."""

    url: str
    token: str = field(repr=False)
    session_key: str = field(default="", repr=False)

    @property
    def headers(self) -> dict[str, str]:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Mainspring-Protocol": wire.PROTOCOL,
        }
        return headers | {wire.SESSION_KEY: self.session_key} if self.session_key else headers


class PollAnswer(wire.Polled):  # type: ignore[misc]  # frozen, as its base is
    """An answer to a poll. `unreadable` has the definitions this worker can't decode: a newer server knows more."""

    unreadable: dict[str, str] = {}  # noqa: RUF012 - a struct copies it


class _RawPollAnswer(wire.Response, frozen=True):
    executions: list[wire.Assignment]
    definitions: dict[str, msgspec.Raw]
    cancels: list[UUID]
    preempts: list[wire.Preempt] = []  # noqa: RUF012 - a struct copies it


class ApiClient:
    """Sends the messages of the worker protocol.

    Every method may raise `ApiUnavailable`, `SessionEnded` or `Refused`.
    """

    def __init__(self, address: ApiAddress) -> None:
        self._http = HttpClient(address.url, address.headers, tls=tls_for(address.url))
        self._session: dict[str, str] = {}  # headers of the session

    async def close(self) -> None:
        self._http.close()

    async def register(self, register: wire.Register) -> wire.Registered:
        """Register; every later message is one of this session. An older api returns no key, and then none is sent."""
        self._session = {wire.WORKER_USER: machine_user()}
        registered = await self._post("/api/v1/worker/sessions", register, wire.Registered)
        self._session = {wire.SESSION_KEY: registered.key} if registered.key else {}
        return registered

    async def poll(self, poll: wire.Poll) -> PollAnswer:
        raw = await self._post("/api/v1/worker/poll", poll, _RawPollAnswer)
        readable, unreadable = {}, {}
        for name, text in raw.definitions.items():
            try:
                readable[name] = msgspec.json.decode(text, type=Definition)
            except msgspec.DecodeError as error:
                unreadable[name] = str(error)
        return PollAnswer(
            executions=raw.executions,
            definitions=readable,
            cancels=raw.cancels,
            preempts=raw.preempts,
            unreadable=unreadable,
        )

    async def state_functions(self, stated: wire.StateFunctions) -> None:
        _expect_no_content(await self._send("/api/v1/worker/functions", stated, repeatable=True))

    async def declare(self, jobs: list[JobSpec]) -> wire.DeclareAnswer:
        return await self._post("/api/v1/worker/jobs", wire.Declare(jobs=jobs), wire.DeclareAnswer)

    async def begin(self, session_id: UUID, job: str) -> wire.Begun:
        """Begin an execution that this session runs on its own."""
        return await self._post("/api/v1/worker/executions", wire.Begin(session_id=session_id, job=job), wire.Begun)

    async def heartbeat(self, heartbeat: wire.Heartbeat) -> wire.Beat:
        return await self._post("/api/v1/worker/heartbeat", heartbeat, wire.Beat, repeatable=True)

    async def results(self, results: wire.Results) -> wire.Settled:
        return await self._post("/api/v1/worker/results", results, wire.Settled, repeatable=True)

    async def save_checkpoints(self, body: wire.SaveCheckpoints) -> None:
        _expect_no_content(await self._send("/api/v1/worker/checkpoints", body, repeatable=True))

    async def read_checkpoints(self, body: wire.ReadCheckpoints) -> wire.Checkpoints:
        return await self._post("/api/v1/worker/checkpoints/read", body, wire.Checkpoints, repeatable=True)

    async def fetch_secrets(self, body: wire.FetchSecrets) -> wire.AttemptSecrets:
        return await self._post("/api/v1/worker/secrets", body, wire.AttemptSecrets, repeatable=True)

    async def upload(self, query: dict[str, str], credential: str, size: int, chunks: AsyncIterator[bytes]) -> None:
        """Upload one file. A first request asks for permission: a refusal in the middle of a body may get lost."""
        headers = self._headers_of(credential)
        try:
            path = f"{ARTIFACTS}?{urlencode(query | {'size': str(size)})}"
            _expect_no_content(await self._http.request("POST", path, headers=headers, repeatable=True))
            async with self._http.stream(
                "POST",
                f"{ARTIFACTS}?{urlencode(query)}",
                chunks,
                size=size,
                headers={"Content-Type": "application/octet-stream"} | headers,
                timeout_s=CHUNK_TIMEOUT_S,
            ) as response:
                if response.status != 204:
                    read_answer(response.status, await response.read(MAX_PROBLEM_BYTES), dict)
        except HttpError as error:
            raise _no_answer(error) from error

    async def download(self, query: dict[str, str], credential: str, file: BinaryIO) -> None:
        """Download a file of an earlier execution; `ApiUnavailable` if it arrives incomplete."""
        digest = hashlib.sha256()
        path = f"{ARTIFACTS}?{urlencode(query)}"
        try:
            headers = self._headers_of(credential)
            async with self._http.stream("GET", path, headers=headers, timeout_s=CHUNK_TIMEOUT_S) as response:
                if response.status != 200:
                    read_answer(response.status, await response.read(MAX_PROBLEM_BYTES), dict)
                async for chunk in response.chunks():
                    digest.update(chunk)
                    await asyncio.to_thread(file.write, chunk)
        except HttpError as error:
            raise _no_answer(error) from error
        if response.header("etag") != f'"{digest.hexdigest()}"':
            raise ApiUnavailable("the file arrived incomplete")

    async def end_session(self, session_id: UUID, *, lost: bool = False) -> None:
        """End a session; `lost`: its attempts did not end, and may be rescued."""
        await self._post("/api/v1/worker/goodbye", wire.Goodbye(session_id=session_id, lost=lost), dict)

    async def _post(self, path: str, body: wire.Request, answer: type[T], *, repeatable: bool = False) -> T:
        response = await self._send(path, body, repeatable=repeatable)
        return read_answer(response.status, response.body, answer)

    async def _send(self, path: str, body: wire.Request, *, repeatable: bool) -> Response:
        try:
            headers = JSON | self._session
            return await self._http.request("POST", path, encode(body), headers=headers, repeatable=repeatable)
        except HttpError as error:
            raise _no_answer(error) from error

    def _headers_of(self, credential: str) -> dict[str, str]:
        return self._session | {wire.CREDENTIAL: credential} if credential else self._session


def read_answer(status: int, content: bytes, answer: type[T]) -> T:
    """Decode an answer, or raise the error that it describes."""
    if status < 300:
        try:
            return msgspec.json.decode(content, type=answer)
        except msgspec.DecodeError as error:
            raise ApiUnavailable(f"cannot decode the api's answer: {error}") from error
    try:
        problem = msgspec.json.decode(content, type=dict)
    except msgspec.DecodeError:
        problem = {}
    raise error_of(status, problem.get("code"), problem.get("detail") or problem.get("title") or "the api answered")


def error_of(status: int, code: str | None, text: str) -> MainspringError:
    """Return the error that a status and a problem code stand for."""
    detail = f"{text} ({status})"
    if code == "session_ended":
        return SessionEnded(detail)
    if status >= 500 or status == 429:
        return ApiUnavailable(detail)
    return Refused(detail, code=code)


def _expect_no_content(response: Response) -> None:
    if response.status != 204:
        read_answer(response.status, response.body, dict)


def _no_answer(error: Exception) -> ApiUnavailable:
    return ApiUnavailable(f"the api does not answer: {error!r}")
