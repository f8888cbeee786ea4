"""Foreign data, other versions and full disks are rejected with what to do."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring.embedded.binaries import installed
from mainspring.embedded.errors import ForeignData, NoRoom
from tests.support.postgres_processes import Serve

pytestmark = pytest.mark.anyio


async def test_files_of_something_else(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "pg").mkdir()
    (tmp_path / "pg" / "thesis.txt").write_text("precious")
    with pytest.raises(ForeignData, match="choose another directory"):
        await serve(tmp_path).start()
    assert (tmp_path / "pg" / "thesis.txt").read_text() == "precious"


async def test_a_cluster_of_another_program(serve: Serve, copied: Path) -> None:
    (copied / "pg" / "mainspring.conf").unlink()
    with pytest.raises(ForeignData, match="--database-url"):
        await serve(copied).start()


async def test_a_file_where_the_directory_should_be(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("")
    with pytest.raises(ForeignData, match="must be a directory"):
        await serve(tmp_path / "m").start()


async def test_data_of_another_major_version(serve: Serve, copied: Path) -> None:
    (copied / "pg" / "PG_VERSION").write_text("13\n")
    with pytest.raises(ForeignData, match=r"created by PostgreSQL 13, this is .*MAINSPRING_PG_BIN.*or dump it"):
        await serve(copied).start()


async def test_another_installed_version_makes_a_cluster_and_is_asked_for_again(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    preferred, *others = installed()
    other = next((found for found in others if found.major != preferred.major), None)
    if other is None:
        pytest.skip("needs a second major version of PostgreSQL")
    with monkeypatch.context() as patch:
        patch.setenv("MAINSPRING_PG_BIN", str(other.bin_dir))
        server = serve(tmp_path / "m")
        await server.start()
        assert (server.version, server.origin) == (other.version, "MAINSPRING_PG_BIN")
        await server.stop()
    with pytest.raises(ForeignData, match=f"set MAINSPRING_PG_BIN={other.bin_dir} to keep using it"):
        await serve(tmp_path / "m").start()


async def test_a_copy_that_lost_its_modes(serve: Serve, copied: Path) -> None:
    (copied / "pg").chmod(0o755)
    await serve(copied).start()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=240m", "none", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small disk")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path, leave: int) -> None:
    with (folder / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, shutil.disk_usage(folder).free - leave)


async def test_no_room_to_begin_with(serve: Serve, small_disk: Path) -> None:
    fill(small_disk, leave=100 * 1024 * 1024)
    with pytest.raises(NoRoom, match=r"(99|100) MB free.*free some space"):
        await serve(small_disk / "m").start()


async def test_a_full_disk_at_a_later_start(serve: Serve, directory: Path, small_disk: Path) -> None:
    shutil.copytree(directory, small_disk / "m")
    server = serve(small_disk / "m")
    fill(small_disk, leave=0)
    with pytest.raises(NoRoom, match="free some space"):
        await server.start()
    (small_disk / "filler").unlink()
    await server.start()
