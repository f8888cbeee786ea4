"""A PostgreSQL primary with a synchronous standby, from the bundled programs."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit, urlunsplit

import asyncpg

from mainspring.embedded.cluster import Cluster
from mainspring.embedded.server import EmbeddedServer


class Pair:
    """`url` names both hosts, the first primary first."""

    def __init__(self, first: EmbeddedServer, second: EmbeddedServer) -> None:
        self.first, self.second = first, second

    def url(self, database: str = "mainspring") -> str:
        parts = urlsplit(self.first.dsn_for(database))
        found = [parse_qs(urlsplit(server.dsn).query) for server in (self.first, self.second)]
        hosts, ports = (",".join(each[name][0] for each in found) for name in ("host", "port"))
        return urlunsplit(parts._replace(query=f"host={quote(hosts)}&port={ports}&target_session_attrs=read-write"))

    async def promote(self) -> None:
        await execute(self.second, "SELECT pg_promote(wait => true, wait_seconds => 30)")


async def execute(server: EmbeddedServer, *statements: str) -> None:
    connection = await asyncpg.connect(server.superuser_dsn("postgres"))
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


def copy_of(server: EmbeddedServer, folder: Path) -> None:
    """Make a standby of a running server in another folder."""
    programs = server.binaries.bin_dir
    source, target = Cluster(server.directory), Cluster(folder)
    with (source.data / "pg_hba.conf").open("a") as rules:
        rules.write("local replication all scram-sha-256\n")
    subprocess.run(
        [programs / "psql", "-qc", "SELECT pg_reload_conf()", "-o", "/dev/null", server.superuser_dsn("postgres")],
        check=True,
    )
    words = ("--write-recovery-conf", "--wal-method=stream", "--create-slot", "--slot=second", "--checkpoint=fast")
    subprocess.run(
        [programs / "pg_basebackup", f"--pgdata={target.data}", *words, f"--dbname={server.superuser_dsn('postgres')}"],
        check=True,
        capture_output=True,
    )
    for role, path in source.password_files.items():
        shutil.copy2(path, target.password_files[role])


@asynccontextmanager
async def pair(folder: Path) -> AsyncIterator[Pair]:
    """Start a primary and its standby; every commit waits for both."""
    first = EmbeddedServer(folder / "a", settings={"shared_buffers": "64MB"})
    second = EmbeddedServer(folder / "b", settings={"shared_buffers": "64MB"})
    for name in ("a", "b"):
        (folder / name).mkdir(mode=0o700)
    try:
        await first.start()
        copy_of(first, folder / "b")
        await second.start()
        await execute(first, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        yield Pair(first, second)
    finally:
        await second.stop()
        await first.stop()
