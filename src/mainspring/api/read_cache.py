"""A cache of encoded responses to status reads: jobs, executions, and the first pages of their lists.

An entry expires after `TTL_S`; that is the guarantee for everybody. Three things remove it earlier:

- A write through this process, before its response is sent: the writer's next read shows it. The same holds for starts
  and results of executions that workers get and send through this process.
- A message on the bus, usually within milliseconds of a change in another process that has learned of these reads.
- The header `Mainspring-Seen-After` of a request, for that request only: it names writes through other processes, as
  their responses did in `Mainspring-Written`. Entries that were read before this process first saw a name are ignored.

With `--cache`, api processes share entries through an engine (ports.Cache). It is asked before the database, except for
requests that name writes through other processes, and what changes here is removed there before the next lookup.

Entries have labels, such as the id and the name of a job; a change removes the entries with its labels. A read that is
under way when a change arrives is not kept and not shared with later requests, because it may have missed the change.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import sys
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec
import structlog

from mainspring import ports
from mainspring.clock import Clock, SystemClock
from mainspring.domain.events import Event
from mainspring.telemetry import metrics

log = structlog.get_logger()

TTL_S = 0.9
"""With the time to send the response, no reader sees data older than one second."""
MOST_ENTRIES = 10_000
MOST_BYTES = 32_000_000
MOST_ENTRY_BYTES = 400_000
MOST_KEY = 500
"""Longer paths and queries are not cached."""
MOST_WRITES_SEEN = 10_000
MOST_CHANGED = 10_000
MOST_NAMES = 16
"""Writes that a request can name; with more, it is served without the cache."""
UNKNOWN = sys.maxsize
"""Later than every step: the request names writes in a way that cannot be understood, so it does not use the cache."""
WRITTEN = b"mainspring-written"
SEEN_AFTER = b"mainspring-seen-after"
_WRITE = re.compile(r"([0-9a-f]{16})-(\d{1,18})")

Kind = Literal["job", "execution", "list"]
_HITS = {kind: metrics.READ_CACHE.labels(kind, "hit") for kind in get_args(Kind)}
_SHARED = {kind: metrics.READ_CACHE.labels(kind, "shared") for kind in get_args(Kind)}
_MISSES = {kind: metrics.READ_CACHE.labels(kind, "miss") for kind in get_args(Kind)}
FROM_SHARED = 1
"""The step of entries of the shared cache: before all reads of this process."""
Label = Hashable
Load = Callable[[], Awaitable[tuple["Encoded", Iterable[Label]]]]


@dataclass(frozen=True, slots=True)
class Encoded:
    """A response as it is sent."""

    body: bytes
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass(frozen=True, slots=True)
class Key:
    """A read of a tenant: the path and query as they arrived. No tenant can name another's key."""

    tenant: int
    target: str
    as_of: float | None = None  # what a replica had caught up to: a reader who wrote later has another key


@dataclass(frozen=True, slots=True)
class CachedRead:
    """How the response of an endpoint is cached: its labels by key and value, and its headers."""

    kind: Kind
    labels: Callable[[Key, Any], Iterable[Label]]
    headers: Callable[[Any], tuple[tuple[bytes, bytes], ...]] = lambda _: ()


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    response: Encoded
    began: int  # the step at which its read began
    expires: float
    labels: frozenset[Label]
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """A read under way."""

    began: int
    at: float
    task: asyncio.Task[tuple[Encoded, bool]]  # the response, and whether the shared cache had it
    looks: bool  # whether the shared cache may answer


class ReadCache:
    """Encoded responses by tenant, path and query. Every change and every read has a step, a number that only grows."""

    def __init__(
        self, bus: ports.Bus | None = None, *, clock: Clock | None = None, shared: ports.Cache | None = None
    ) -> None:
        self._shared = shared
        self._clock = clock or SystemClock()
        self._process = secrets.token_hex(8)
        self._step = FROM_SHARED
        self._entries: dict[Key, _Entry] = {}  # in the order of their reads' ends
        self._by_label: dict[Label, set[Key]] = {}
        self._bytes = 0
        self._reads: dict[Key, _Read] = {}
        self._reading = 0
        self._changed: dict[Label, int] = {}  # labels of the changes during reads under way, with the last step
        self._seen: dict[tuple[int, str], int] = {}  # writes through other processes, by the step of their first sight
        self._written: dict[int, int] = {}  # the step of each tenant's last write through this process
        self._decode = msgspec.json.Decoder(list[Event]).decode
        if bus is not None:
            bus.subscribe(ports.EVENTS, self._on_events, on_gap=self.clear)
            bus.subscribe(ports.SHARDS, self._on_shards, on_gap=lambda: None)

    async def get(self, key: Key, load: Load, *, seen_after: str | None = None, kind: Kind) -> Encoded:
        """Return the cached response, or load it. Concurrent loads of a key are shared where that hides no change."""
        oldest = self._first_sight(key.tenant, seen_after) if seen_after else 0
        entry = self._entries.get(key)
        if entry is not None and entry.began > oldest and entry.expires > self._clock.monotonic():
            _HITS[kind].inc()
            return entry.response
        if oldest == UNKNOWN or len(key.target) > MOST_KEY:
            _MISSES[kind].inc()
            return (await load())[0]
        read = self._reads.get(key)
        now = self._clock.monotonic()
        since = max(oldest, self._written.get(key.tenant, 0))
        if read is None or read.began <= since or now - read.at >= TTL_S or (oldest and read.looks):
            read = self._start(key, load, now, looks=not oldest)
        count = _MISSES
        try:
            # A client that disconnects must not end the read for the others.
            response, was_shared = await asyncio.shield(read.task)
            count = _SHARED if was_shared else _MISSES
            return response
        finally:
            count[kind].inc()

    def wrote(self, tenant: int, labels: Iterable[Label] | None) -> str:
        """Remove what a write through this process changed, the whole tenant without labels; return its name."""
        labels = [tenant_label(tenant)] if labels is None else [*labels, lists_label(tenant)]
        self._drop(labels)
        if self._shared is not None:
            self._shared.changed(labels)
        if len(self._written) > MOST_WRITES_SEEN:
            # Without a step for a tenant, a read under way could be shared with its writer.
            self._written.clear()
            self._reads.clear()
        self._written[tenant] = self._step
        return f"{self._process}-{self._step}"

    def observed(self, executions: Iterable[UUID]) -> None:
        """Remove what shows these live executions: they have changed, and a reader may have seen it."""
        labels = [execution_label(execution_id) for execution_id in executions]
        if self._shared is not None:
            self._shared.changed(labels)
        if self._entries or self._reading:
            self._drop(labels)

    def clear(self) -> None:
        """Remove everything, for example after messages were lost."""
        self._drop([None])
        if self._shared is not None:
            self._shared.clear()
        self._entries.clear()
        self._by_label.clear()
        self._bytes = 0

    @property
    def size(self) -> tuple[int, int]:
        """The number of entries and their bytes."""
        return len(self._entries), self._bytes

    @property
    def in_use(self) -> bool:
        """Whether an event may concern an entry: one has not expired, or a read is under way."""
        newest = next(reversed(self._entries.values()), None)
        return self._reading > 0 or (newest is not None and newest.expires > self._clock.monotonic())

    def _start(self, key: Key, load: Load, now: float, *, looks: bool) -> _Read:
        self._step += 1
        self._reading += 1
        read = _Read(self._step, now, asyncio.create_task(self._load(key, load, self._step, now, looks)), looks)
        self._reads[key] = read
        read.task.add_done_callback(lambda _: self._end(key, read))
        return read

    def _end(self, key: Key, read: _Read) -> None:
        self._reading -= 1
        if self._reads.get(key) is read:
            del self._reads[key]
        if not self._reading:
            self._changed.clear()
        if not read.task.cancelled():
            read.task.exception()  # every waiting request may be gone

    async def _load(self, key: Key, load: Load, began: int, now: float, looks: bool) -> tuple[Encoded, bool]:
        """Return the response of the shared cache or of the database, and whether it is the former."""
        found = None
        if self._shared is not None and key.as_of is None:  # a replica's reads are of this process only
            found = await self._shared.look(key, oldest_s=TTL_S)
            unpacked = _unpacked(found.value) if looks and found is not None and found.value is not None else None
            if unpacked is not None and self._is_unchanged(unpacked[1], began):
                assert found is not None
                response, known = unpacked
                self._keep(key, _entry(key, response, FROM_SHARED, now + TTL_S - found.age_s, known))
                return response, True
        response, labels = await load()
        known = frozenset((None, tenant_label(key.tenant), *labels))
        if self._is_unchanged(known, began):
            entry = _entry(key, response, began, now + TTL_S, known)
            if entry.size <= MOST_ENTRY_BYTES:
                self._keep(key, entry)
                if self._shared is not None and found is not None:
                    packed = _packed(response, known)
                    self._shared.keep(key, packed, known - {None}, began=found.at, oldest_s=TTL_S)
        return response, False

    def _is_unchanged(self, labels: Iterable[Label], began: int) -> bool:
        return all(self._changed.get(label, 0) < began for label in labels)

    def _keep(self, key: Key, entry: _Entry) -> None:
        known = self._entries.get(key)
        if known is not None and known.began > entry.began:
            return
        self._remove(key)
        now = self._clock.monotonic()
        while self._entries:
            first = next(iter(self._entries))
            full = len(self._entries) >= MOST_ENTRIES or self._bytes + entry.size > MOST_BYTES
            if self._entries[first].expires > now and not full:
                break
            self._remove(first)
        self._entries[key] = entry
        self._bytes += entry.size
        for label in entry.labels:
            self._by_label.setdefault(label, set()).add(key)

    def _remove(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._bytes -= entry.size
        for label in entry.labels:
            keys = self._by_label[label]
            keys.discard(key)
            if not keys:
                del self._by_label[label]

    def _drop(self, labels: Iterable[Label]) -> None:
        self._step += 1
        for label in labels:
            if self._reading:
                if len(self._changed) >= MOST_CHANGED:
                    self._changed = {None: self._step}  # every entry has this label
                self._changed[label] = self._step
            if label is not None:
                for key in list(self._by_label.get(label, ())):
                    self._remove(key)

    def _first_sight(self, tenant: int, seen_after: str) -> int:
        """Return the step before which entries may lack the writes that this header names."""
        oldest = 0
        for name in map(str.strip, seen_after.split(",", MOST_NAMES - 1)):  # the last one of too many contains a comma
            parts = _WRITE.fullmatch(name)
            if parts is None:
                return UNKNOWN
            if parts[1] == self._process:
                continue  # that write has removed what it changed
            step = self._seen.get((tenant, name))
            if step is None:
                if len(self._seen) >= MOST_WRITES_SEEN:
                    self._seen.clear()  # names that return cost a read each
                self._step += 1
                step = self._seen[tenant, name] = self._step
            oldest = max(oldest, step)
        return oldest

    def _on_events(self, payload: str) -> None:
        if self._entries or self._reading:
            for event in self._decode(payload):
                self._learned([execution_label(execution_id) for execution_id in event.executions])

    def _on_shards(self, payload: str) -> None:
        what, _, shard = payload.partition(" ")
        if what == "edit" and shard.isdigit():
            self._learned([shard_label(int(shard))])

    def _learned(self, labels: list[Label]) -> None:
        """Remove what another process has changed, also from the shared cache if this process may have put it there."""
        if self._shared is not None:
            self._shared.changed(labels if self._reading else [label for label in labels if label in self._by_label])
        self._drop(labels)


class _Packed(msgspec.Struct, array_like=True):
    """An entry of the shared cache. Labels that are UUIDs are strings, the others are arrays."""

    body: bytes
    headers: list[tuple[bytes, bytes]]
    labels: list[str | list[str | int]]


_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(_Packed).decode


def _packed(response: Encoded, labels: Iterable[Label]) -> bytes:
    return _pack((response.body, response.headers, [label for label in labels if label is not None]))


def _unpacked(value: bytes) -> tuple[Encoded, frozenset[Label]] | None:
    """Return an entry of the shared cache; None if it is none of this program's."""
    try:
        found = _unpack(value)
        labels = [UUID(label) if isinstance(label, str) else tuple(label) for label in found.labels]
    except (msgspec.MsgspecError, ValueError) as error:
        log.warning("cache.unreadable", error=str(error))
        return None
    return Encoded(found.body, tuple(found.headers)), frozenset((None, *labels))


def _entry(key: Key, response: Encoded, began: int, expires: float, labels: frozenset[Label]) -> _Entry:
    size = len(response.body) + len(key.target) + 100 * len(labels)
    return _Entry(response, began, expires, labels, size)


def tenant_label(tenant: int) -> Label:
    return ("tenant", tenant)


def lists_label(tenant: int) -> Label:
    """Of lists that any job or execution of the tenant may enter."""
    return ("lists", tenant)


def job_label(tenant: int, ref: str | UUID) -> Label:
    """Of a job and the list of its executions, by name and by id."""
    return (tenant, str(ref).lower())


def live_label(tenant: int, ref: str | UUID) -> Label:
    """Of the live executions of a job, which an edit or a pause may change."""
    return ("live", tenant, str(ref).lower())


def final_label(tenant: int, ref: str | UUID) -> Label:
    """Of the final executions of a job: they show its name, and nothing else that can change."""
    return ("final", tenant, str(ref).lower())


def execution_label(execution_id: UUID) -> Label:
    """Of what shows a certain live execution."""
    return execution_id


def shard_label(shard: int) -> Label:
    """Of jobs in a shard; the bus names only the shard of an edit."""
    return ("shard", shard)
