"""The data directory: checks, creation and passwords.

directory/
  pg/                     the PostgreSQL cluster
  pg.new/                 a cluster being created; renamed when complete, so that a kill leaves no partial cluster
  pg-password             password of the role mainspring, which owns the schema
  pg-server-password      password of the role mainspring_server
  pg-tenant-password      password of the role mainspring_tenant
  pg-superuser-password   password of the role postgres
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from .binaries import VARIABLE, Binaries, installed
from .errors import ForeignData, NoRoom, NotPermitted, diagnose
from .files import replace, sync_folder, sync_tree
from .identity import Identity
from .orphans import end_stragglers
from .process import run

ROLE = DATABASE = "mainspring"
SERVER_ROLE, TENANT_ROLE = "mainspring_server", "mainspring_tenant"
"""Roles that own nothing: servers connect with them (store/database_roles.py)."""
SUPERUSER = "postgres"
SETTINGS_FILE = "mainspring.conf"
_LEAST_FREE_BYTES = 200 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Cluster:
    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / "pg"

    @property
    def fresh(self) -> Path:
        return self.directory / "pg.new"

    @property
    def password_files(self) -> dict[str, Path]:
        return {
            ROLE: self.directory / "pg-password",
            SERVER_ROLE: self.directory / "pg-server-password",
            TENANT_ROLE: self.directory / "pg-tenant-password",
            SUPERUSER: self.directory / "pg-superuser-password",
        }

    def password(self, role: str) -> str:
        return self.password_files[role].read_text().strip()

    def exists(self) -> bool:
        return self.data.is_dir() and any(self.data.iterdir())

    def check(self, binaries: Binaries) -> None:
        """Raise if Mainspring did not create the data, or this PostgreSQL version cannot read it."""
        if not self.data.exists():
            return
        owner = self.data.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise NotPermitted(
                f"{self.data} belongs to uid {owner}: start as that user, or change the owner of {self.directory}"
                " with `chown -R`"
            )
        if not self.exists():
            return
        if not (self.data / "PG_VERSION").exists():
            raise ForeignData(f"{self.data} contains files that are not a PostgreSQL cluster; choose another directory")
        if not (self.data / SETTINGS_FILE).exists():
            raise ForeignData(
                f"{self.data} is a PostgreSQL cluster that Mainspring did not create: start it yourself and"
                " pass --database-url, or choose another directory"
            )
        version = (self.data / "PG_VERSION").read_text().strip()
        if version != str(binaries.major):
            raise ForeignData(_other_major(self.data, version, binaries))

    async def create(self, binaries: Binaries, identity: Identity, settings: str) -> None:
        """Create the cluster, its roles and its database. No server ever runs without passwords."""
        free = shutil.disk_usage(self.directory).free
        if free < _LEAST_FREE_BYTES:
            raise NoRoom(
                f"{self.directory} has {free >> 20} MB free; a new database needs"
                f" {_LEAST_FREE_BYTES >> 20} MB; free some space or choose another directory"
            )
        passwords = self._new_passwords(identity)
        self.fresh.mkdir(mode=0o700)
        identity.own(self.fresh)
        code, output = await run(self._initdb(binaries), identity=str(identity), folder=self.directory)
        if code != 0:
            raise diagnose("initdb failed", output, where=str(self.directory))
        with (self.fresh / "postgresql.conf").open("a") as file:
            file.write(f"\ninclude_if_exists '{SETTINGS_FILE}'\n")
        replace(self.fresh / SETTINGS_FILE, settings)
        identity.own(self.fresh)
        await self._execute("create", self.fresh, passwords, binaries, identity, "-c", "fsync=off")
        await asyncio.to_thread(sync_tree, self.fresh)
        self.fresh.rename(self.data)
        sync_folder(self.directory)

    async def restore_passwords(self, binaries: Binaries, identity: Identity) -> None:
        """Set new passwords if the password files are missing."""
        if not all(path.exists() for path in self.password_files.values()):
            passwords = self._new_passwords(identity)
            await self._execute("set_passwords", self.data, passwords, binaries, identity)

    async def remove_unfinished(self) -> None:
        if self.fresh.exists():
            await end_stragglers(self.fresh)
            shutil.rmtree(self.fresh)

    def _new_passwords(self, identity: Identity) -> dict[str, str]:
        passwords = {role: secrets.token_hex(24) for role in self.password_files}
        for role, path in self.password_files.items():
            replace(path, passwords[role] + "\n")
        identity.own(*self.password_files.values())
        return passwords

    def _initdb(self, binaries: Binaries) -> list[str | Path]:
        # The same collation on every machine, independent of its locales.
        collation = ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"] if binaries.major >= 17 else []
        access = ["-U", SUPERUSER, "--auth=scram-sha-256", f"--pwfile={self.password_files[SUPERUSER]}"]
        options = ["--no-sync", "--data-checksums", "--encoding=UTF8", "--locale=C", *collation]
        return [binaries.bin_dir / "initdb", "-D", self.fresh, *access, *options]

    async def _execute(
        self,
        name: str,
        data: Path,
        passwords: dict[str, str],
        binaries: Binaries,
        identity: Identity,
        *options: str,
    ) -> None:
        sections = resources.files(__package__).joinpath("cluster.sql").read_text().split("-- name: ")
        sql = next(text for text in sections if text.startswith(f"{name}\n")).removeprefix(f"{name}\n")
        sql = sql.format(
            password=passwords[ROLE],
            server_password=passwords[SERVER_ROLE],
            tenant_password=passwords[TENANT_ROLE],
            superuser_password=passwords[SUPERUSER],
        )
        postgres = binaries.bin_dir / "postgres"
        code, output = await run(
            [postgres, "--single", "-D", data, "-c", "exit_on_error=on", *options, "template1"],
            identity=str(identity),
            folder=self.directory,
            input=sql,
        )
        if code != 0:
            raise diagnose(f"could not {name.replace('_', ' ')} the database", output, where=str(data))


def _other_major(data: Path, version: str, binaries: Binaries) -> str:
    reader = next((found.bin_dir for found in installed() if str(found.major) == version), None)
    way = f"set {VARIABLE}={reader or f'the bin directory of a PostgreSQL {version}'} to keep using it"
    return (
        f"{data} was created by PostgreSQL {version}, this is {binaries.version} ({binaries.origin}): {way};"
        f" or dump it with version {version} and restore it into another directory"
    )
