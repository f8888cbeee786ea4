"""The files of the archive in S3 or a compatible object store, through obstore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import obstore
from obstore.store import from_url

from mainspring.domain.errors import Invalid


class ObjectPlace:
    """One object per file. Credentials come from the environment, as usual for the store."""

    def __init__(self, url: str) -> None:
        try:
            self._store = from_url(url)
        except Exception as error:
            raise Invalid(f"cannot use {url} as an archive: {error}") from None

    def store(self, name: str, file: Path) -> None:
        """Upload in parts; the object becomes visible when the upload is complete."""
        obstore.put(self._store, name, file)

    def read(self, name: str, start: int, end: int) -> bytes:
        return bytes(obstore.get_range(self._store, name, start=start, end=end))

    def delete(self, name: str) -> None:
        try:
            obstore.delete(self._store, name)
        except FileNotFoundError:
            return

    def names(self, prefix: str) -> Iterator[str]:
        for page in obstore.list(self._store, prefix=prefix):
            for entry in page:
                yield str(entry["path"])
