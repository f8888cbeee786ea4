"""Files that executions leave: taken in piece by piece, kept for a while, handed out."""

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

PRUNE_S = 600.0
PRUNED_AT_ONCE = 500
NEWEST = 20
"""So many successes of a job are looked at for a file."""


@dataclass(frozen=True, slots=True)
class Sender:
    """The attempt a file comes from, and the session that claims to run it."""

    session_id: UUID
    execution_id: UUID
    attempt: int


class Artifacts(Service):
    """The files of all executions. As a service it removes those whose time is over."""

    def __init__(self, database: Database, store: ArtifactStore, *, most_bytes: int, kept_s: float) -> None:
        self._database = database
        self._store = store
        self._most_bytes = most_bytes
        self._kept_s = kept_s
        self._loops = Loops("artifacts")

    async def check(self, sender: Sender, name: str, size: int | None) -> None:
        """Refuses a file for what can be known before it comes."""
        if (wrong := name_problem(name)) is not None:
            raise invalid("/name", wrong, hint="a relative path such as report/2026.csv")
        if size is not None and size > self._most_bytes:
            raise self._too_large(name)
        await self._demand_held(sender)

    async def receive(
        self, sender: Sender, name: str, pieces: AsyncIterator[bytes], *, content_type: str, declared: int | None
    ) -> None:
        """Keeps a file; nothing of one that is too large, cut off, or of an attempt the sender does not run."""
        await self.check(sender, name, declared)
        key, counted = uuid4(), Counted(pieces, self._most_bytes)
        try:
            await self._store.put(key, aiter(counted))
        except Overflow:
            raise self._too_large(name) from None
        if declared is not None and counted.bytes != declared:
            await self._store.delete(key)
            raise invalid("/name", f"{name!r} was cut off: {counted.bytes:,} of {declared:,} bytes came")
        earlier = await self._insert(sender, name, key, counted, content_type)
        if earlier is not None:
            await self._store.delete(earlier)

    async def listed(self, execution_id: UUID, *, tenant: int) -> list[wire.Artifact]:
        return [_as_wire(found) for found in await self._rows(execution_id, tenant=tenant)]

    async def open(self, execution_id: UUID, name: str, *, tenant: int) -> tuple[wire.Artifact, AsyncIterator[bytes]]:
        """A file with its content."""
        for found in await self._rows(execution_id, tenant=tenant):
            if found.name == name:
                return _as_wire(found), await self._content(found)
        raise NotFound(f"the execution has no artifact {name!r}")

    async def open_for(
        self, sender: Sender, name: str, *, source: UUID | None, step: int | None, job: str | None
    ) -> tuple[wire.Artifact, AsyncIterator[bytes]]:
        """A file that a running attempt asked for, of another execution of its tenant."""
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
                newest=NEWEST,
            )
        if not held:
            raise _not_held()
        if found is None:
            whose = f"none of the last {NEWEST} successes of {job}" if job is not None else "it"
            raise NotFound(f"{whose} left {name!r}, or its time is over")
        return _as_wire(found), await self._content(found)

    # The life of the service ---------------------------------------------------------------------------------

    async def start(self) -> None:
        self._loops.forever("prune", self._prune)

    async def stop(self) -> None:
        await self._loops.stop()

    async def prune(self) -> int:
        """Removes files whose time is over; first the bytes, so that nothing is left behind if this is cut off."""
        async with self._database.connection() as connection:
            keys = await artifacts.expired_artifacts(connection, limit=PRUNED_AT_ONCE)
        for key in keys:
            await self._store.delete(key)
        if keys:
            async with self._database.connection() as connection:
                await artifacts.delete_artifacts(connection, keys=keys)
        return len(keys)

    async def _prune(self) -> None:
        while await self.prune() == PRUNED_AT_ONCE:
            pass
        await self._store.sweep()
        await asyncio.sleep(PRUNE_S)

    # Single steps --------------------------------------------------------------------------------------------

    async def _demand_held(self, sender: Sender) -> None:
        async with self._database.connection() as connection:
            held = await artifacts.holds_attempt(
                connection, execution_id=sender.execution_id, attempt=sender.attempt, session_id=sender.session_id
            )
        if not held:
            raise _not_held()

    async def _insert(self, sender: Sender, name: str, key: UUID, counted: Counted, content_type: str) -> UUID | None:
        """The key of the file it replaces."""
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

    async def _content(self, found: artifacts.Artifact) -> AsyncIterator[bytes]:
        try:
            return await self._store.get(found.key)
        except FileNotFoundError:
            raise NotFound(
                f"{found.name!r} is not in this server's artifact store; all api processes need the same one"
            ) from None

    async def _rows(self, execution_id: UUID, *, tenant: int) -> list[artifacts.Artifact]:
        async with self._database.connection() as connection:
            return await artifacts.list_artifacts(connection, tenant=tenant, execution_id=execution_id)

    def _too_large(self, name: str) -> TooLarge:
        return TooLarge(f"{name!r} has more than {self._most_bytes:,} bytes, which is the most kept of an execution")


class Overflow(Exception):
    """More came than is kept."""


class Counted:
    """Pieces on their way: counted, and their digest taken."""

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
    return Conflict("this session does not run that attempt, so it leaves no files there", code="not_held")


def _as_wire(found: artifacts.Artifact) -> wire.Artifact:
    return wire.Artifact(
        name=found.name,
        bytes=found.size,
        sha256=found.sha256.hex(),
        content_type=found.content_type,
        attempt=found.attempt,
        created_at=found.created_at,
        expires_at=found.expires_at,
    )
