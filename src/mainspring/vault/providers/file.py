"""Values in files of one folder, such as a mounted Kubernetes secret."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import msgspec

from mainspring.domain.errors import Invalid
from mainspring.domain.secret import MAX_VALUE_CHARS
from mainspring.vault.providers.contract import ProviderFailed

MAX_BYTES = 4 * MAX_VALUE_CHARS


class FileSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`folder` has the files; links out of it are not followed."""

    folder: str


class FileProvider:
    """Reads files below a folder; the path is relative to it. One trailing newline is removed."""

    def __init__(self, settings: FileSettings) -> None:
        self._folder = Path(settings.folder)
        if not self._folder.is_absolute():
            raise Invalid("folder must be an absolute path")

    async def read(self, path: str) -> str:
        data = await asyncio.to_thread(self._read, path)
        try:
            return data.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise ProviderFailed(f"the file {path} is not UTF-8 text") from None

    def _read(self, path: str) -> bytes:
        try:
            # A mounted secret consists of links inside its folder.
            folder, file = self._folder.resolve(strict=True), (self._folder / path).resolve(strict=True)
            if not file.is_relative_to(folder):
                raise ProviderFailed(f"the file {path} is a link out of the folder")
            with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as opened:
                if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                    raise ProviderFailed(f"{path} is not a file")
                data = opened.read(MAX_BYTES + 1)
        except OSError as error:
            raise ProviderFailed(f"cannot read the file {path}: {error.strerror}") from None
        if len(data) > MAX_BYTES:
            raise ProviderFailed(f"the file {path} is larger than {MAX_BYTES:,} bytes")
        return data

    async def close(self) -> None:
        pass
