"""Watched folders and object stores: where triggers of kind `files` look, and when a file has arrived. Pure.

A look lists files. A file of a folder has arrived when two looks, `settle` apart, found the same size and modification
time; an object, which appears complete, when a look found it. The version of a file is its size and modification time,
that of an object its etag.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal
from urllib.parse import quote

import msgspec

from mainspring.domain.bounds import Duration
from mainspring.domain.duration import parse_duration
from mainspring.domain.errors import Invalid, Problem, clipped
from mainspring.domain.file_pattern import MAX_PATTERN_CHARS, pattern_problems

MIN_INTERVAL_S, MAX_INTERVAL_S = 5.0, 86_400.0
MAX_SETTLE_S = 3_600.0
MAX_PLACE_CHARS = 500
MAX_PATH_BYTES = 1_024
"""Of a file's path below the watched place: the longest key of an object."""
MAX_VERSION_CHARS = 200
FIRST_TENANT = 1
EVERY_TENANT = "*"
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]\Z")
_TENANT = re.compile(r"(\*|[a-z0-9][a-z0-9_-]{0,62})=(?=/|s3:)")

Existing = Literal["ignore", "start"]
FileOutcome = Literal["seen", "ignored", "started", "filtered", "paused", "refused"]
FileVerdict = Literal["new", "existing", "settling", "arrived", "done"]


class FilesSource(msgspec.Struct, frozen=True, kw_only=True, tag="files", tag_field="kind", forbid_unknown_fields=True):
    """A file that arrives in a folder, or an object in a store: `/data/inbox`, `s3://bucket/prefix`.

    `existing`: whether files that are older than the trigger start anything. `interval`: time between two looks.
    `settle`: how long a file must be unchanged; 0 for files that are moved into the folder when they are complete.
    """

    place: Annotated[str, msgspec.Meta(max_length=MAX_PLACE_CHARS)]
    pattern: Annotated[str, msgspec.Meta(max_length=MAX_PATTERN_CHARS)] = "*"
    existing: Existing = "ignore"
    interval: Duration = "30s"
    settle: Duration = "10s"

    @property
    def interval_s(self) -> float:
        return parse_duration(self.interval)

    @property
    def settle_s(self) -> float:
        """Objects appear complete."""
        return 0.0 if is_store(self.place) else parse_duration(self.settle)

    def url_of(self, path: str) -> str:
        """The address of a file; the path of a file in a folder is quoted, as file addresses are."""
        full = self.full_path(path)
        return full if is_store(self.place) else f"file://{quote(full)}"

    def full_path(self, path: str) -> str:
        return f"{self.place.rstrip('/')}/{path}"


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a look found; `path` is relative to the place."""

    path: str
    size: int
    modified_at: datetime
    version: str
    etag: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """What a look found. `next_after`: it ended after this path, and the next one continues there.

    `problem`: what could not be read; the files count nevertheless.
    """

    files: list[FoundFile]
    next_after: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class KnownFile:
    """What earlier looks decided about a path. `decided_for` is the version of the trigger."""

    version: str
    outcome: FileOutcome
    decided_for: int | None
    seen_at: datetime


class CannotLook(Exception):
    """A place cannot be read now; the message says why, and what to do."""


def is_store(place: str) -> bool:
    return place.startswith("s3://")


def source_problems(source: FilesSource) -> list[Problem]:
    """What is wrong with a source, as far as the definition alone shows it."""
    found = place_problems(source.place, "/source/place")
    found += pattern_problems(source.pattern, "/source/pattern")
    found += _duration_problems(source.interval, "/source/interval", MIN_INTERVAL_S, MAX_INTERVAL_S)
    found += _duration_problems(source.settle, "/source/settle", 0.0, MAX_SETTLE_S)
    return found


def place_problems(place: str, pointer: str) -> list[Problem]:
    hint = "an absolute path such as /data/inbox, or s3://BUCKET/PREFIX"
    if not place.isprintable() or len(place) > MAX_PLACE_CHARS:
        return [Problem(pointer, f"a place has at most {MAX_PLACE_CHARS} printable characters", hint)]
    if is_store(place):
        bucket, _, prefix = place.removeprefix("s3://").partition("/")
        parts = prefix.removesuffix("/").split("/") if prefix else []
        if not _BUCKET.match(f"s3://{bucket}") or any(part in ("", ".", "..") for part in parts):
            return [Problem(pointer, f"{clipped(place, 100)!r} is not an address in an object store", hint)]
        return []
    if not place.startswith("/") or posixpath.normpath(place) != (place.rstrip("/") or "/") or place.startswith("//"):
        return [Problem(pointer, f"{clipped(place, 100)!r} is not an absolute path without '.' and '..'", hint)]
    return []


def verdict(
    found: FoundFile,
    known: KnownFile | None,
    *,
    source: FilesSource,
    trigger_version: int,
    ignore_before: datetime | None,
    now: datetime,
) -> FileVerdict:
    """What a look means for one file. `ignore_before`: older files exist already, and start nothing.

    Modification times of some stores have whole seconds, so that a file of the same second counts as new.
    """
    if known is None or known.version != found.version:
        if known is None and ignore_before is not None and found.modified_at < ignore_before.replace(microsecond=0):
            return "existing"
        return "new" if source.settle_s > 0 else "arrived"
    match known.outcome:
        case "seen":
            return "arrived" if now - known.seen_at >= timedelta(seconds=source.settle_s) else "settling"
        case "paused":
            return "arrived"
        case "filtered" | "refused" if known.decided_for != trigger_version:
            return "arrived"  # the trigger was edited since
        case _:
            return "done"


def file_values(source: FilesSource, found: FoundFile) -> dict[str, Any]:
    """What conditions and templates can read of a file."""
    full = source.full_path(found.path)
    return {
        "name": posixpath.basename(found.path),
        "path": full.removeprefix("s3://").partition("/")[2] if is_store(source.place) else full,
        "url": source.url_of(found.path),
        "size": found.size,
        "modified_at": found.modified_at.isoformat().replace("+00:00", "Z"),
        "etag": found.etag,
    }


@dataclass(frozen=True, slots=True)
class WatchRoot:
    """A place below which one tenant, or every one, may watch files. Without a tenant: the first one."""

    place: str
    tenant: str | None = None

    def allows(self, place: str, *, tenant: str, is_first: bool) -> bool:
        if self.tenant != EVERY_TENANT and not (is_first if self.tenant is None else self.tenant == tenant):
            return False
        root = self.place.rstrip("/")
        return place.rstrip("/") == root or place.startswith(f"{root}/")


def read_roots(texts: Iterable[str]) -> tuple[WatchRoot, ...]:
    """Parse `PLACE` and `TENANT=PLACE`; the tenant `*` is every one."""
    found = []
    for text in texts:
        match = _TENANT.match(text)
        place = text[match.end() :] if match else text
        if problems := place_problems(place, ""):
            raise Invalid(f"--watch-root: {problems[0]}")
        found.append(WatchRoot(place, match[1] if match else None))
    return tuple(found)


def root_of(roots: Iterable[WatchRoot], place: str, *, tenant: str, is_first: bool) -> str:
    """The allowed root that contains a place; raises CannotLook if there is none."""
    for root in roots:
        if root.allows(place, tenant=tenant, is_first=is_first):
            return root.place
    raise CannotLook(
        f"{place} is not below a folder or store that the server may watch: an operator allows one with --watch-root"
    )


def _duration_problems(given: Duration, pointer: str, least_s: float, most_s: float) -> list[Problem]:
    try:
        given_s = parse_duration(given)
    except ValueError as error:
        return [Problem(pointer, str(error), "such as 30s")]
    if not least_s <= given_s <= most_s:
        return [Problem(pointer, f"{given!r} is out of range", f"between {least_s:g} and {most_s:g} seconds")]
    return []
