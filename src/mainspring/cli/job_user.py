"""The user that jobs of `mainspring dev` run as: another one than that of the server, where that is possible.

Only root can start processes of another user. The uid is one that no account has, derived from the folder, so that the
jobs of two folders can't reach each other either.
"""

from __future__ import annotations

import json
import os
import pwd
import shutil
import site
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import mainspring
from mainspring.cli import enter_job_view

FIRST_UID, LAST_UID = 61184, 65519
"""The range that systemd uses for users without an account."""
PROBE_S = 30.0
NAME = "mainspring-jobs"


class JobUser:
    """A user for jobs, with a home folder until `remove`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.uid = _free_uid(str(self._folder))
        self._home = Path(tempfile.mkdtemp(prefix="mainspring-jobs-"))
        os.chown(self._home, self.uid, self.uid)

    def command(self, argv: list[str]) -> list[str]:
        """Return the command that becomes this user and then executes `argv`."""
        settings = {
            "uid": self.uid,
            "folder": os.getcwd(),
            "paths": sorted({*_program_paths(), str(self._folder), os.getcwd()}),
            "files": [sys.executable],
        }
        return [sys.executable, "-I", "-S", enter_job_view.__file__, json.dumps(settings), *argv]

    def environment(self, env: dict[str, str]) -> dict[str, str]:
        """Return an environment with this user's home; the temporary folder is the system's."""
        own = {"HOME": str(self._home), "USER": NAME, "LOGNAME": NAME}
        return {name: value for name, value in env.items() if name != "TMPDIR"} | own

    def problem(self) -> str | None:
        """Return why a worker of this user could not start; None if it could."""
        probe = [sys.executable, "-c", "import mainspring.process"]
        env = self.environment({name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ})
        try:
            found = subprocess.run(self.command(probe), env=env, capture_output=True, text=True, timeout=PROBE_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if found.returncode == 0:
            return None
        return (found.stderr.strip().splitlines() or [f"exit status {found.returncode}"])[-1]

    def remove(self) -> None:
        shutil.rmtree(self._home, ignore_errors=True)


def choose_job_user(folder: Path) -> tuple[JobUser | None, str]:
    """Return the user for the jobs of a folder, or None and why they run as the user of this process."""
    if os.geteuid() != 0:
        return None, "only root can start them as another user"
    user = JobUser(folder)
    if (problem := user.problem()) is None:
        return user, ""
    user.remove()
    return None, problem


def _free_uid(seed: str) -> int:
    count = LAST_UID - FIRST_UID + 1
    taken = {account.pw_uid for account in pwd.getpwall()}
    first = zlib.crc32(seed.encode())
    return next(uid for at in range(count) if (uid := FIRST_UID + (first + at) % count) not in taken)


def _program_paths() -> list[str]:
    """The folders that the interpreter and this program are in."""
    own = Path(mainspring.__file__).parent
    found = [sys.base_prefix, sys.prefix, str(own), *site.getsitepackages()]
    return [os.path.realpath(path) for path in found if os.path.isdir(path)]
