"""Artifacts: receive files from attempts in chunks, keep them until they expire, serve them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from uuid import UUID, uuid4

from mainspring import wire
from mainspring.domain.artifact import MOST_FILES, name_problem
from mainspring.domain.errors import Conflict, NotFound, TooLarge, invalid
from mainspring.ports import ArtifactStore
from mainspring.service import Loops, Service
from mainspring.store import artifacts
from mainspring.store.db import Database

PRUNE_INTERVAL_S = 600.0
PRUNE_BATCH = 500
SEARCHED_SUCCESSES = 20
"""An artifact of a job is searched in this many of its latest successes."""


@dataclass(frozen=True, slots=True)
class ArtifactSender:
    """The attempt that sends or reads an artifact, and the session that claims to run it."""

    session_id: UUID
    execution_id: UUID
    attempt: int


class Artifacts(Service):
    """The artifacts of all executions. As a service, it removes expired ones."""

    def __init__(self, database: Database, store: ArtifactStore, *, most_bytes: int, kept_s: float) -> None:
        self._database = database
        self._store = store
        self._most_bytes = most_bytes
        self._kept_s = kept_s
        self._loops = Loops("artifacts")

    async def check(self, sender: ArtifactSender, name: str, size: int | None) -> None:
        """Refuse an artifact by its name, declared size and sender, before its content arrives."""
        if (wrong := name_problem(name)) is not None:
            raise invalid("/name", wrong, hint="a relative path such as report/2026.csv")
        if size is not None and size > self._most_bytes:
            raise self._too_large(name)
        await self._require_held(sender)

    async def receive(
        self,
        sender: ArtifactSender,
        name: str,
        pieces: AsyncIterator[bytes],
        *,
        content_type: str,
        declared: int | None,
    ) -> None:
        """Store an artifact; nothing of one that is too large, cut off, or of an attempt the sender does not run."""
        await self.check(sender, name, declared)
        key, counted = uuid4(), Counted(pieces, self._most_bytes)
        try:
            await self._store.put(key, aiter(counted))
        except Overflow:
            raise self._too_large(name) from None
        if declared is not None and counted.bytes != declared:
            await self._store.delete(key)
            raise invalid("/name", f"{name!r} was cut off: received {counted.bytes:,} of {declared:,} bytes")
        earlier = await self._insert(sender, name, key, counted, content_type)
        if earlier is not None:
            await self._store.delete(earlier)

    async def listed(self, execution_id: UUID, *, tenant: int) -> list[wire.Artifact]:
        return [_as_wire(found) for found in await self._rows(execution_id, tenant=tenant)]

    async def open(self, execution_id: UUID, name: str, *, tenant: int) -> tuple[wire.Artifact, AsyncIterator[bytes]]:
        """An artifact with its content."""
        for found in await self._rows(execution_id, tenant=tenant):
            if found.name == name:
                return _as_wire(found), await self._content(found)
        raise NotFound(f"the execution has no artifact {name!r}")

    async def open_for(
        self, sender: ArtifactSender, name: str, *, source: UUID | None, step: int | None, job: str | None
    ) -> tuple[wire.Artifact, AsyncIterator[bytes]]:
        """An artifact of another execution of the same tenant, for a running attempt."""
        async with self._database.connection() as connection:
            held, found = await artifacts.find_artifact_in(
                connection,
                execution_id=sender.execution_id,
                attempt=sender.attempt,
                session_id=sender.session_id,
                name=name,
                source=source,
                step=step,
                job=job,
                newest=SEARCHED_SUCCESSES,
            )
        if not held:
            raise _not_held()
        if found is None:
            whose = f"none of the last {SEARCHED_SUCCESSES} successes of {job}" if job is not None else "it"
            raise NotFound(f"{whose} left an artifact {name!r}, or it has expired")
        return _as_wire(found), await self._content(found)

    # The life of the service ---------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loops.forever("prune", self._prune)

    async def stop(self) -> None:
        await self._loops.stop()

    async def prune(self) -> int:
        """Remove expired artifacts; content first, so that an interruption leaves no orphaned content."""
        async with self._database.connection() as connection:
            keys = await artifacts.expired_artifacts(connection, limit=PRUNE_BATCH)
        for key in keys:
            await self._store.delete(key)
        if keys:
            async with self._database.connection() as connection:
                await artifacts.delete_artifacts(connection, keys=keys)
        return len(keys)

    async def _prune(self) -> None:
        while await self.prune() == PRUNE_BATCH:
            pass
        await self._store.sweep()
        await asyncio.sleep(PRUNE_INTERVAL_S)

    # Single steps --------------------------------------------------------------------------------------------

    async def _require_held(self, sender: ArtifactSender) -> None:
        async with self._database.connection() as connection:
            held = await artifacts.holds_attempt(
                connection, execution_id=sender.execution_id, attempt=sender.attempt, session_id=sender.session_id
            )
        if not held:
            raise _not_held()

    async def _insert(
        self, sender: ArtifactSender, name: str, key: UUID, counted: Counted, content_type: str
    ) -> UUID | None:
        """Insert the row; return the key of the artifact it replaces."""
        try:
            async with self._database.transaction() as connection:
                done = await artifacts.insert_artifact(
                    connection,
                    execution_id=sender.execution_id,
                    attempt=sender.attempt,
                    session_id=sender.session_id,
                    name=name,
                    key=key,
                    size=counted.bytes,
                    sha256=counted.digest.digest(),
                    content_type=content_type,
                    kept_s=self._kept_s,
                    most_files=MOST_FILES,
                    most_bytes=self._most_bytes,
                )
            if not done.held:
                raise _not_held()
            if not done.written:
                raise TooLarge(
                    f"there is no room for {name!r}: an execution has at most {MOST_FILES} artifacts,"
                    f" of {self._most_bytes:,} bytes together"
                )
        except BaseException:
            with contextlib.suppress(OSError):
                await self._store.delete(key)
            raise
        return done.earlier

    async def _content(self, found: artifacts.ArtifactRow) -> AsyncIterator[bytes]:
        try:
            return await self._store.get(found.key)
        except FileNotFoundError:
            raise NotFound(
                f"{found.name!r} is not in this server's artifact store; all api processes need the same one"
            ) from None

    async def _rows(self, execution_id: UUID, *, tenant: int) -> list[artifacts.ArtifactRow]:
        async with self._database.of(tenant).connection() as connection:
            return await artifacts.list_artifacts(connection, tenant=tenant, execution_id=execution_id)

    def _too_large(self, name: str) -> TooLarge:
        return TooLarge(f"{name!r} is larger than {self._most_bytes:,} bytes, the maximum per execution")


class Overflow(Exception):
    """More bytes were sent than one execution may keep."""


class Counted:
    """Chunks with their byte count and digest."""

    def __init__(self, pieces: AsyncIterator[bytes], most: int) -> None:
        self._pieces = pieces
        self._most = most
        self.bytes = 0
        self.digest = hashlib.sha256()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._pieces:
            self.bytes += len(piece)
            if self.bytes > self._most:
                raise Overflow
            self.digest.update(piece)
            yield piece


def _not_held() -> Conflict:
    return Conflict("this session does not run that attempt, so it can't store artifacts for it", code="not_held")


def _as_wire(found: artifacts.ArtifactRow) -> wire.Artifact:
    return wire.Artifact(
        name=found.name,
        bytes=found.size,
        sha256=found.sha256.hex(),
        content_type=found.content_type,
        attempt=found.attempt,
        created_at=found.created_at,
        expires_at=found.expires_at,
    )
