"""Becomes the user of `mainspring dev`'s jobs, and then the worker.

Run as a file by a bare interpreter (`python -I -S enter_job_view.py SETTINGS PROGRAM ...`), as root: it imports nothing
of Mainspring. The job user may not be able to enter root's home, where the interpreter often is. Then the worker gets a
mount namespace in which an empty folder covers the home, and only the paths that it needs are visible there. Nothing
changes outside, and no file changes its mode or owner.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import stat
import sys

REFUSED = 77  # EX_NOPERM of sysexits
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 4096, 16384, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def closed_folder(path: str) -> str | None:
    """Return the outermost folder above `path` that others can't enter."""
    parts = path.split(os.sep)
    for count in range(1, len(parts)):
        folder = os.sep.join(parts[:count]) or os.sep
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            return folder
    return None


def reveal(paths: list[str]) -> None:
    """Cover each closed folder above one of the paths, and bind the paths below it, in a namespace of our own."""
    covered: dict[str, list[str]] = {}
    for path in paths:
        if (folder := closed_folder(path)) is not None:
            covered.setdefault(folder, []).append(path)
    if not covered:
        return
    _call("unshare", _CLONE_NEWNS)
    _mount("none", "/", None, _MS_REC | _MS_PRIVATE)
    for folder, below in covered.items():
        opened = [(path, os.open(path, os.O_PATH)) for path in sorted(set(below))]
        _mount("none", folder, "tmpfs", 0, "mode=0755,size=1m")
        for path, descriptor in opened:
            if not any(path.startswith(other + os.sep) for other, _ in opened):
                os.makedirs(path, mode=0o755, exist_ok=True)
                _mount(f"/proc/self/fd/{descriptor}", path, None, _MS_BIND | _MS_REC)
            os.close(descriptor)


def main() -> None:
    settings, argv = json.loads(sys.argv[1]), sys.argv[2:]
    os.umask(0o022)
    try:
        reveal(settings["paths"])
        os.setgroups([])
        os.setresgid(settings["uid"], settings["uid"], settings["uid"])
        os.setresuid(settings["uid"], settings["uid"], settings["uid"])
        os.chdir(settings["folder"])
        for path in (*settings["paths"], *settings["files"]):
            if not os.access(path, os.R_OK | os.X_OK):
                raise PermissionError(errno.EACCES, "other users cannot read it", path)
        os.execv(argv[0], argv)
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n" if error.filename else f"{error}\n")
        sys.exit(REFUSED)


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind, options)]
    _call("mount", *texts[:3], ctypes.c_ulong(flags), texts[3])


if __name__ == "__main__":
    main()
