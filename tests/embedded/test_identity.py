"""Root, an ordinary user and a uid without an account, always below private folders."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from mainspring.embedded.binaries import find_binaries
from mainspring.embedded.errors import NotPermitted
from tests.support.postgres_processes import Serve, status, supervisor

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")]


needs_namespaces = pytest.mark.skipif(
    subprocess.run(["unshare", "--user", "true"], capture_output=True).returncode != 0,
    reason="user namespaces are refused here",
)


async def add_row(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    await connection.execute("CREATE TABLE IF NOT EXISTS rows (); INSERT INTO rows DEFAULT VALUES")
    count = int(await connection.fetchval("SELECT count(*) FROM rows"))
    await connection.close()
    return count


@needs_namespaces
async def test_root_in_either_way_and_changing_between_them(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.chmod(tmp_path, 0o700)
    for count, way in enumerate(("user", "namespace", "user", "namespace"), start=1):
        monkeypatch.setenv("MAINSPRING_PG_AS", way)
        server = serve(tmp_path / "m")
        await server.start()
        assert server.pid
        assert await add_row(server.dsn) == count
        # Root in name only: without capabilities; the other user can read closed folders and no more.
        outer, capabilities = status(server.pid, "Uid")[0], int(status(server.pid, "CapEff")[0], 16)
        assert capabilities in ((0,) if way == "namespace" else (1 << 1, 1 << 2))
        assert (outer == "0") == (way == "namespace")
        assert (tmp_path / "m" / "pg").stat().st_uid == int(outer)
        await server.stop()


async def test_programs_below_a_closed_folder(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = find_binaries().bin_dir.parents[1]
    for folder in (package, package.with_name(f"{package.name}.libs")):
        shutil.copytree(folder, tmp_path / "closed" / folder.name)
    os.chmod(tmp_path / "closed", 0o700)
    monkeypatch.setenv("MAINSPRING_PG_BIN", str(tmp_path / "closed" / package.name / "pginstall" / "bin"))
    monkeypatch.setenv("MAINSPRING_PG_AS", "user")
    server = serve(tmp_path / "m")
    await server.start()
    assert server.pid
    assert status(server.pid, "Uid")[0] != "0"
    assert await add_row(server.dsn) == 1


async def test_no_capability_is_kept_where_none_is_needed(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_PG_AS", "user")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        server = serve(Path(folder, "m"))
        await server.start()
        assert server.pid
        if reachable_by_others(server.binaries.bin_dir):
            assert int(status(server.pid, "CapEff")[0], 16) == 0
        assert await add_row(server.dsn) == 1
        await server.stop()


async def test_data_of_another_account_is_left_to_it(serve: Serve, copied: Path) -> None:
    account = pwd.getpwnam("nobody")
    for path in [copied / "pg", *(copied / "pg").rglob("*")]:
        os.chown(path, account.pw_uid, account.pw_gid)
    server = serve(copied)
    await server.start()
    assert server.pid
    assert status(server.pid, "Uid")[0] == str(account.pw_uid)
    assert await add_row(server.dsn) == 1


async def test_an_unknown_way_is_refused(serve: Serve, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_PG_AS", "wizard")
    with pytest.raises(NotPermitted, match="use namespace or user"):
        await serve(directory).start()


def reachable_by_others(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.resolve().parents))


def interpreter_for_others() -> str:
    """A Python of our version that any user can execute: the tests' own may lie below root's home."""
    for candidate in (sys.executable, f"/usr/bin/python3.{sys.version_info.minor}"):
        if Path(candidate).exists() and reachable_by_others(Path(candidate).resolve()):
            return candidate
    pytest.skip("no Python that an ordinary user can execute")


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp())
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    "uid",
    [
        pytest.param(pwd.getpwnam("nobody").pw_uid, id="ordinary"),
        pytest.param(54321, id="nameless", marks=needs_namespaces),
    ],
)
async def test_a_user_below_a_closed_home(uid: int, home: Path) -> None:
    packages = sysconfig.get_path("purelib")
    if not reachable_by_others(Path(packages)):
        pytest.skip("the packages lie below a closed folder")
    os.chown(home, uid, uid)
    environment = {"HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    who = {"user": uid, "group": uid, "extra_groups": []}
    for count in (1, 2):
        with supervisor(
            home / "m", python=interpreter_for_others(), path=packages, env=environment, cwd=home, **who
        ) as other:
            said = other.hear()
            assert said.get("pid"), said
            assert status(said["pid"], "Uid") == [str(uid)] * 4
            assert await add_row(said["dsn"]) == count
            assert other.let_end() == {"stopped": True}
    assert (home / "m" / "pg").stat().st_uid == uid


async def test_the_error_names_the_owner_of_the_data(directory: Path, home: Path) -> None:
    shutil.copytree(directory, home / "m", dirs_exist_ok=True)
    (home / "m" / "lock").unlink()
    for folder in (home, home / "m"):
        os.chmod(folder, 0o777)
    packages = sysconfig.get_path("purelib")
    nobody = pwd.getpwnam("nobody")
    with supervisor(
        home / "m",
        python=interpreter_for_others(),
        path=packages,
        cwd=home,
        user=nobody.pw_uid,
        group=nobody.pw_gid,
        extra_groups=[],
    ) as other:
        said = other.hear()
    assert said["code"] == "embedded_not_permitted"
    assert "belongs to uid 0" in said["message"]
    assert "chown -R" in said["message"]
