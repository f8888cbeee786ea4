"""Looks into real folders: links, unreadable folders, names, and bounds."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest

from mainspring.backends import watched_folder, watched_places
from mainspring.backends.watched_folder import look_into
from mainspring.backends.watched_places import WatchedPlaces
from mainspring.domain.file_pattern import FilePattern
from mainspring.domain.watch import CannotLook, Look

pytestmark = pytest.mark.anyio


def look(folder: Path, pattern: str = "*", *, root: Path | None = None, after: str | None = None) -> Look:
    return look_into(str(folder), root=str(root or folder), pattern=FilePattern(pattern), after=after)


def names(found: Look) -> list[str]:
    return [file.path for file in found.files]


def write(folder: Path, *paths: str) -> None:
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("x")


def test_matching_files_in_order_with_their_versions(tmp_path: Path) -> None:
    write(tmp_path, "b.csv", "a.csv", "a.txt", "sub/c.csv", ".d.csv")
    found = look(tmp_path, "**/*.csv")
    assert (names(found), found.next_after, found.problem) == (["a.csv", "b.csv", "sub/c.csv"], None, None)
    before = found.files[0]
    os.utime(tmp_path / "a.csv", (1, 1))
    after = look(tmp_path, "**/*.csv").files[0]
    assert before.size == 1 and before.version != after.version and after.modified_at.timestamp() == 1
    assert names(look(tmp_path, "*.csv")) == ["a.csv", "b.csv"]


def test_links_are_not_followed_out_of_the_root(tmp_path: Path) -> None:
    inside, outside = tmp_path / "root" / "in", tmp_path / "outside"
    write(inside, "real.csv")
    write(outside, "secret.csv")
    write(tmp_path / "root", "other.csv")
    (inside / "out.csv").symlink_to(outside / "secret.csv")
    (inside / "up.csv").symlink_to(tmp_path / "root" / "other.csv")
    (inside / "gone.csv").symlink_to(tmp_path / "nothing")
    (inside / "folder").symlink_to(outside)
    os.mkfifo(inside / "pipe.csv")
    assert names(look(inside, "**/*.csv", root=tmp_path / "root")) == ["real.csv", "up.csv"]
    (tmp_path / "root" / "door").symlink_to(outside)
    with pytest.raises(CannotLook, match="symbolic link"):
        look(tmp_path / "root" / "door", root=tmp_path / "root")


def test_a_missing_folder_is_a_problem_and_a_missing_subfolder_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotLook, match="No such file"):
        look(tmp_path / "nothing", root=tmp_path)
    write(tmp_path, "file", "sub/a")
    with pytest.raises(CannotLook, match="Not a directory"):
        look(tmp_path / "file", root=tmp_path)
    scandir = os.scandir

    def refused(path: str) -> object:
        if path.endswith("sub"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refused)  # root can read everything
    found = look(tmp_path, "**/*")
    assert names(found) == ["file"] and "sub: Permission denied" in (found.problem or "")


def test_names_that_cannot_be_stored_are_left_out_and_said(tmp_path: Path) -> None:
    write(tmp_path, "good")
    (Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))).write_text("x")
    found = look(tmp_path)
    assert names(found) == ["good"] and "1 names that are not UTF-8" in (found.problem or "")


def test_a_look_examines_a_bounded_number_of_files_and_the_next_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watched_folder, "MAX_FILES", 2)
    write(tmp_path, *"abcde")
    first = look(tmp_path)
    second = look(tmp_path, after=first.next_after)
    third = look(tmp_path, after=second.next_after)
    assert [names(one) for one in (first, second, third)] == [["a", "b"], ["c", "d"], ["e"]]
    assert third.next_after is None
    monkeypatch.setattr(watched_folder, "MAX_ENTRIES", 4)
    with pytest.raises(CannotLook, match="more than 4 files"):
        look(tmp_path)


async def test_a_folder_that_does_not_respond_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "good/a", "stuck/a")
    respond, stuck = threading.Event(), str(tmp_path / "stuck")
    real = look_into

    def slow(place: str, **more: object) -> Look:
        if place == stuck:
            assert respond.wait(60)
        return real(place, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(watched_places, "look_into", slow)
    places = WatchedPlaces()

    async def at(place: str, within_s: float = 30.0) -> Look:
        return await places.look(place, root=str(tmp_path), pattern=FilePattern("*"), after=None, within_s=within_s)

    with pytest.raises(CannotLook, match=r"does not respond within 0\.1 s"):
        await at(stuck, 0.1)
    with pytest.raises(CannotLook, match=r"does not respond$"):
        await at(stuck)
    assert names(await at(str(tmp_path / "good"))) == ["a"]
    respond.set()
    async with asyncio.timeout(30):
        while True:
            try:
                assert names(await at(stuck)) == ["a"]
                break
            except CannotLook:
                await asyncio.sleep(0)
