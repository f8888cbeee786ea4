"""Why the embedded PostgreSQL would not start, each with what to do about it.

EmbeddedError
├── NoBinaries       no PostgreSQL of a supported version on this machine
├── ForeignData      the data directory was not made by Mainspring, or by another major version
├── DirectoryInUse   another process already serves this directory
├── NoRoom           the disk is full, or nearly
├── PortInUse        the TCP port asked for is taken
├── NotPermitted     files or identities this process may not use
├── BadSetting       a setting the supervisor decides itself, or one PostgreSQL refuses
└── ServerDied       PostgreSQL gave up; the message carries its last log lines
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
    """Turn the last words of a PostgreSQL program into the error that says what to do."""
    lines = [line for line in output.strip().splitlines() if line.strip()]
    tail = "\n  ".join(lines[-12:]) or "(it wrote nothing)"
    # On a full disk the log itself stays empty.
    full = shutil.disk_usage(where).free < 1024 * 1024
    if full or "No space left on device" in output or "Disk quota exceeded" in output:
        return NoRoom(f"{what}: no room left on the disk of {where}; free some space and start again")
    if "Address already in use" in output or "could not create any TCP/IP sockets" in output:
        return PortInUse(f"{what}: the TCP port is taken by another program; choose another port\n  {tail}")
    if "unrecognized configuration parameter" in output or "invalid value for parameter" in output:
        return BadSetting(f"{what}: PostgreSQL refuses a setting; correct it or leave it out\n  {tail}")
    if "Permission denied" in output or "Operation not permitted" in output:
        return NotPermitted(
            f"{what}: permission denied; make sure this user owns {where} and all above it can be entered,"
            f" or use a server of your own with --database-url\n  {tail}"
        )
    return ServerDied(f"{what}; its last words:\n  {tail}")


def from_os(error: OSError, *, where: str) -> OSError | EmbeddedError:
    """The error that says what to do, for the system errors a user can do something about."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return NoRoom(f"no room left on the disk of {where}; free some space and start again")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return NotPermitted(f"{error}; choose a directory this user owns and can write to")
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return ForeignData(f"{error}; {where} must be a directory")
    return error
