"""Under which identity PostgreSQL runs: it refuses root, and `initdb` wants an account it can look up.

An ordinary user runs it as is. Root prefers a user namespace in which it bears another name: its files stay
root's, so nothing has to be opened up even below a closed home. Where namespaces are refused (most
containers) the server becomes another user, if need be one that may still read closed folders. Each way is
tried for real, on the very program and folder, rather than predicted from modes and capabilities.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .errors import NotPermitted
from .launch import REFUSED
from .process import run

VARIABLE = "MAINSPRING_PG_AS"  # namespace | user: allow only this way, for root


@dataclass(frozen=True, slots=True)
class Identity:
    """One way to run PostgreSQL; `launch` says what each kind means."""

    kind: str
    uid: int
    gid: int

    def __str__(self) -> str:
        return self.kind if self.kind == "self" else f"{self.kind}:{self.uid}:{self.gid}"

    @property
    def owner(self) -> tuple[int, int]:
        """Who owns the server's files, as seen from here."""
        return (os.geteuid(), os.getegid()) if self.kind == "namespace" else (self.uid, self.gid)

    def own(self, *paths: Path) -> None:
        """Give these files, and all below, to the server. Only root can, and only root has to."""
        if os.geteuid() != 0:
            return
        for path in paths:
            _give(path, self.owner)
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    _give(Path(folder, name), self.owner)


async def choose(postgres: Path, directory: Path, data: Path) -> Identity:
    """The first identity that can enter `directory` and execute `postgres`."""
    refusals = []
    for identity in _candidates(data):
        if identity.kind in ("user", "reader"):
            _admit(identity, directory)
        code, output = await run([postgres, "--version"], identity=str(identity), folder=directory)
        if code == 0:
            return identity
        refusals.append(output.strip() or f"{identity}: exit status {code}")
        if code != REFUSED:
            break
    reasons = "\n  ".join(refusals) or f"{VARIABLE}={os.environ.get(VARIABLE)} allows no way here"
    raise NotPermitted(
        "PostgreSQL can't be started under any identity: run as an ordinary user who owns the directory,"
        f" or use a server of your own with --database-url\n  {reasons}"
    )


def _candidates(data: Path) -> list[Identity]:
    me = os.geteuid()
    if me != 0:
        as_is = Identity("self", me, os.getegid())
        # Containers like to run under a number that no account has; a namespace lends it a name.
        return [as_is] if _account(me) else [*_ways(None, "namespace"), as_is]
    ways = list(_ways(None, "namespace", "user", "reader"))
    if data.exists() and (owner := _account(data.stat().st_uid)) and owner.pw_uid != 0:
        # Made under another account: leave it to that account rather than take it away.
        ways = list(dict.fromkeys([*_ways(owner, "user", "reader"), *ways]))
    allowed = os.environ.get(VARIABLE)
    if allowed not in (None, "", "namespace", "user"):
        raise NotPermitted(f"{VARIABLE}={allowed} is not known; use namespace or user")
    return [way for way in ways if not allowed or (way.kind == "namespace") == (allowed == "namespace")]


def _ways(account: pwd.struct_passwd | None, *kinds: str) -> Iterator[Identity]:
    account = account or _stand_in()
    for kind in kinds if account else ():
        assert account
        yield Identity(kind, account.pw_uid, account.pw_gid)


def _stand_in() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            pass
    return next((account for account in pwd.getpwall() if account.pw_uid != 0), None)


def _account(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _admit(identity: Identity, directory: Path) -> None:
    """Let the server's group pass through a directory that was ours alone; it can't list it."""
    status = directory.stat()
    if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        os.chown(directory, -1, identity.gid)
        directory.chmod(stat.S_IMODE(status.st_mode) | stat.S_IXGRP)


def _give(path: Path, owner: tuple[int, int]) -> None:
    try:
        status = path.lstat()
        if (status.st_uid, status.st_gid) != owner:
            os.lchown(path, *owner)
    except FileNotFoundError:
        pass
