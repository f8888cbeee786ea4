"""The private folder of the server's Unix socket, with a path short enough for a socket address."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from .errors import NotPermitted
from .files import replace
from .identity import Identity

_MOST_PATH_BYTES = 103  # of a socket address: 103 on the BSDs and macOS, 107 on Linux


def socket_folder(directory: Path, identity: Identity) -> Path:
    """Return an empty folder that only the server's owner can enter: inside `directory` if its path is short enough."""
    inside = directory / "run"
    if _fits(inside):
        inside.mkdir(mode=0o700, exist_ok=True)
        inside.chmod(0o700)
        folder = inside
    else:
        folder = _elsewhere(_record(directory))
    identity.own(folder)
    for leftover in folder.iterdir():
        leftover.unlink()
    return folder


def remove_socket_folder(directory: Path) -> None:
    """Remove a socket folder outside `directory`."""
    record = _record(directory)
    if record.exists():
        folder = Path(record.read_text())
        if _private(folder):
            shutil.rmtree(folder, ignore_errors=True)
        record.unlink(missing_ok=True)


def _record(directory: Path) -> Path:
    return directory / "socket-folder"


def _elsewhere(record: Path) -> Path:
    if record.exists() and _private(known := Path(record.read_text())):
        return known
    for parent in _parents():
        if _fits(parent / "mainspring-12345678") and os.access(parent, os.W_OK | os.X_OK):
            folder = Path(tempfile.mkdtemp(prefix="mainspring-", dir=parent))
            replace(record, str(folder))
            return folder
    raise NotPermitted(
        f"no writable folder with a path short enough for a Unix socket ({_MOST_PATH_BYTES} bytes):"
        " choose a shorter data directory or set TMPDIR"
    )


def _parents() -> Iterator[Path]:
    # Root's runtime folder is not accessible to the user that the server may run as.
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.geteuid() != 0:
        yield Path(runtime)
    yield Path(tempfile.gettempdir())
    yield Path("/tmp")


def _private(folder: Path) -> bool:
    """Whether the folder is still private: a cleanup job may have removed it, and another user replaced it."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    owned = status.st_uid == os.geteuid() or os.geteuid() == 0
    return stat.S_ISDIR(status.st_mode) and owned and not status.st_mode & 0o077


def _fits(folder: Path) -> bool:
    # Commas and double quotes are separators in the setting and in connection strings.
    path = os.fsencode(folder / ".s.PGSQL.65535")
    return len(path) <= _MOST_PATH_BYTES and not set(path) & set(b'",')
