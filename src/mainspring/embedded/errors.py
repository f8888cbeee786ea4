"""Errors of the embedded PostgreSQL; each message says what to do.

EmbeddedError
├── NoBinaries       no PostgreSQL of a supported version on this machine
├── ForeignData      the data directory was created by another program or another major version
├── DirectoryInUse   another process already uses this directory
├── NoRoom           the disk is full, or nearly
├── PortInUse        the requested TCP port is in use
├── NotPermitted     missing permission for files or identities
├── BadSetting       a setting that is reserved or that PostgreSQL rejects
└── ServerDied       PostgreSQL exited; the message contains its last log lines
"""

from __future__ import annotations

import errno
import shutil

from mainspring.domain.errors import MainspringError


class EmbeddedError(MainspringError):
    code = "embedded_error"


class NoBinaries(EmbeddedError):
    code = "embedded_no_binaries"


class ForeignData(EmbeddedError):
    code = "embedded_foreign_data"


class DirectoryInUse(EmbeddedError):
    code = "embedded_directory_in_use"


class NoRoom(EmbeddedError):
    code = "embedded_no_room"


class PortInUse(EmbeddedError):
    code = "embedded_port_in_use"


class NotPermitted(EmbeddedError):
    code = "embedded_not_permitted"


class BadSetting(EmbeddedError):
    code = "embedded_bad_setting"


class ServerDied(EmbeddedError):
    code = "embedded_server_died"


def diagnose(what: str, output: str, *, where: str) -> EmbeddedError:
    """Return the error for the output of a PostgreSQL program that failed."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    tail = "\n  ".join(lines[-12:]) or "(no output)"
    # On a full disk the log stays empty.
    full = shutil.disk_usage(where).free < 1024 * 1024
    if full or "No space left on device" in output or "Disk quota exceeded" in output:
        return NoRoom(f"{what}: no space left on the disk of {where}; free some space and start again")
    if "Address already in use" in output or "could not create any TCP/IP sockets" in output:
        return PortInUse(f"{what}: the TCP port is in use by another program; choose another port\n  {tail}")
    if "unrecognized configuration parameter" in output or "invalid value for parameter" in output:
        return BadSetting(f"{what}: PostgreSQL rejects a setting; correct or remove it\n  {tail}")
    if "Permission denied" in output or "Operation not permitted" in output:
        return NotPermitted(
            f"{what}: permission denied; make sure that this user owns {where} and can enter all its parent folders,"
            f" or use another server with --database-url\n  {tail}"
        )
    return ServerDied(f"{what}; last log lines:\n  {tail}")


def from_os(error: OSError, *, where: str) -> OSError | EmbeddedError:
    """Return an actionable error for a system error that the user can resolve, else the error itself."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoom(f"no space left on the disk of {where}; free some space and start again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return NotPermitted(f"{error}; choose a directory that this user owns and can write to")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ForeignData(f"{error}; {where} must be a directory")
    return error
