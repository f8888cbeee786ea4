"""Looks into an S3-compatible object store, through obstore. Credentials come from the environment of the server."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import Any

import obstore
from obstore.store import from_url

from mainspring.domain.errors import clipped
from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import MAX_PATH_BYTES, MAX_VERSION_CHARS, CannotLook, FoundFile, Look

PAGE = 1_000
"""The most keys that a request to a store returns."""
MAX_KEYS = 5 * PAGE
"""Keys that one look reads; the next look continues."""
MAX_ERROR_CHARS, MAX_READ_CHARS = 300, 2_000
_TOOK = re.compile(r" in [0-9.]{1,20}[a-zµ]{1,2}\b")
"""How long a request took: without it, the same problem has the same text."""
RETRY_TIMEOUT = timedelta(seconds=5)


class WatchedStore:
    """The objects below an address such as s3://bucket/prefix."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            # Options of the client would replace those of the environment, such as AWS_ALLOW_HTTP.
            self._store: Any = from_url(url, retry_config={"max_retries": 1, "retry_timeout": RETRY_TIMEOUT})
        except Exception as error:
            raise CannotLook(_text(url, error)) from None

    async def look(self, pattern: FilePattern, *, after: str | None) -> Look:
        """Return the next matching objects after a key, in the order of the keys."""
        keys: list[Any] = []
        try:
            async for page in obstore.list(self._store, offset=after, chunk_size=PAGE):
                keys += page
                if len(keys) >= MAX_KEYS:
                    break
        except Exception as error:
            raise CannotLook(_text(self._url, error)) from None
        # Most keys are matched within milliseconds; unusual patterns take longer.
        found = await asyncio.to_thread(lambda: [_found(key) for key in keys if pattern.matches(key["path"])])
        files = [file for file in found if len(file.path.encode()) <= MAX_PATH_BYTES]
        return Look(files, keys[-1]["path"] if len(keys) >= MAX_KEYS else None)


def _found(key: Any) -> FoundFile:
    etag = None if key["e_tag"] is None else key["e_tag"].strip('"')
    version = etag or f"{key['size']}-{key['last_modified'].isoformat()}"
    return FoundFile(key["path"], key["size"], key["last_modified"], version[:MAX_VERSION_CHARS], etag)


def _text(url: str, error: Exception) -> str:
    # The library adds the fields of its error, over many lines.
    words = " ".join(str(error)[:MAX_READ_CHARS].partition("Debug source:")[0].split())
    return clipped(f"cannot read {url}: {_TOOK.sub('', words)}", MAX_ERROR_CHARS)
