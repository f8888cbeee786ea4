from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import asyncpg
import pytest

from mainspring.embedded.errors import BadSetting, PortInUse
from mainspring.embedded.process import alive
from tests.support.postgres_processes import Serve, listens_on_tcp

pytestmark = pytest.mark.anyio


async def fetch(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def test_the_first_start_makes_what_the_second_finds(serve: Serve, tmp_path: Path) -> None:
    server = serve(tmp_path / "new" / "m")
    await server.start()
    assert await fetch(server.dsn, "SELECT current_user || ' ' || current_database()") == "mainspring mainspring"
    assert await fetch(server.dsn, "SELECT pg_encoding_to_char(encoding) FROM pg_database LIMIT 1") == "UTF8"
    await fetch(server.dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    await server.stop()

    again = serve(tmp_path / "new" / "m")
    await again.start()
    assert again.dsn == server.dsn
    assert await fetch(again.dsn, "SELECT answer FROM kept") == 42


async def test_stop_ends_the_process_and_may_be_repeated(serve: Serve, directory: Path) -> None:
    server = serve(directory)
    await server.start()
    pid = server.pid
    assert pid
    assert alive(pid)
    await server.start()
    assert server.pid == pid, "a second start of a running server does nothing"
    await server.stop()
    await server.stop()
    assert server.pid is None
    assert not alive(pid)
    await server.start()
    assert server.pid not in (None, pid)


async def test_stop_does_not_wait_for_open_connections(serve: Serve, directory: Path) -> None:
    server = serve(directory)
    await server.start()
    connection = await asyncpg.connect(server.dsn)
    await connection.execute("BEGIN")
    await server.stop()
    with pytest.raises((asyncpg.PostgresError, asyncpg.InterfaceError, OSError)):
        await connection.execute("SELECT 1")


async def test_it_is_private(serve: Serve, directory: Path) -> None:
    server = serve(directory)
    await server.start()
    assert server.pid
    assert not listens_on_tcp(server.pid)
    assert os.getsid(server.pid) != os.getsid(0), "Ctrl-C in our terminal would reach the server"
    for name in ("run", "pg", "pg-password", "pg-superuser-password", "pg.log", "lock"):
        assert not stat.S_IMODE((directory / name).stat().st_mode) & 0o077, name
    for role in ("mainspring", "postgres"):
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(host=str(directory / "run"), user=role, password="wrong", database="mainspring")
    assert not await fetch(server.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
    assert await fetch(server.superuser_dsn(), "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")


async def test_other_databases_can_be_made_and_reached(serve: Serve, directory: Path) -> None:
    server = serve(directory)
    await server.start()
    await fetch(server.dsn, 'CREATE DATABASE "a b&c"')
    assert await fetch(server.dsn_for("a b&c"), "SELECT current_database()") == "a b&c"


async def test_a_lost_password_file_is_recreated(serve: Serve, directory: Path) -> None:
    (directory / "pg-password").unlink()
    server = serve(directory)
    await server.start()
    assert await fetch(server.dsn, "SELECT 1") == 1
    assert await fetch(server.superuser_dsn(), "SELECT 1") == 1


async def test_tcp_only_when_a_port_is_asked_for(serve: Serve, directory: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = serve(directory, port=port)
        with pytest.raises(PortInUse, match="choose another port"):
            await server.start()
    await server.start()
    assert server.pid
    assert listens_on_tcp(server.pid)
    password = (directory / "pg-password").read_text().strip()
    by_tcp = f"postgresql://mainspring:{password}@127.0.0.1:{port}/mainspring"
    assert await fetch(by_tcp, "SELECT 1") == await fetch(server.dsn, "SELECT 1") == 1
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(by_tcp.replace(password, "wrong"))


async def test_a_directory_too_long_for_a_socket(serve: Serve, copied: Path) -> None:
    long = copied.with_name("l" * 120)
    os.rename(copied, long)
    server = serve(long)
    await server.start()
    elsewhere = (long / "socket-folder").read_text()
    assert stat.S_IMODE(os.stat(elsewhere).st_mode) == 0o700
    assert await fetch(server.dsn, "SELECT 1") == 1
    await server.stop()
    assert not os.access(elsewhere, os.F_OK)
    assert not (long / "socket-folder").exists()


async def test_settings_are_durable_and_can_be_overridden(serve: Serve, directory: Path) -> None:
    server = serve(directory, work_mem="7MB", log_line_prefix=r"it's \%p ")
    await server.start()
    connection = await asyncpg.connect(server.dsn)
    shown = {row["name"]: row["setting"] for row in await connection.fetch("SHOW ALL")}
    await connection.close()
    assert [shown[name] for name in ("fsync", "synchronous_commit", "full_page_writes")] == ["on"] * 3
    assert (shown["work_mem"], shown["log_line_prefix"]) == ("7MB", r"it's \%p ")
    assert (shown["TimeZone"], shown["max_wal_size"], shown["listen_addresses"]) == ("UTC", "4GB", "")
    assert shown["shared_preload_libraries"] == "pg_stat_statements"


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("listen_addresses", "*", "reserved for the supervisor"),
        ("no_such_thing", "1", "no_such_thing"),
        ("max_connections", "many", "max_connections"),
        ("fsync = off #", "1", "not a valid name"),
    ],
)
async def test_a_bad_setting_is_named(serve: Serve, directory: Path, name: str, value: str, says: str) -> None:
    with pytest.raises(BadSetting, match=says):
        await serve(directory, **{name: value}).start()


async def test_a_long_log_is_put_aside(serve: Serve, directory: Path) -> None:
    with (directory / "pg.log").open("wb") as log:
        log.truncate(9 * 1024 * 1024)
    server = serve(directory)
    await server.start()
    assert (directory / "pg.log.1").stat().st_size > server.log.stat().st_size
