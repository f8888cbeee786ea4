"""Chooses the user under which PostgreSQL runs: it rejects root, and `initdb` needs an account with a name.

An ordinary user runs it directly. Root prefers a user namespace that maps it to another user: the files stay root's,
so no permissions change, even below a private home. Where namespaces are not allowed (most containers), the server
runs as another user, if necessary with the capability to read private folders. Each way is tested with the actual
program and folder, not predicted from modes and capabilities.
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
    """One way to run PostgreSQL; `launch` documents the kinds."""

    kind: str
    uid: int
    gid: int

    def __str__(self) -> str:
        return self.kind if self.kind == "self" else f"{self.kind}:{self.uid}:{self.gid}"

    @property
    def owner(self) -> tuple[int, int]:
        """The owner of the server's files, as this process sees it."""
        return (os.geteuid(), os.getegid()) if self.kind == "namespace" else (self.uid, self.gid)

    def own(self, *paths: Path) -> None:
        """Give these files, recursively, to the server. Only root needs to, and only root can."""
        if os.geteuid() != 0:
            return
        for path in paths:
            _give(path, self.owner)
            for folder, folders, files in os.walk(path):
                for name in (*folders, *files):
                    _give(Path(folder, name), self.owner)


async def choose(postgres: Path, directory: Path, data: Path) -> Identity:
    """Return the first identity that can enter `directory` and execute `postgres`."""
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
    reasons = "\n  ".join(refusals) or f"{VARIABLE}={os.environ.get(VARIABLE)} allows no identity here"
    raise NotPermitted(
        "PostgreSQL cannot be started under any identity: run as an ordinary user who owns the directory,"
        f" or use another server with --database-url\n  {reasons}"
    )


def _candidates(data: Path) -> list[Identity]:
    me = os.geteuid()
    if me != 0:
        as_is = Identity("self", me, os.getegid())
        # Containers often run under a uid without an account; a namespace maps it to one.
        return [as_is] if _account(me) else [*_ways(None, "namespace"), as_is]
    ways = list(_ways(None, "namespace", "user", "reader"))
    if data.exists() and (owner := _account(data.stat().st_uid)) and owner.pw_uid != 0:
        # Created under another account: keep using that account.
        ways = list(dict.fromkeys([*_ways(owner, "user", "reader"), *ways]))
    allowed = os.environ.get(VARIABLE)
    if allowed not in (None, "", "namespace", "user"):
        raise NotPermitted(f"{VARIABLE}={allowed} is invalid; use namespace or user")
    return [way for way in ways if not allowed or (way.kind == "namespace") == (allowed == "namespace")]


def _ways(account: pwd.struct_passwd | None, *kinds: str) -> Iterator[Identity]:
    account = account or _fallback_account()
    for kind in kinds if account else ():
        assert account
        yield Identity(kind, account.pw_uid, account.pw_gid)


def _fallback_account() -> pwd.struct_passwd | None:
    for name in ("postgres", "nobody"):  # prose: ok, names of accounts
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
    """Let the server's group traverse, but not list, a private directory."""
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
