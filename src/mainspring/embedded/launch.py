"""Executes a PostgreSQL program under a given identity and ends it with its supervisor.

Run as a file by a bare interpreter (`python -I -S launch.py IDENTITY PARENT FOLDER PROGRAM ...`): it imports nothing
of Mainspring, and no Python code runs between fork and exec in a process with threads. IDENTITY is one of

    self             the current user
    namespace:U:G    a user namespace that maps the current user to U:G; outside, it still owns its files
    user:U:G         the user U:G
    reader:U:G       the user U:G, with the capability to enter and read private folders
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

REFUSED = 77  # EX_NOPERM of sysexits: this identity is not available here; another may be

_CLONE_NEWUSER = 0x10000000
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_SECUREBITS, _PR_CAP_AMBIENT = 1, 8, 28, 47
_AMBIENT_RAISE, _NO_SETUID_FIXUP = 2, 1 << 2
_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 1, 2
_CAPABILITY_VERSION_3 = 0x20080522


class _CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapWords(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]


_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _prctl(option: int, *values: int) -> None:
    _call("prctl", option, *(ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]))


def _enter_namespace(uid: int, gid: int) -> None:
    outer_uid, outer_gid = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER)
    for name, text in (
        ("setgroups", "deny"),  # the kernel requires this before a gid map
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _become(uid: int, gid: int, *, keep_reading: bool) -> None:
    # The weaker capability first; containers often have only the stronger one.
    capability = next((c for c in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE) if _permitted() >> c & 1), None)
    if keep_reading and capability is None:
        raise PermissionError("this process has no capability to read private folders")
    if keep_reading:
        try:
            # Also makes access(2), which initdb uses to find its programs, honour the capability.
            _prctl(_PR_SET_SECUREBITS, _NO_SETUID_FIXUP)
        except OSError:
            _prctl(_PR_SET_KEEPCAPS, 1)
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    if keep_reading and capability is not None:
        words = (_CapWords * 2)()
        words[0] = _CapWords(1 << capability, 1 << capability, 1 << capability)
        _call("capset", ctypes.byref(_CapHeader(_CAPABILITY_VERSION_3, 0)), words)
        _prctl(_PR_CAP_AMBIENT, _AMBIENT_RAISE, capability)


def _permitted() -> int:
    words = (_CapWords * 2)()
    _call("capget", ctypes.byref(_CapHeader(_CAPABILITY_VERSION_3, 0)), words)
    return int(words[0].permitted)


def _take(identity: str) -> None:
    kind, *numbers = identity.split(":")
    if kind == "self":
        return
    uid, gid = map(int, numbers)
    if kind == "namespace":
        _enter_namespace(uid, gid)
    else:
        _become(uid, gid, keep_reading=kind == "reader")


def _die_with(parent: int) -> None:
    """Receive SIGINT, PostgreSQL's fast shutdown, when the supervisor dies."""
    if sys.platform == "linux":
        # After the change of identity, which clears it. The parent may have died already.
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # background jobs of a shell ignore it, and that is inherited
        _prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        sys.exit("the supervisor has exited")


def main(identity: str, parent: str, folder: str, *program: str) -> None:
    try:
        _take(identity)
        _die_with(int(parent))
        os.chdir(folder)
        # Python ignores these two, and exec would inherit that.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execv(program[0], program)
    except OSError as error:
        print(f"{identity}: {error}", file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main(*sys.argv[1:])
