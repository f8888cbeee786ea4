"""Becomes a PostgreSQL program under the right identity, tied to the life of its supervisor.

Executed as a file by a bare interpreter (`python -I -S launch.py IDENTITY PARENT FOLDER PROGRAM ...`), so
it imports nothing of Mainspring, and no code of ours has to run between fork and exec in a process that
has threads. IDENTITY is one of

    self             stay who we are
    namespace:U:G    a user namespace in which we are called U:G; outside, files stay ours
    user:U:G         become U:G
    reader:U:G       become U:G, yet able to enter and read folders that are closed to it
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

REFUSED = 77  # sysexits' EX_NOPERM: this identity can't be had here; another may do

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
        ("setgroups", "deny"),  # the kernel wants this before a gid map
        ("uid_map", f"{uid} {outer_uid} 1"),
        ("gid_map", f"{gid} {outer_gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _become(uid: int, gid: int, *, keep_reading: bool) -> None:
    # The weaker capability first; containers often hold only the stronger one.
    capability = next((c for c in (_CAP_DAC_READ_SEARCH, _CAP_DAC_OVERRIDE) if _permitted() >> c & 1), None)
    if keep_reading and capability is None:
        raise PermissionError("this process has no capability to read closed folders")
    if keep_reading:
        try:
            # Also makes access(2), by which initdb looks for its programs, count the capability.
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
    """Have the kernel send SIGINT, PostgreSQL's fast shutdown, when the supervisor is gone."""
    if sys.platform == "linux":
        # After the change of identity, which clears it; and the parent may be gone already.
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job would ignore it, and we inherit that
        _prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != parent:
        sys.exit("the supervisor is gone")


def main(identity: str, parent: str, folder: str, *program: str) -> None:
    try:
        _take(identity)
        _die_with(int(parent))
        os.chdir(folder)
        # Python ignores these two, and exec would hand that on.
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        os.execv(program[0], program)
    except OSError as error:
        print(f"{identity}: {error}", file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main(*sys.argv[1:])
