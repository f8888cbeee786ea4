"""The contract of every artifact store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import pytest

from mainspring.backends.folder import FolderStore
from mainspring.backends.objects import ObjectStore
from mainspring.backends.stores import open_store
from mainspring.domain.errors import Invalid
from mainspring.ports import ArtifactStore

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["folder", "objects"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    place = str(tmp_path) if request.param == "folder" else f"file://{tmp_path}"
    found = open_store(place)
    assert isinstance(found, FolderStore if request.param == "folder" else ObjectStore)
    return found


async def pieces(*parts: bytes, cut: bool = False) -> AsyncIterator[bytes]:
    for part in parts:
        yield part
    if cut:
        raise ConnectionError("cut off")


async def content(store: ArtifactStore, key: object) -> bytes:
    return b"".join([piece async for piece in await store.get(key)])  # type: ignore[arg-type]


@pytest.mark.parametrize("parts", [(), (b"",), (b"a", b"bc"), (os.urandom(3_000_000),) * 5])
async def test_get_returns_what_was_put(store: ArtifactStore, parts: tuple[bytes, ...]) -> None:
    key = uuid4()
    await store.put(key, pieces(*parts))
    assert await content(store, key) == b"".join(parts)


async def test_deleted_and_unknown_keys_are_not_found(store: ArtifactStore) -> None:
    key = uuid4()
    with pytest.raises(FileNotFoundError):
        await store.get(key)
    await store.put(key, pieces(b"x"))
    await store.delete(key)
    await store.delete(key)
    with pytest.raises(FileNotFoundError):
        await store.get(key)


@pytest.mark.parametrize("size", [10, 30_000_000])
async def test_an_interrupted_upload_leaves_nothing(store: ArtifactStore, size: int, tmp_path: Path) -> None:
    key = uuid4()
    with pytest.raises(ConnectionError):
        await store.put(key, pieces(*[b"x" * (size // 10)] * 10, cut=True))
    with pytest.raises(FileNotFoundError):
        await store.get(key)
    await store.sweep()
    assert not _files(tmp_path)


def _files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_parts_that_a_dead_server_left_are_swept(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    folder = tmp_path / "ab"
    folder.mkdir()
    old, new = folder / "ab1.part", folder / "ab2.part"
    for part in (old, new):
        part.write_bytes(b"x")
    os.utime(old, (1, 1))
    await store.sweep()
    assert _files(tmp_path) == [new]


def test_an_unsupported_url_is_rejected() -> None:
    with pytest.raises(Invalid, match="cannot use gopher://nowhere as an artifact store"):
        open_store("gopher://nowhere")
