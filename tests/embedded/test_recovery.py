"""Remains of killed processes never prevent the next start."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from pathlib import Path

import asyncpg
import pytest

from mainspring.embedded.binaries import find_binaries
from mainspring.embedded.errors import DirectoryInUse
from mainspring.embedded.lock import DirectoryLock
from mainspring.embedded.process import alive
from tests.support.postgres_processes import Serve, another_program, supervisor, wait_gone

pytestmark = pytest.mark.anyio


@pytest.fixture
def table() -> str:
    """A name that no earlier test has used."""
    return f"kept_{secrets.token_hex(4)}"


UVLOOP = pytest.param(("asyncio", {"use_uvloop": True}), id="uvloop")


@pytest.mark.parametrize("anyio_backend", ["asyncio", UVLOOP])
async def test_a_killed_server_is_noticed_and_recovers(serve: Serve, directory: Path, table: str) -> None:
    server = serve(directory)
    await server.start()
    connection = await asyncpg.connect(server.dsn)
    await connection.execute(f"CREATE TABLE {table} AS SELECT 42 AS answer")
    # A backend that computes does not look whether its postmaster lives.
    busy = asyncio.create_task(connection.execute("SELECT count(*) FROM generate_series(1, 100000000000)"))
    watcher = await asyncpg.connect(server.dsn)
    while not await watcher.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%generate_series%'"
        " AND state = 'active' AND pid <> pg_backend_pid()"
    ):
        pass
    died = asyncio.create_task(server.wait_died())
    assert server.pid
    os.kill(server.pid, signal.SIGKILL)
    assert await asyncio.wait_for(died, 10) == -signal.SIGKILL
    assert server.pid is None

    await asyncio.wait_for(server.start(), 15)
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await busy
    again = await asyncpg.connect(server.dsn)
    assert await again.fetchval(f"SELECT answer FROM {table}") == 42
    for each in (again, watcher, connection):
        each.terminate()


async def test_wait_died_does_not_mistake_a_stop_for_a_death(serve: Serve, directory: Path) -> None:
    server = serve(directory)
    await server.start()
    died = asyncio.create_task(server.wait_died())
    await asyncio.sleep(0)
    await server.stop()
    await server.start()
    assert not died.done()
    died.cancel()


async def test_the_server_ends_with_a_killed_supervisor(directory: Path) -> None:
    with supervisor(directory) as other:
        pid = other.hear()["pid"]
        other.kill()
        wait_gone(pid)


async def test_a_start_right_after_a_killed_supervisor(serve: Serve, directory: Path, table: str) -> None:
    with supervisor(directory) as other:
        said = other.hear()
        connection = await asyncpg.connect(said["dsn"])
        await connection.execute(f"CREATE TABLE {table} AS SELECT 42 AS answer")
        other.kill()
        server = serve(directory)
        await server.start()
    assert not alive(said["pid"])
    again = await asyncpg.connect(server.dsn)
    assert await again.fetchval(f"SELECT answer FROM {table}") == 42
    await again.close()
    connection.terminate()


async def test_an_unsupervised_server_is_stopped_first(serve: Serve, directory: Path) -> None:
    orphan, server = serve(directory), serve(directory)
    await orphan.start()
    assert orphan._lock
    orphan._lock.release()
    orphan._lock = None
    await server.start()
    assert await asyncio.wait_for(orphan.wait_died(), 10) == 0
    assert server.pid


async def test_a_pid_file_whose_pid_went_to_another_program(serve: Serve, directory: Path) -> None:
    with another_program() as stranger:
        lines = [str(stranger.pid), str(directory / "pg"), "1", "5432", "/nowhere", "", "1 1", "ready"]
        (directory / "pg" / "postmaster.pid").write_text("\n".join(lines) + "\n")
        await serve(directory).start()
        assert stranger.poll() is None


async def test_an_empty_pid_file(serve: Serve, directory: Path) -> None:
    (directory / "pg" / "postmaster.pid").write_text("")
    await serve(directory).start()


async def test_a_directory_in_use_names_who_uses_it(serve: Serve, directory: Path) -> None:
    with supervisor(directory) as other:
        other.hear()
        with pytest.raises(DirectoryInUse, match=rf"process {other.process.pid};.*choose another directory"):
            await serve(directory).start()
        assert other.let_end() == {"stopped": True}
    await serve(directory).start()


@pytest.fixture
def stalling(tmp_path: Path) -> Path:
    """A bin directory whose initdb begins its work, tells its pid through a pipe, and never ends."""
    folder = tmp_path / "bin"
    folder.mkdir()
    os.mkfifo(folder / "begun")
    (folder / "postgres").symlink_to(find_binaries().bin_dir / "postgres")
    script = f'#!/bin/sh\necho 18 > "$2/PG_VERSION"\necho $$ > {folder}/begun\nexec sleep 600\n'
    (folder / "initdb").write_text(script)
    (folder / "initdb").chmod(0o755)
    return folder


async def test_a_kill_while_the_cluster_is_made(serve: Serve, tmp_path: Path, stalling: Path) -> None:
    directory = tmp_path / "m"
    with supervisor(directory, env={"MAINSPRING_PG_BIN": str(stalling)}) as other:
        stalled = int((stalling / "begun").read_text())
        other.kill()
        wait_gone(stalled)
    assert (directory / "pg.new" / "PG_VERSION").exists()
    assert not (directory / "pg").exists()
    await serve(directory).start()
    assert not (directory / "pg.new").exists()


async def test_a_cancelled_first_start_leaves_no_process_and_no_lock(
    serve: Serve, tmp_path: Path, stalling: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(stalling))
    start = asyncio.create_task(serve(tmp_path / "m").start())
    stalled = int(await asyncio.to_thread((stalling / "begun").read_text))
    start.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start
    assert not alive(stalled)
    DirectoryLock(tmp_path / "m" / "lock").release()
