"""Temporary folders of attempts: private, and reused only if unchanged."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mainspring.worker.checkpoint import FileCheckpoint
from mainspring.worker.isolation.folders import ARTIFACTS, CHECKPOINT, PROGRESS, FolderPool, open_regular
from mainspring.worker.progress import FileProgress

pytestmark = pytest.mark.anyio


@pytest.fixture
def folders() -> Iterator[FolderPool]:
    made = FolderPool()
    yield made
    made.remove()
    assert not made.root.exists()


async def test_what_is_left_as_it_was_is_used_again(folders: FolderPool) -> None:
    folder = folders.take()
    assert os.stat(folder).st_mode & 0o777 == os.stat(folder / ARTIFACTS).st_mode & 0o777 == 0o700
    assert folders.take() != folder
    for name in (PROGRESS, CHECKPOINT):
        (folder / name).write_text("1")
    await folders.give_back(folder, reusable=True)
    assert folders.take() == folder
    assert os.listdir(folder) == [ARTIFACTS] and not os.listdir(folder / ARTIFACTS)


def _link(folder: Path) -> None:
    folder.rmdir()
    folder.symlink_to("/")


DEEDS: dict[str, Callable[[Path], object]] = {
    "a file": lambda folder: (folder / "left").write_text("x"),
    "a hidden file": lambda folder: (folder / ".left").write_text("x"),
    "a file to be kept": lambda folder: (folder / ARTIFACTS / "left").write_text("x"),
    "other rights": lambda folder: folder.chmod(0o777),
    "other rights inside": lambda folder: (folder / ARTIFACTS).chmod(0o755),
    "nothing inside": lambda folder: (folder / ARTIFACTS).rmdir(),
    "a link instead": lambda folder: _link(folder / ARTIFACTS),
    "a folder as progress": lambda folder: (folder / PROGRESS).mkdir(),
}


@pytest.mark.parametrize("deed", DEEDS)
async def test_what_was_changed_is_not(folders: FolderPool, deed: str) -> None:
    folder = folders.take()
    DEEDS[deed](folder)
    await folders.give_back(folder, reusable=True)
    assert not folder.exists() and folders.take() != folder


async def test_nor_is_a_cell(folders: FolderPool) -> None:
    folder = folders.take()
    await folders.give_back(folder, reusable=False)
    assert not folder.exists()


async def test_what_is_to_be_kept_goes_elsewhere(folders: FolderPool) -> None:
    folder = folders.take()
    assert folders.move_artifacts(folder) is None
    (folder / ARTIFACTS / "report").write_text("x")
    aside = folders.move_artifacts(folder)
    assert aside is not None and os.listdir(aside) == ["report"]
    await folders.give_back(folder, reusable=True)
    assert not folder.exists() and aside.exists()
    (folders.take() / ARTIFACTS).rmdir()
    assert folders.move_artifacts(folders.take()) is None


def test_only_a_plain_file_is_read(tmp_path: Path) -> None:
    """A program may replace a file by a symbolic link, which leads elsewhere, or by a pipe, which has no end."""
    (tmp_path / "plain").write_text("{}")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    with open_regular(tmp_path / "plain") as file:
        assert file.read() == b"{}"
    for name in ("link", "pipe"):
        checkpoint = FileCheckpoint(tmp_path / name)
        assert checkpoint.take() is None and checkpoint.problem is not None
        progress = FileProgress(tmp_path / name)
        progress.refresh()
        assert progress.total is None


def test_a_link_in_the_place_of_the_artifacts_is_nothing_to_keep(folders: FolderPool, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x")
    folder = folders.take()
    (folder / ARTIFACTS).rmdir()
    (folder / ARTIFACTS).symlink_to(tmp_path)
    assert folders.move_artifacts(folder) is None
